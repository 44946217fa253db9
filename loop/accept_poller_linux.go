package loop

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// AcceptPoller waits for a fixed number of listening sockets as for one. The goroutines
// that call it are parked in the Go runtime's poller; no loop is involved. All methods are
// safe for concurrent use.
type AcceptPoller struct {
	epoll epoll // immutable; knows the deadline, too

	users users // calls that use the descriptors; added to under mu, while it is open

	mu struct {
		sync.Mutex
		deadline time.Time
		closed   bool
	}
}

// NewAcceptPoller makes an AcceptPoller for non-blocking descriptors, which stay the
// caller's and must not be closed before it. It fails when the process is out of
// descriptors.
func NewAcceptPoller(fds []int) (*AcceptPoller, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p := &AcceptPoller{epoll: e}
	for i, fd := range fds {
		if errno := e.addLevel(fd, token{slot: uint32(i)}); errno != 0 {
			p.Close()
			return nil, fmt.Errorf("loop: can't watch a descriptor: %w", os.NewSyscallError("epoll_ctl", errno))
		}
	}
	return p, nil
}

// Wait waits until a descriptor is readable and calls try with its index (in the
// slice given to NewAcceptPoller) and its readiness, again and again until try
// reports true. [Hangup] says that the socket was shut down. Descriptors that stay
// readable take turns. try must use the readiness up, or report true, and must not call
// Wait; one caller tries at a time, the others queue up.
//
// Wait fails with [ErrClosed] when it is closed and with
// [os.ErrDeadlineExceeded] after the deadline, as soon as try is not running.
func (p *AcceptPoller) Wait(try func(i int, r Readiness) (done bool)) error {
	closed := false
	err := p.epoll.raw.Read(func(uintptr) bool {
		if closed = !p.enter(); closed {
			return true
		}
		defer p.users.Done()
		for {
			// Level-triggered, so nothing is forgotten when Wait returns with
			// some left; and looked at again before each wait.
			t, r := p.epoll.one()
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

// Backoff waits for the given time, ready descriptors or not. It fails as Wait
// does, and some milliseconds later at most.
func (p *AcceptPoller) Backoff(d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := p.failed(); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		time.Sleep(min(left, backoffStep))
	}
}

// backoffStep is how long Backoff sleeps before it looks again. Nothing wakes it, so that Close
// and SetDeadline may be called inside a bubble of testing/synctest and Backoff outside,
// or the other way round.
const backoffStep = 2 * time.Millisecond

// failed returns what Backoff fails with now, if anything.
func (p *AcceptPoller) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.closed:
		return ErrClosed
	case !p.mu.deadline.IsZero() && time.Until(p.mu.deadline) <= 0:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Use calls f, which may use the descriptors: Close waits for it. It fails with
// [ErrClosed] after Close.
func (p *AcceptPoller) Use(f func()) error {
	if !p.enter() {
		return ErrClosed
	}
	defer p.users.Done()
	f()
	return nil
}

// enter begins a use of the descriptors, unless it is closed: os.File's Close
// does not promise to wait for the functions of its RawConn.
func (p *AcceptPoller) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	p.users.Add(1)
	return true
}

// SetDeadline sets the time from which Wait and Backoff fail. The zero time means
// never.
func (p *AcceptPoller) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || p.epoll.file.SetReadDeadline(t) != nil {
		return ErrClosed
	}
	p.mu.deadline = t
	return nil
}

// Close wakes the callers of Wait, which fail with [ErrClosed]. When it returns, no function of
// Wait and Use is running, and none will.
func (p *AcceptPoller) Close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.epoll.file.Close() // wakes the callers of Wait
	p.users.Wait()
}
