package loop

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// AcceptPoller waits for a fixed number of listening sockets as for one. The goroutines that call it
// are parked in the Go runtime's poller; no loop is involved. All methods are safe for concurrent use.
type AcceptPoller struct {
	epoll epoll // immutable; knows the deadline, too

	using sync.RWMutex // read-locked while a call uses the descriptors

	// atomic; written under mu
	closed atomic.Bool
	resets atomic.Uint64 // how often the descriptor was given the user's deadline

	mu struct {
		sync.Mutex
		deadline time.Time
		at       int64                      // deadline, as monotime has it; 0: none
		kicked   bool                       // the descriptor's deadline is Wake's
		sleepers map[chan struct{}]struct{} // calls of Backoff; each holds one token
	}
}

// A Gate is asked before each look at the descriptors whether to look.
type Gate func() GateState

// GateState is the answer of a [Gate].
type GateState uint8

const (
	GateOpen GateState = iota // look at the descriptors
	GateShut                  // leave them alone until the next Wake
	GateDone                  // there is nothing more to wait for
)

// NewAcceptPoller makes an AcceptPoller for non-blocking descriptors, which stay the caller's and
// must not be closed before it. It fails when the process is out of descriptors.
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

// Wait waits until a descriptor is readable and calls try with its index (in the slice given to
// NewAcceptPoller) and its readiness, again and again until try reports true. [Hangup] says that the
// socket was shut down. Descriptors that stay readable take turns. try must use the readiness up, or
// report true, and must not call Wait; one caller tries at a time, the others queue up.
//
// gate is asked first, after each try that is not done, and after each [AcceptPoller.Wake], and must
// not block. While it is shut, connections stay where they are. A gate that has reported [GateShut] is
// asked again only after a Wake, or earlier: so a change that opens it must be made before the call of
// Wake. nil is a gate that is always open.
//
// Wait fails with [ErrClosed] when it is closed and with [os.ErrDeadlineExceeded] after the deadline,
// as soon as try is not running.
func (p *AcceptPoller) Wait(gate Gate, try func(i int, r Readiness) (done bool)) error {
	for {
		resets := p.resets.Load()
		err := p.wait(gate, try)
		if err != os.ErrDeadlineExceeded || !p.unkick(resets) {
			return err
		}
	}
}

func (p *AcceptPoller) wait(gate Gate, try func(i int, r Readiness) (done bool)) error {
	w := acceptWaits.Get().(*acceptWait)
	w.poller, w.gate, w.try = p, gate, try
	err := p.epoll.raw.Read(w.read)
	if w.closed || err != nil && err != os.ErrDeadlineExceeded {
		err = ErrClosed // the only other way in which waiting on a file fails
	}
	*w = acceptWait{read: w.read}
	acceptWaits.Put(w)
	return err
}

// acceptWait is a call of wait. It is used again, as the function that calls it is likely to be.
type acceptWait struct {
	poller *AcceptPoller
	gate   Gate
	try    func(i int, r Readiness) (done bool)
	closed bool
	read   func(uintptr) (done bool) // the method look
}

var acceptWaits = sync.Pool{New: func() any {
	w := new(acceptWait)
	w.read = w.look
	return w
}}

// look tries for as long as descriptors are readable.
func (w *acceptWait) look(uintptr) (done bool) {
	p := w.poller
	if w.closed = !p.enter(); w.closed {
		return true
	}
	defer p.using.RUnlock()
	for {
		if w.gate != nil {
			switch w.gate() {
			case GateDone:
				return true
			case GateShut:
				return false
			}
		}
		// Level-triggered, so nothing is forgotten when Wait returns with
		// some left; and looked at again before each wait.
		t, r := p.epoll.one()
		if r == 0 {
			return false
		}
		if w.try(int(t.slot), r) {
			return true
		}
	}
}

// Wake makes the callers of Wait ask their gates again. It doesn't block.
//
// It makes no system call: it sets a deadline in the past, which the goroutine that it wakes sets back.
func (p *AcceptPoller) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return
	}
	p.mu.kicked = true
	_ = p.epoll.file.SetReadDeadline(monotime.LongAgo)
}

// unkick gives the descriptor the user's deadline back if it has Wake's. It reports whether a wait that
// timed out, and that began after the given number of resets, is to go on.
//
// Only one goroutine at a time waits, because of the lock of os.File's RawConn, and the runtime
// lets a goroutine that it has woken sleep on if the deadline is taken back before the goroutine
// runs. So the deadline of a Wake must not be taken back while another goroutine sleeps that has
// asked its gate before. There is none if no deadline has been set since the wait began: from the
// end of the wait on, the descriptor's has passed, by whichever deadline, and no wait begins.
// Otherwise the Wake is left to the next wait, which ends at once.
func (p *AcceptPoller) unkick(before uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Duration(p.mu.at - monotime.Now())
	if p.mu.kicked && p.resets.Load() == before {
		p.mu.kicked = false
		var deadline time.Time
		if p.mu.at != 0 {
			// From the distance: the deadline may have been set on the other side of a bubble's border.
			deadline = time.Now().Add(left)
		}
		_ = p.setLocked(deadline)
	}
	return p.resets.Load() != before && (p.mu.at == 0 || left > 0)
}

// setLocked gives the descriptor the user's deadline. It counts afterwards: a wait that begins in
// between, and that the deadline before this one ends, is not taken for one that began later.
func (p *AcceptPoller) setLocked(t time.Time) error {
	defer p.resets.Add(1)
	return p.epoll.file.SetReadDeadline(t)
}

// Backoff waits for the given time, ready descriptors or not, or until enough reports true, which is
// asked first, and after each [AcceptPoller.Retry]. It fails as Wait does.
//
// A Wait behind a gate would not do: one caller at a time asks its gate, and the one that a Wake has
// woken may be back before the others. So a call that waits for something of its own could wait
// forever.
func (p *AcceptPoller) Backoff(d time.Duration, enough func() bool) error {
	wake := p.addSleeper()
	defer p.removeSleeper(wake)
	for end := time.Now().Add(d); ; {
		left, err := p.backoffLeft(end)
		if err != nil || left <= 0 || enough() {
			return err
		}
		if wake == nil {
			time.Sleep(min(left, backoffStep))
			continue
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
	}
}

// Retry makes the callers of Backoff ask whether it is enough. It doesn't block.
func (p *AcceptPoller) Retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeSleepersLocked()
}

// backoffStep is how long Backoff sleeps in a bubble of testing/synctest before it looks again. A
// goroutine outside could not wake it: only goroutines of the bubble may use a channel that was made
// there.
const backoffStep = 2 * time.Millisecond

// addSleeper returns a channel that gets a token whenever Backoff has to look again, or nil in a
// bubble.
func (p *AcceptPoller) addSleeper() chan struct{} {
	if monotime.InBubble() {
		return nil
	}
	wake := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.sleepers == nil {
		p.mu.sleepers = make(map[chan struct{}]struct{})
	}
	p.mu.sleepers[wake] = struct{}{}
	return wake
}

func (p *AcceptPoller) removeSleeper(wake chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.sleepers, wake)
}

func (p *AcceptPoller) wakeSleepersLocked() {
	for wake := range p.mu.sleepers {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// backoffLeft returns how long Backoff may sleep: until its end or the deadline. It returns what Backoff
// fails with now, if anything.
func (p *AcceptPoller) backoffLeft(end time.Time) (left time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = time.Until(end)
	if p.closed.Load() {
		return 0, ErrClosed
	}
	if !p.mu.deadline.IsZero() {
		untilDeadline := time.Until(p.mu.deadline)
		if untilDeadline <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		left = min(left, untilDeadline)
	}
	return left, nil
}

// Use calls f, which may use the descriptors: Close waits for it. It fails with
// [ErrClosed] after Close.
func (p *AcceptPoller) Use(f func()) error {
	if !p.enter() {
		return ErrClosed
	}
	defer p.using.RUnlock()
	f()
	return nil
}

// enter begins a use of the descriptors, unless it is closed: os.File's Close does not promise to wait
// for the functions of its RawConn.
func (p *AcceptPoller) enter() bool {
	if !p.using.TryRLock() { // Close has the lock, or waits for it
		return false
	}
	if p.closed.Load() {
		p.using.RUnlock()
		return false
	}
	return true
}

// SetDeadline sets the time from which Wait and Backoff fail. The zero time means never.
func (p *AcceptPoller) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return ErrClosed
	}
	p.mu.deadline, p.mu.at = t, 0
	if !t.IsZero() {
		p.mu.at, _ = monotime.Of(t)
	}
	p.wakeSleepersLocked()
	if !p.mu.kicked && p.setLocked(t) != nil { // or unkick sets it, after the waiter that Wake is yet to wake
		return ErrClosed
	}
	return nil
}

// Close wakes the callers of Wait, which fail with [ErrClosed]. When it returns, no function of
// Wait and Use is running, and none will.
func (p *AcceptPoller) Close() {
	p.mu.Lock()
	p.closed.Store(true)
	p.wakeSleepersLocked()
	p.mu.Unlock()
	p.epoll.file.Close() // wakes the callers of Wait
	p.using.Lock()       // waits for the functions
	defer p.using.Unlock()
}
