//go:build !linux

package target

import (
	"errors"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// The benchmark needs Linux. These functions let the package build elsewhere.

func usage() (u scenario.Usage, err error) { return u, errors.ErrUnsupported }

func memory() (m scenario.Memory, err error) { return m, errors.ErrUnsupported }

// Resident is for Linux.
func Resident(int) (int64, error) { return 0, errors.ErrUnsupported }

// CPU is for Linux.
func CPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
