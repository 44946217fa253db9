package loop

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// Set is a fixed number of descriptors that goroutines wait on as on one, parked
// in the Go runtime's poller; no loop is involved. A listener with several
// sockets waits on. All methods are safe for concurrent use.
type Set struct {
	epoll epoll // immutable; knows the deadline, too

	users sync.WaitGroup // calls that use the descriptors; added to under mu, while the set is open

	mu struct {
		sync.Mutex
		deadline time.Time
		closed   bool
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
	closed := false
	err := s.epoll.raw.Read(func(uintptr) bool {
		if closed = !s.enter(); closed {
			return true
		}
		defer s.users.Done()
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
	if closed || err != nil && err != os.ErrDeadlineExceeded {
		return ErrClosed // the only other way in which waiting on a file fails
	}
	return err
}

// Pause waits for the given time, ready descriptors or not. It fails as Wait
// does, and some milliseconds later at most.
func (s *Set) Pause(d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := s.failed(); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		time.Sleep(min(left, pauseStep))
	}
}

// pauseStep is how long Pause sleeps before it looks again. Nothing wakes it, so that Close
// and SetDeadline may be called inside a bubble of testing/synctest and Pause outside,
// or the other way round.
const pauseStep = 2 * time.Millisecond

// failed returns what Pause fails with now, if anything.
func (s *Set) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return ErrClosed
	case !s.mu.deadline.IsZero() && time.Until(s.mu.deadline) <= 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Use calls f, which may use the descriptors: Close waits for it. It fails with
// [ErrClosed] if the set is closed.
func (s *Set) Use(f func()) error {
	if !s.enter() {
		return ErrClosed
	}
	defer s.users.Done()
	f()
	return nil
}

// enter begins a use of the descriptors, unless the set is closed: os.File's Close
// does not promise to wait for the functions of its RawConn.
func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.users.Add(1)
	return true
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
	return nil
}

// Close closes the set. When it returns, no function of Wait and Use is running, and
// none will.
func (s *Set) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.epoll.file.Close() // wakes the callers of Wait
	s.users.Wait()
}
