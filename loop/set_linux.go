package loop

import (
	"fmt"
	"os"
	"time"
)

// Set is a fixed number of descriptors that goroutines wait on as on one, parked
// in the Go runtime's poller; no loop is involved. It is what a listener with
// several sockets waits on. All methods are safe for concurrent use.
type Set struct {
	epoll epoll
}

// NewSet makes a set of non-blocking descriptors, which stay the caller's and
// must not be closed before the set. It fails when the process is out of
// descriptors.
func NewSet(fds []int) (*Set, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, err
	}
	s := &Set{e}
	for i, fd := range fds {
		if errno := e.addLevel(fd, Token{slot: uint32(i)}); errno != 0 {
			s.Close()
			return nil, fmt.Errorf("loop: can't watch a descriptor: %w", os.NewSyscallError("epoll_ctl", errno))
		}
	}
	return s, nil
}

// Wait waits until a descriptor is readable and calls try with its index (in the
// slice given to NewSet) and its readiness, again and again until try reports
// true. Descriptors that stay readable take turns. try must use the readiness
// up, or report true, and must not call Wait; one caller tries at a time, the
// others queue up.
//
// Wait fails with [ErrClosed] if the set is closed and with
// [os.ErrDeadlineExceeded] after the deadline, as soon as try is not running.
func (s *Set) Wait(try func(i int, r Readiness) (done bool)) error {
	err := s.epoll.raw.Read(func(uintptr) bool {
		for {
			// Level-triggered, so nothing is forgotten when Wait returns with
			// some left; and looked at again before each wait.
			t, r := s.epoll.one()
			if r == 0 {
				return false
			}
			if try(int(t.slot), r) {
				return true
			}
		}
	})
	if err != nil && err != os.ErrDeadlineExceeded {
		return ErrClosed // the only other way in which waiting on a file fails
	}
	return err
}

// SetDeadline sets the time from which Wait fails. The zero time means never.
func (s *Set) SetDeadline(t time.Time) error {
	if s.epoll.file.SetReadDeadline(t) != nil {
		return ErrClosed
	}
	return nil
}

// Close closes the set. When it returns, no try is running and none will.
func (s *Set) Close() { s.epoll.file.Close() }
