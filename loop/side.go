package loop

import (
	"os"
	"sync"
	"sync/atomic"
)

// errTimeout is a call's error once its deadline has passed.
var errTimeout = os.ErrDeadlineExceeded

// side is one direction, reading or writing, of an FD: whether the kernel may
// have something for it, and the goroutine that waits for that, and until when.
//
// Its state is a word of bits:
//
//	ready      an edge came since the last try: a system call may succeed
//	waiting    a goroutine is parked, or about to be, on the channel in parker
//	hangup     the peer sends nothing more: there is no further edge, and so a
//	           short read leaves ready on, until the end has been read
//	speculate  a short read does not mean that nothing is left
//	lent       the same, for as long as the user's code has the raw descriptor
//
// The parties that change it:
//
//	the call under way     ready:  off before each system call, on again after any
//	(holds mu)                     that may have left something behind (see FD.read)
//	                       waiting: on before parking; off again if it turns out
//	                               that there is no need to
//	the loop (an edge)     ready: on; waiting: off, and then it owes the parked
//	                       goroutine exactly one token; hangup, speculate: on
//	RawControl, RawRead,   lent: on, and off; then speculate and ready: on if the socket
//	RawWrite               is not what it was (see FD.takeStock)
//	Dup                    speculate, ready: on
//	NotifyReadable         ready: off, and on again (see FD.recheck)
//	a deadline, Close      waiting: off, and then they owe the token
//
// So the party that clears waiting, by a compare-and-swap, decides alone how the wait
// ends, and a goroutine that sees waiting cleared by another always takes the token
// from its channel before it goes on.
//
// Two orders keep wake-ups from being lost. ready is cleared before the system
// call, never after it: an edge that comes in between sets it again, at the
// price of a call that finds nothing. And a wait is published (waiting set)
// before closed and the deadline are looked at for the last time, while Close
// and the deadline change those first and look for waiting after.
type side struct {
	mu sync.Mutex // serializes the calls of this direction: held for a whole Read or Write

	// atomic
	state    atomic.Uint32
	deadline atomic.Int64 // see timers.go
	callback atomic.Pointer[ReadableHandler]

	// written by the holder of mu before it sets waiting; read by the party that clears it.
	// Reading's is Close's as well, which has drained both sides by then; read by the call that
	// drops the last reference.
	parker chan struct{}

	// guarded by the loop's timers, except timer.at, which is atomic: when the timer
	// is due, 0 if it isn't in the wheel
	timer timer
}

const (
	ready uint32 = 1 << iota
	waiting
	hangup
	speculate
	lent
)

// take reports whether a system call may succeed, and uses the news up.
func (s *side) take() bool {
	if s.state.Load()&ready == 0 {
		return false
	}
	s.state.And(^ready)
	return true
}

// trusted reports whether a read that returned less than it asked for has used up all
// there was.
func (s *side) trusted() bool { return s.state.Load()&(speculate|hangup|lent) == 0 }

// give says that a system call may succeed without another edge. It tells a callback, too, that was
// armed since take.
func (s *side) give(f *FD) {
	if s.state.Load()&ready == 0 {
		s.state.Or(ready)
	}
	if h := s.takeCallback(); h != nil {
		f.loop.Submit(func() { h.OnReadable(nil) })
	}
}

// signal sets bits, ready among them, and wakes a parked goroutine. It is for the goroutine that
// polls the loop.
func (s *side) signal(bits uint32) {
	for {
		old := s.state.Load()
		if old&(bits|waiting) == bits {
			return // nothing new, and no waiter to wake
		}
		if s.state.CompareAndSwap(old, (old|bits)&^waiting) {
			if old&waiting != 0 {
				s.parker <- struct{}{}
			}
			return
		}
	}
}

// wake is signal for goroutines that don't poll: the goroutine that waits may be the one
// that does, and then it is not on its channel.
func (s *side) wake(f *FD, bits uint32) {
	s.signal(bits)
	f.loop.kick(s)
}

// takeCallback disarms the callback and returns it, or nil if there is none (any
// more). Its receiver calls it, on the loop.
func (s *side) takeCallback() ReadableHandler {
	if s.callback.Load() == nil {
		return nil
	}
	if h := s.callback.Swap(nil); h != nil {
		return *h
	}
	return nil
}

// interrupt is for Close and deadlines: it wakes a parked goroutine without
// saying that anything is ready. A woken goroutine looks for the reason itself;
// for a callback, which can't, that is done here: the deadline may have been
// moved since.
func (s *side) interrupt(f *FD) {
	if s.unpublish() {
		s.parker <- struct{}{}
		f.loop.kick(s)
	}
	for {
		h := s.callback.Load()
		if h == nil {
			return
		}
		err := s.check(f)
		if err == nil {
			return
		}
		if s.callback.CompareAndSwap(h, nil) {
			f.loop.Submit(func() { (*h).OnReadable(err) })
			return
		}
	}
}

// unpublish clears waiting and reports whether it was this call that did.
func (s *side) unpublish() bool {
	for {
		old := s.state.Load()
		if old&waiting == 0 {
			return false
		}
		if s.state.CompareAndSwap(old, old&^waiting) {
			return true
		}
	}
}

// check returns why a call must not even try: the descriptor is closed, or the
// deadline has passed.
func (s *side) check(f *FD) error {
	if f.closed() {
		return ErrClosed
	}
	if s.deadline.Load() == expired {
		return errTimeout
	}
	return nil
}

// wait parks the caller, which holds mu, until there is an edge. It fails if the descriptor is
// closed or the deadline passes first. An edge wins over both: available bytes are read. nil may
// come too often; the caller tries again.
func (s *side) wait(f *FD) error {
	if err := s.check(f); err != nil {
		return err
	}
	p := getParker(f.loop)
	s.parker = p
	defer func() {
		s.parker = nil // or it would keep a channel that the pool has let go of
		putParker(p)
	}()
	for {
		old := s.state.Load()
		if old&ready != 0 {
			return nil
		}
		if s.state.CompareAndSwap(old, old|waiting) {
			break
		}
	}
	if err := s.check(f); err != nil && s.unpublish() {
		return err
	}
	f.loop.lead(f, s)
	<-p
	return nil
}

// awaited reports whether a goroutine or a callback waits for an edge.
func (s *side) awaited() bool {
	return s.state.Load()&waiting != 0 || s.callback.Load() != nil
}

// setDeadline moves the deadline to at, as deadlineOf returned it. Moving it
// later, or away, is one store: the wheel finds out when the entry comes due.
//
// The deadline is stored before timer.at is read, and the wheel clears timer.at
// before it reads the deadline: one of the two sees the other's step.
func (s *side) setDeadline(f *FD, at int64) {
	s.deadline.Store(at)
	var act bool
	if at == expired {
		act = s.awaited()
	} else if at > 0 {
		armed := s.timer.at.Load()
		act = armed == 0 || armed > at
	}
	if !act || f.incref() != nil { // closed meanwhile: Close does all that is left to do
		return
	}
	if at == expired {
		s.interrupt(f)
	} else {
		f.loop.timers.arm(s)
	}
	f.decref()
}

// parkers are the channels that goroutines wait on, one for each that is
// waiting and no more: a descriptor that is not read has none. A channel holds
// one token and is empty whenever it is in the pool.
var parkers sync.Pool

func getParker(l *Loop) chan struct{} {
	if p, ok := parkers.Get().(chan struct{}); ok {
		return p
	}
	return l.newParker()
}

func putParker(p chan struct{}) { parkers.Put(p) }
