//go:build !linux

package bench

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// The benchmark needs Linux, and Run returns an error elsewhere. These functions let the package
// build there.

type cpuSet struct{}

func processorCount() int { return runtime.NumCPU() }

func giveProcessors(int) (server, load *cpuSet, err error) { return nil, nil, errors.ErrUnsupported }

func (*process) start(*cpuSet, bool, syscall.Signal) error { return errors.ErrUnsupported }

type counters struct{ uncounted map[string]error }

func (*counters) read() (map[string]float64, error) { return nil, nil }

func allow(*scenario.Scenario) error { return nil }

func machineCPU() time.Duration { return 0 }

func host() (h Host) { return h }
