//go:build !linux

package bench

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// The benchmark needs Linux, and Run returns an error elsewhere. These functions let the package
// build there.

func childAttr() *syscall.SysProcAttr { return nil }

type processors *struct{}

func splitProcessors() (server, load processors, err error) { return nil, nil, errors.ErrUnsupported }

func giveProcessors(int) (server, load processors, err error) { return nil, nil, errors.ErrUnsupported }

func processorCount() int { return runtime.NumCPU() }

func startOn(_ processors, cmd *exec.Cmd) error { return cmd.Start() }

type counters struct{ uncounted map[string]error }

func startCounted(processors, *exec.Cmd, <-chan struct{}) (*counters, error) {
	return nil, errors.ErrUnsupported
}

func (*counters) read(map[string]float64, float64) error { return errors.ErrUnsupported }

func systemLimits() limits { return limits{} }

type cpuClock struct{}

func machineCPU() cpuClock { return cpuClock{} }

func (cpuClock) since(cpuClock) (used, capacity time.Duration) { return 0, 0 }

func kernel() string { return runtime.GOOS }

func cpuModel() string { return "" }

func memoryTotal() int64 { return 0 }

func (*foreign) cpu() time.Duration { return 0 }

func (*foreign) resident() int64 { return 0 }
