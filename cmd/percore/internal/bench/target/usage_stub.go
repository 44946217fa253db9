//go:build !linux

package target

import (
	"errors"
	"time"
)

// usage needs getrusage as Linux has it.
func usage() (Usage, error) { return Usage{}, errors.ErrUnsupported }

// memory needs /proc.
func memory() (Memory, error) { return Memory{}, errors.ErrUnsupported }

// threadCPU needs a clock per thread.
func threadCPU() (time.Duration, error) { return 0, errors.ErrUnsupported }
