package loop

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Set is a fixed number of descriptors that goroutines wait on as on one, parked
// in the Go runtime's poller; no loop is involved. It is what a listener with
// several sockets waits on. All methods are safe for concurrent use.
type Set struct {
	epoll epoll // immutable; knows the deadline, too

	mu struct {
		sync.Mutex
		deadline time.Time
		closed   bool
		changed  chan struct{} // closed when one of these changes; nil: nobody pauses
	}
}

// NewSet makes a set of non-blocking descriptors, which stay the caller's and
// must not be closed before the set. It fails when the process is out of
// descriptors.
func NewSet(fds []int) (*Set, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, err
	}
	s := &Set{epoll: e}
	for i, fd := range fds {
		if errno := e.addLevel(fd, token{slot: uint32(i)}); errno != 0 {
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

// Pause waits for the given time, whatever the descriptors are ready for. It fails
// as Wait does, and as early.
func (s *Set) Pause(d time.Duration) error {
	for end := time.Now().Add(d); ; {
		deadline, changed, err := s.pausing()
		if err != nil {
			return err
		}
		wake, timeout := end, error(nil)
		if !deadline.IsZero() && deadline.Before(end) {
			wake, timeout = deadline, os.ErrDeadlineExceeded
		}
		select {
		case <-time.After(time.Until(wake)):
			return timeout
		case <-changed:
		}
	}
}

// pausing returns the deadline, and a channel that is closed when it is moved or the
// set is closed.
func (s *Set) pausing() (deadline time.Time, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return time.Time{}, nil, ErrClosed
	}
	if s.mu.changed == nil {
		s.mu.changed = make(chan struct{})
	}
	return s.mu.deadline, s.mu.changed, nil
}

// changedLocked wakes those who pause.
func (s *Set) changedLocked() {
	if s.mu.changed != nil {
		close(s.mu.changed)
		s.mu.changed = nil
	}
}

// Use calls f, which may use the descriptors: Close waits for it. It fails with
// [ErrClosed] if the set is closed.
func (s *Set) Use(f func()) error {
	if s.epoll.raw.Control(func(uintptr) { f() }) != nil {
		return ErrClosed
	}
	return nil
}

// SetDeadline sets the time from which Wait and Pause fail. The zero time means
// never.
func (s *Set) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || s.epoll.file.SetReadDeadline(t) != nil {
		return ErrClosed
	}
	s.mu.deadline = t
	s.changedLocked()
	return nil
}

// Close closes the set. When it returns, no try is running and none will.
func (s *Set) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.changedLocked()
	s.mu.Unlock()
	s.epoll.file.Close() // without the lock, since it waits for try
}
