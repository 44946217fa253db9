//go:build !linux || percore_net

package main

import (
	"errors"
	"io"
)

// supervise fails: without handovers there is nothing to supervise.
func supervise([]string, io.Writer) (int, error) {
	return exitFailure, errors.New("-supervise is for handovers, which need Linux and percore's own engine: leave it out")
}

// closeOnExec does nothing: supervise passes no descriptors.
func closeOnExec(int) {}

// leadsGroup reports false: it is for handovers.
func leadsGroup() bool { return false }
