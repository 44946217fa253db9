package conformance

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// awaitReadable waits until at least n bytes are in the socket's receive buffer, without consuming them.
func (a *actor) awaitReadable(n int) {
	a.stage.Helper()
	a.await(fmt.Sprintf("%s having %d bytes to read", a.name, n), func(fd int) bool {
		queued, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err == nil && queued >= n
	})
}

// awaitPeerClosed waits until the kernel knows that the peer has closed its
// sending side or reset the connection. It consumes neither data nor error.
func (a *actor) awaitPeerClosed() {
	a.stage.Helper()
	a.await(a.name+" learning of its peer's close", func(fd int) bool {
		return pollEvents(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
}

// awaitBroken waits until the connection is dead in both directions.
func (a *actor) awaitBroken() {
	a.stage.Helper()
	a.await(a.name+" learning of a reset", func(fd int) bool {
		return pollEvents(fd, 0)&(unix.POLLHUP|unix.POLLERR) != 0
	})
}

func (a *actor) await(what string, condition func(fd int) bool) {
	a.stage.Helper()
	raw, err := as[syscall.Conn](a).SyscallConn()
	if err != nil {
		a.stage.Fatalf("%s: %v", what, err)
	}
	testnet.Eventually(a.stage, what, func() (met bool) {
		if err := raw.Control(func(fd uintptr) { met = condition(int(fd)) }); err != nil {
			a.stage.Fatalf("%s: %v", what, err)
		}
		return met
	})
}

// pollEvents queries the socket's state with poll(2), which has no side effects.
func pollEvents(fd int, events int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds, 0); err != unix.EINTR {
			return fds[0].Revents
		}
	}
}
