package loop

import (
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/line"
	"github.com/percore/percore/internal/monotime"
)

// A guest is a goroutine that polls a loop once, without waiting, beside the loop's own: the reader
// that is the last of a batch to wait again, just before it parks, and a worker that has nothing
// left to do (see Look). All goroutines that the loop has woken are done by then, so the next
// events are what is needed next. A guest finds them, and wakes their readers, without a switch to
// the loop's goroutine; beside goroutines that compute, that goroutine would first stand behind
// them in the scheduler's queue, and so would the readers after it.
//
//	state     meaning                              leaves by
//	noGuest   no guest polls                       visit: visiting; end: ended
//	visiting  one does, and others do without      leave: noGuest; end: ended
//	ended     the loop's goroutine has returned    (final)
//
// The loop's goroutine doesn't wait for a guest, which may lose its processor at any point, nor a
// guest for it: each has an array and a batch of its own, and the parties that they wake are ready
// for two that poll. The last of the two to leave closes the epoll descriptor.
//
// No event is lost with a guest. The runtime is told by an edge for each event that comes, and
// forgets the edge only if it looks and finds that nothing is left. So either the guest has the
// event, or the loop's goroutine is woken after the event came, and polls until a poll comes back
// short. It is so no matter how many events a guest leaves behind, and whether there are guests at
// all. The wake-up of Submit is the one event that only the loop's goroutine can use up: it is
// level-triggered, and stays until that has read it.
//
// While processors are crowded with goroutines that compute (see [line.Line]), a guest also waits for a
// moment for the next event, and a batch is done without the readers that have lost their processors.
// The loop's goroutine waits so too, if it has served events itself (see standInLine).
//
// A guest runs no foreign code. It leaves events for a callback or a watcher to the loop's goroutine,
// as tasks. Only callbacks that allow for it run on a guest, and only on a worker: a reader may hold
// locks that they need.
type guests struct {
	state atomic.Uint32
	line  line.Line

	caught catch // owned by the guest
}

// lingerTime is how long a guest waits for the next event while processors are crowded: for a client
// that answers at once, and a small part of the 10 ms that goroutines that compute have before the
// next guest's turn.
const lingerTime = 50 * time.Microsecond

const (
	noGuest uint32 = iota
	visiting
	ended
)

// offLoopHandler is a ReadableHandler that may be called on any goroutine that calls [Loop.Look], and
// on two at once.
type offLoopHandler interface {
	ReadableHandler
	OffLoop()
}

// Look polls the loop once, and the next loop of its group, on the caller's goroutine and without
// waiting, unless another goroutine is doing that, and reports whether there was an event. It wakes
// the goroutines that wait. It is for workers that have run out of work (internal/workers): what they
// find can be served without waiting for the loop's goroutine to get a processor. With linger it polls
// this loop only, and waits for an event for a moment: see lingerTime.
//
// Callbacks are left to the loop's goroutine, except those of handlers that have a method OffLoop():
// their OnReadable is called here. So the caller must not hold a lock that they take.
//
// With the strategy Thread it does nothing, nor if l is nil, as for a connection without a loop.
//
// A worker finds events of the connections that it has just served in l again and again. So without the
// next loop, connections there would wait for that loop's goroutine in the meantime.
func (l *Loop) Look(linger bool) (found bool) {
	if l == nil || !l.hosts() {
		return false
	}
	if linger {
		return l.visit(true, (*poller).linger)
	}
	found = l.visit(true, (*poller).glance)
	loops := l.group.loops
	if next := loops[(l.index+1)%len(loops)]; next != l && next.started.Load() {
		found = next.visit(true, (*poller).glance) || found
	}
	return found
}

// hosts reports whether the loop may have guests. With a thread of its own it finds events soon itself.
func (l *Loop) hosts() bool { return l.group.config.Strategy == Nested }

// visitUntilWoken visits the loop for a reader that is about to park on h. As long as the processors are
// crowded it waits a moment for an event, stands in line, and visits the loop again, until an event has
// come for it or for another.
func (l *Loop) visitUntilWoken(h *half) {
	g := &l.guests
	g.line.Suspect(l.readers.began.Load())
	for !l.visit(false, (*poller).glance) && h.state.Load()&waiting != 0 {
		if g.line.Crowded() && (l.visit(false, (*poller).linger) || h.state.Load()&waiting == 0) {
			return
		}
		g.line.RanOut(l.group.served)
		if !g.line.Yield(l.group.served) {
			return
		}
	}
}

// visit polls as a guest, if there is none, and reports whether there was an event. A worker calls the
// callbacks that allow for it.
func (l *Loop) visit(worker bool, poll func(*poller, *eventArray) int) (found bool) {
	g := &l.guests
	if !g.state.CompareAndSwap(noGuest, visiting) {
		return false
	}
	if n := poll(l.poller, &g.caught.events); n > 0 {
		found = true
		l.lookUp(&g.caught, n)
		l.deliverAsGuest(worker)
	}
	l.endVisit()
	return found
}

// endVisit ends a visit. If the loop's goroutine has left in the meantime, the guest is the last.
func (l *Loop) endVisit() {
	if !l.guests.state.CompareAndSwap(visiting, noGuest) {
		l.finish()
	}
}

// end keeps guests away from now on. It reports false if there is one, who will finish the loop.
func (g *guests) end() (alone bool) { return g.state.Swap(ended) != visiting }

// deliverAsGuest is deliver for a guest.
func (l *Loop) deliverAsGuest(worker bool) {
	c := &l.guests.caught
	others := 0
	for i, d := range c.batch {
		c.batch[i] = delivery{} // do not keep a closed descriptor alive
		if !d.fd.deliverAsGuest(d.ready, c.number, worker) {
			others++
		}
	}
	l.readers.dispatched(c.number, others)
	c.batch = c.batch[:0]
}

// deliverAsGuest is onReady for a guest. It reports whether it has woken a reader.
func (f *FD) deliverAsGuest(r Readiness, batch uint32, worker bool) (woken bool) {
	woken = f.wakeWaiters(r, batch)
	// One of those woken may be polling itself.
	f.loop.kick(&f.rd)
	f.loop.kick(&f.wr)
	if worker && r&Readable != 0 {
		if h := f.takeCallback(true); h != nil {
			h.OnReadable(nil)
		}
	}
	f.tellLater(r)
	return woken
}

// batchReaders counts those readers of the loop's last batch of events that have been woken, and
// have not waited again, nor closed their descriptor. The one that brings the count to zero visits
// the loop. The count is a hint: nothing but the time of a poll depends on it. Readers that end, or
// wait for something else, stay counted until the next batch replaces this one: a batch has a
// number, which its readers keep.
//
//	high 32 bits  number of the batch, never 0
//	low 32 bits   readers, and one more until all events of the batch are dispatched
type batchReaders struct {
	word  atomic.Uint64
	began atomic.Int64 // when the last batch did, by monotime
}

// begin begins a batch of so many events, each of which counts for a reader until dispatched knows
// better. It returns the number.
func (b *batchReaders) begin(events int) (number uint32) {
	b.began.Store(monotime.Now())
	for {
		old := b.word.Load()
		number = max(1, uint32(old>>32)+1)
		if b.word.CompareAndSwap(old, uint64(number)<<32|uint64(events+1)) {
			return number
		}
	}
}

// dispatched ends the dispatch of a batch. So many of its events have woken no reader.
func (b *batchReaders) dispatched(number uint32, others int) { b.leave(number, others+1) }

// left returns the count.
func (b *batchReaders) left() uint32 { return uint32(b.word.Load()) }

// leave takes n readers off, and reports whether the batch is done with by that. It is not if there
// has been another one.
func (b *batchReaders) leave(number uint32, n int) (last bool) {
	for {
		old := b.word.Load()
		if number == 0 || uint32(old>>32) != number {
			return false
		}
		checkReaders(uint32(old), n)
		if b.word.CompareAndSwap(old, old-uint64(n)) {
			return uint32(old) == uint32(n)
		}
	}
}

// leaveBatch takes the reader, who holds h, off the count of the batch that has woken it, and reports
// whether it is the last one of it. While processors are crowded, each of them may have been taken from
// a reader of the batch, which is now in line behind goroutines that compute: these are not waited for.
func (h *half) leaveBatch(l *Loop) (last bool) {
	number := h.batch
	if number == 0 {
		return false
	}
	h.batch = 0
	return l.readers.leave(number, 1) || l.guests.line.Crowded() && l.readers.left() <= l.group.processors
}

// served returns how many of the events that were found in the group's loops have been seen to, about:
// the events of readers that did not wait again count when the next batch begins.
func (g *Group) served() (n uint64) {
	for _, l := range g.loops {
		n += l.events.Load() - uint64(l.readers.left())
	}
	return n
}
