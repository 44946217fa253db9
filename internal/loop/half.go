package loop

import (
	"os"
	"sync"
	"sync/atomic"
)

// errTimeout is a call's error once its deadline has passed.
var errTimeout = os.ErrDeadlineExceeded

// half is one direction, reading or writing, of an FD: whether the kernel may have something for it,
// which goroutine waits for that, and until when.
//
// Its state is a word of bits:
//
//	ready                an edge came since the last try: a system call may succeed
//	waiting              a goroutine is parked, or about to be, on the channel in parker
//	hangup               the peer sends nothing more: there is no further edge, and so a
//	                     short read leaves ready on, until the end has been read
//	shortReadUnreliable  a short read does not mean that nothing is left
//	rawInUse             the same, for as long as the user's code has the raw descriptor
//	longCall             a system call is under way that may wait for memory, with the
//	                     socket locked: the other half's calls tell the scheduler
//	noWait               a call fails where it would wait
//	armed                a callback is armed, the handler in FD.callback
//	answered             the peer was sent something since the last event: see direct
//	watchesRoom          the registration includes room to write
//	bits 24 to 31        the number of the Stalls that count the write half's waits
//
// The parties that change it:
//
//	the call under way     ready:   off before each system call, on again after any
//	(holds mu)                      that may have left something behind (see FD.recv)
//	                       waiting: on before parking; off again if it turns out
//	                                that there is no need to
//	                       longCall: on before a long system call, and off after it
//	the loop (an edge)     ready:   on; waiting: off, and then it owes the parked
//	                                goroutine exactly one token
//	                       hangup, shortReadUnreliable: on; answered: off
//	RawControl, RawRead,   rawInUse: on, and off; then shortReadUnreliable and ready: on
//	RawWrite               if the socket is not what it was (see FD.endRaw)
//	Dup                    shortReadUnreliable, ready: on
//	SetNoWait              noWait: on, and off
//	a write                answered: on, while the descriptor is alone on its loop; watchesRoom:
//	                       on, when it first has to wait
//	NotifyReadable         armed: on; ready: off, and on again (see FD.recheck)
//	the party that takes   armed: off, after FD.callback was emptied. This party and
//	the callback           NotifyReadable hold the lock there
//	CountStalls            bits 24 to 31
//	a deadline, Close,     waiting: off, and then they owe the token
//	SetNoWait
//
// So only the party that clears waiting, with a compare-and-swap, decides how the wait ends. A
// goroutine that sees waiting cleared by another party always takes the token from its channel before
// it goes on.
//
// Two orders keep wake-ups from being lost. ready is cleared before the system call, never after it:
// an edge that comes in between sets it again, at the price of a call that finds nothing. And a wait
// is published (waiting set) before closed and the deadline are checked for the last time, while Close
// and the deadline first change those and then check waiting. noWait is in the word itself: a wait is
// published only while it is off.
type half struct {
	mu sync.Mutex // serializes the calls of this direction: held for a whole Read or Write

	// atomic
	state atomic.Uint32

	// written by the party that clears waiting, before it sends the token, and by the holder of mu;
	// that of reading also by Close, which has drained both halves by then
	batch uint32 // of the event that ended the last wait to read; 0: none, or taken off: see batchReaders

	// atomic
	deadline atomic.Int64 // see timers.go

	// written by the holder of mu before it sets waiting; read by the party that clears it. Close
	// writes that of reading as well, once it has drained both halves; the call that drops the last
	// reference reads it.
	parker chan struct{}

	// written by the loop's timers, with their lock held; atomic
	timer atomic.Pointer[timer] // the deadline's entry in the wheel; nil: it isn't there
}

const (
	ready uint32 = 1 << iota
	waiting
	hangup
	shortReadUnreliable
	rawInUse
	longCall
	noWait
	armed
	answered
	watchesRoom
)

// clearReady reports whether a system call may succeed, and clears ready.
func (h *half) clearReady() bool {
	if h.state.Load()&ready == 0 {
		return false
	}
	h.state.And(^ready)
	return true
}

// shortReadReliable reports whether a short read means that nothing is left.
func (h *half) shortReadReliable() bool {
	return h.state.Load()&(shortReadUnreliable|hangup|rawInUse) == 0
}

// setReady says that a system call may succeed without another edge. It also calls a callback that
// was armed since clearReady.
func (h *half) setReady(f *FD) {
	if h.state.Load()&ready == 0 {
		h.state.Or(ready)
	}
	if h != &f.rd {
		return
	}
	if to := f.takeCallback(false); to != nil {
		f.loop.Submit(func() { to.OnReadable(nil) })
	}
}

// signal sets bits, including ready, and wakes a parked goroutine, if there is one, as a member of a
// batch (0: none), and in its turn if by isn't nil. It reports whether it woke one. It is for the
// goroutine that polls the loop.
func (h *half) signal(bits, batch uint32, by *relay) (woken bool) {
	for {
		old := h.state.Load()
		if old&(bits|waiting) == bits {
			return false // nothing new, and no waiter to wake
		}
		if h.state.CompareAndSwap(old, (old|bits)&^(waiting|answered)) {
			if old&waiting == 0 {
				return false
			}
			h.batch = batch
			if by != nil {
				by.wake(h)
			} else {
				h.wakeParked()
			}
			return true
		}
	}
}

// wake is signal for goroutines that don't poll: the waiting goroutine may be the one that polls, and
// then it doesn't wait on its channel.
func (h *half) wake(f *FD, bits uint32) {
	h.signal(bits, 0, nil)
	f.loop.kick(h)
}

// interrupt is for Close and deadlines: it wakes a parked goroutine without saying that anything is
// ready. A woken goroutine finds the reason itself. A callback can't, so interrupt finds it: the
// deadline may have been moved since.
func (h *half) interrupt(f *FD) {
	h.endWait(f)
	if h != &f.rd || h.check(f) == nil {
		return
	}
	if to := f.takeCallback(false); to != nil {
		// The deadline may have been moved since, or the callback replaced. Then there is no error any more,
		// and the call is spurious.
		err := h.check(f)
		f.loop.Submit(func() { to.OnReadable(err) })
	}
}

// endWait wakes the parked goroutine, if there is one.
func (h *half) endWait(f *FD) {
	if h.clearWaiting() {
		h.wakeParked()
		f.loop.kick(h)
	}
}

// clearWaiting clears waiting, and reports whether this call did it.
func (h *half) clearWaiting() bool {
	return h.state.Load()&waiting != 0 && h.state.And(^waiting)&waiting != 0
}

// wakeParked sends the token for the wait that the caller has ended by clearing waiting. It
// doesn't block: the channel is empty, and holds one.
func (h *half) wakeParked() {
	checkOwed(h.parker)
	h.parker <- struct{}{}
}

// check returns why a call must not even try: the descriptor is closed, or the deadline has passed.
func (h *half) check(f *FD) error {
	if f.life.closed() {
		return ErrClosed
	}
	if h.deadline.Load() == expired {
		return errTimeout
	}
	return nil
}

// wait parks the caller, which holds mu, until there is an edge. It fails if the descriptor is
// closed or the deadline passes first. An edge wins over both: available bytes are read. nil may
// come too often; the caller tries again.
func (h *half) wait(f *FD) error {
	if err := h.check(f); err != nil {
		return err
	}
	if h.state.Load()&(ready|noWait) == noWait {
		return ErrWouldWait
	}
	last := h.leaveBatch(f.loop)
	p := getParker(f.loop)
	h.parker = p
	defer func() {
		h.parker = nil // or it would keep a channel that the pool has let go of
		putParker(p)
	}()
	for {
		old := h.state.Load()
		if old&(ready|noWait) != 0 {
			return nil // with noWait the next try fails
		}
		checkNotWaiting(old)
		if h.state.CompareAndSwap(old, old|waiting) {
			break
		}
	}
	if err := h.check(f); err != nil && h.clearWaiting() {
		return err
	}
	f.expose()
	f.loop.lead(f, h)
	if last {
		f.loop.visitUntilWoken(h)
	}
	<-p
	f.loop.relay.pass(h)
	checkNotWaiting(h.state.Load())
	return nil
}

// awaited reports whether a goroutine or a callback waits for an edge.
func (h *half) awaited() bool {
	return h.state.Load()&(waiting|armed) != 0
}

// setDeadline moves the deadline to at, as deadlineOf returned it. Moving it
// later, or away, is one store: the wheel finds out when the entry comes due.
//
// The deadline is stored before timer is read, and the wheel clears timer before it reads the
// deadline: one of the two sees the other's step.
func (h *half) setDeadline(f *FD, at int64) {
	h.deadline.Store(at)
	var act bool
	if at == expired {
		act = h.awaited()
	} else if at > 0 {
		t := h.timer.Load()
		act = t == nil || t.at.Load() > at
	}
	if !act || f.life.incref() != nil { // just closed: Close does all that is left to do
		return
	}
	if at == expired {
		h.interrupt(f)
	} else {
		f.loop.timers.arm(f, h)
	}
	f.decref()
}

// parkers are the channels that goroutines wait on, one for each that is
// waiting and no more: a descriptor that is not read has none. A channel holds
// one token and is empty whenever it is in the pool.
var parkers sync.Pool

func getParker(l *Loop) chan struct{} {
	if p, ok := parkers.Get().(chan struct{}); ok {
		checkParker(p)
		return p
	}
	return l.newParker()
}

func putParker(p chan struct{}) {
	checkParker(p)
	parkers.Put(p)
}
