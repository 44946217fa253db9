//go:build !linux

package bench

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// The benchmark needs Linux, and Run returns an error elsewhere. These functions let the package
// build there.

type processors *struct{}

func processorCount() int { return runtime.NumCPU() }

func splitProcessors() (server, load processors, err error) { return nil, nil, errors.ErrUnsupported }

func giveProcessors(int) (server, load processors, err error) { return nil, nil, errors.ErrUnsupported }

func childAttr() *syscall.SysProcAttr { return nil }

func startOn(_ processors, cmd *exec.Cmd) error { return cmd.Start() }

type counters struct{ uncounted map[string]error }

func startCounted(processors, *exec.Cmd, <-chan struct{}) (*counters, error) {
	return nil, errors.ErrUnsupported
}

func (*counters) read(map[string]float64, float64) error { return nil }

type limits struct{}

func systemLimits() (l limits) { return l }

func (limits) allow(*scenario.Scenario) error { return nil }

type cpuClock struct{}

func machineCPU() (c cpuClock) { return c }

func (cpuClock) noteOthers(map[string]float64, time.Duration) {}

func kernel() string { return runtime.GOOS }

func cpuModel() string { return "" }

func memoryTotal() int64 { return 0 }
