//go:build !percore_net

package systemd

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// monotonicUsec is the line of a message with the time.
func monotonicUsec() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return ""
	}
	return fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000)
}

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(fd int) { syscall.CloseOnExec(fd) }
