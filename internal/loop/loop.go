package loop

import (
	"context"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/internal/invariants"
)

// Readiness is the content of an event about a descriptor.
//
// Events may be spurious: a descriptor may turn out not to be ready, because another call used it up in
// between. Events are edges: one is delivered when something changes, and not again while it stays so.
type Readiness uint8

const (
	Readable Readiness = 1 << iota // data, a connection to accept, or the end
	Writable                       // room to write, or an error
	Hangup                         // the peer will send nothing more
	Urgent                         // urgent (out-of-band) data: a short read need not mean that all was read
)

// token names a registration: a slot of the loop's table, and the registration's generation, its
// number among all registrations of the loop. The table has the descriptor in the slot, or nil if the
// slot is free, and the descriptor has its token.
//
//	slot  generation    meaning of an event
//	f     f's           for f
//	f     another       for a descriptor that is gone: dropped
//	nil   any           the same
//
// Generations wrap after 2^32 registrations, far more than can be made while one batch of events
// (polled, not yet dispatched) outlives its registration.
type token struct{ slot, gen uint32 }

// Loop waits until descriptors registered with it are ready, and wakes the goroutines that wait for
// them. Its methods are safe for concurrent use unless they say otherwise.
type Loop struct {
	// immutable
	group *Group
	index int

	// immutable once the loop has started
	poller *poller
	timers timers
	owner  ownership
	labels context.Context // see profilerLabels
	// The methods pass and passLed as values, made once: a wait allocates nothing.
	ownPass, ledPass func(uintptr) (done bool)

	// owned by the goroutine that polls: see ownership
	caught catch
	sole   *FD // the descriptor of the last poll's only event, if that called no callback

	guests guests
	relay  relay
	direct direct

	// owned by the loop's goroutine
	running  []func() // the tasks that are being run; empty between passes
	deferred []func() // functions of Defer, for the end of the poll under way
	stopping bool     // set by the task that stop submits
	watched  bool     // a watcher has been called since the last wait

	// atomic
	wakeups, events atomic.Uint64
	readers         batchReaders
	registered      atomic.Uint64
	descriptors     atomic.Int64
	started         atomic.Bool // start has succeeded
	dispatching     atomic.Bool // in a checking build: see checkDispatch
	calls           struct {    // of callbacks and tasks, written by the loop's goroutine: see Counts
		began         atomic.Int64 // when the first of this pass began; 0: there was none
		time, longest atomic.Int64
		slow          atomic.Uint64
	}

	starting sync.Mutex // held by start

	slots struct {
		sync.Mutex
		table []*FD
		free  []uint32 // indexes into table
	}

	tasks struct {
		sync.Mutex
		queue []func()
		woken atomic.Bool // the eventfd was written and the queue has not been taken since
		ended bool        // the loop has returned; the eventfd is closed, or about to be
	}
}

// catch is what one poll has found.
type catch struct {
	events eventArray
	batch  []delivery // the events, looked up
	number uint32     // of the batch: see batchReaders
}

// delivery is an event whose descriptor has been looked up.
type delivery struct {
	fd    *FD
	ready Readiness
}

// newLoop makes a loop that has not started.
func newLoop(g *Group, index int) *Loop {
	l := &Loop{group: g, index: index}
	l.ownPass, l.ledPass = l.pass, l.passLed
	return l
}

// start makes sure that the loop runs. It fails with [ErrStopped], and when the
// process is out of descriptors.
func (l *Loop) start() error {
	if l.started.Load() {
		return nil
	}
	if !l.group.Retain() { // so that the group does not end in between, without this loop
		return ErrStopped
	}
	defer l.group.Release()
	l.starting.Lock()
	defer l.starting.Unlock()
	if l.started.Load() {
		return nil
	}
	var err error
	outside(func() { err = l.begin() })
	return err
}

// begin is start for its first caller, outside of any bubble.
func (l *Loop) begin() error {
	p, err := newPoller()
	if err != nil {
		return err
	}
	l.poller = p
	l.owner.resume = make(chan struct{}, 1)
	l.timers.init(l)
	l.labels = l.profilerLabels()
	l.group.running.Add(1)
	l.started.Store(true)
	go l.run(false)
	return nil
}

// Descriptors returns how many descriptors are registered with the loop now.
func (l *Loop) Descriptors() int { return int(l.descriptors.Load()) }

// allocSlot puts f into a free slot, gives it its token, and takes a reference to the group.
func (l *Loop) allocSlot(f *FD) error {
	if err := l.start(); err != nil {
		return err
	}
	if !l.group.Retain() {
		return ErrStopped
	}
	s := &l.slots
	s.Lock()
	defer s.Unlock()
	l.descriptors.Add(1)
	f.token.gen = uint32(l.registered.Add(1))
	if n := len(s.free); n > 0 {
		f.token.slot = s.free[n-1]
		s.free = s.free[:n-1]
		checkAlloc(s.table, f.token.slot)
		s.table[f.token.slot] = f
		return nil
	}
	f.token.slot = uint32(len(s.table))
	s.table = append(s.table, f)
	return nil
}

// freeSlot frees f's slot.
func (l *Loop) freeSlot(f *FD) {
	s := &l.slots
	s.Lock()
	defer s.Unlock()
	l.descriptors.Add(-1)
	checkFree(s.table, s.free, f)
	s.table[f.token.slot] = nil
	s.free = append(s.free, f.token.slot)
}

// Submit runs task on the loop's goroutine, as the public Submit says. A loop that has never had a
// descriptor starts for the task; if it can't, the group's first loop runs the task.
func (l *Loop) Submit(task func()) {
	switch err := l.start(); {
	case err == ErrStopped:
		return
	case err != nil:
		l.group.loops[0].Submit(task)
		return
	}
	l.tasks.Lock()
	defer l.tasks.Unlock()
	if l.tasks.ended {
		return
	}
	l.tasks.queue = append(l.tasks.queue, task)
	if !l.tasks.woken.Load() {
		l.tasks.woken.Store(true)
		l.poller.wake() // under the lock, so that the eventfd is still ours
		l.ensurePolled()
	}
}

// stop makes run return once the tasks submitted before it have run.
func (l *Loop) stop() { l.Submit(func() { l.stopping = true }) }

// run is the loop's goroutine. If a callback or a task ends it (runtime.Goexit, for example in
// testing.T's FailNow), another goroutine goes on where it was, resumed.
func (l *Loop) run(resumed bool) {
	ended := false
	defer func() {
		if !ended {
			go l.run(true)
		}
	}()
	if l.group.config.Pin {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its affinity with it
		pinThread(l.index)
	}
	pprof.SetGoroutineLabels(l.labels)
	if resumed {
		l.endCalls()
		l.deliver()
		l.runQueue()
		for !l.stopping && l.poll() {
			// Don't wait: the goroutine before may have taken the edge that says there is more.
		}
	}
	for !l.stopping {
		if l.group.config.Strategy == Thread {
			l.poller.waitBlocking(l.ownPass)
			continue
		}
		l.poller.waitNested(l.ownPass)
		if !l.stopping {
			<-l.owner.resume // pass has released the polling
		}
	}
	l.timers.stop()
	l.tasks.Lock()
	l.tasks.ended = true
	l.tasks.queue = nil
	l.tasks.Unlock()
	if l.guests.end() {
		l.finish()
	}
	ended = true
}

// finish gives back what the loop holds, after the last poll.
func (l *Loop) finish() {
	l.poller.close()
	l.group.loopEnded()
}

// pass is what the loop's goroutine does each time it is woken: it polls, dispatches and runs tasks
// until nothing is left. It reports whether to stop polling.
//
// The last poll must come back short. Under Nested the runtime's poller has been told once, by an
// edge, that this loop's epoll descriptor is readable; only a later event raises a new edge. An event
// that is left behind would wait until then.
func (l *Loop) pass(uintptr) (done bool) {
	l.wakeups.Add(1)
	for !l.stopping {
		if l.poll() || l.standInLine() {
			continue
		}
		f := l.sole
		l.sole = nil // do not keep a closed descriptor alive
		return l.releasePoll(f)
	}
	return true
}

// poll takes one batch of events from the kernel, dispatches it, and runs the tasks submitted so far.
// It reports whether there may be more to do at once.
func (l *Loop) poll() (more bool) {
	checkOwner(&l.owner, ownedByLoop)
	n, full := l.poller.poll(&l.caught.events)
	l.dispatch(n)
	ran := l.runTasks()
	l.runDeferred()
	l.endCalls()
	return ran || full || len(l.deferred) > 0
}

// standInLine is for a pass that has called watchers, which serve events on the loop's goroutine, and
// has nothing left. If other goroutines compute, the loop's goroutine looks for the next event itself,
// as a guest does, instead of waiting until the scheduler finds it. It reports whether to poll once
// more.
func (l *Loop) standInLine() (again bool) {
	if !l.watched || !l.hosts() {
		return false
	}
	l.watched = false
	g := &l.guests
	if g.line.Crowded() {
		if n := l.poller.linger(&l.caught.events); n > 0 {
			l.dispatch(n)
			return true
		}
	}
	g.line.RanOut(l.group.served)
	return g.line.Yield(l.group.served)
}

// Retain takes a reference to the loop's group, so that Submit works until Release.
func (l *Loop) Retain() bool { return l.group.Retain() }

// Release gives up a reference taken by Retain.
func (l *Loop) Release() { l.group.Release() }

// Defer runs f once the loop has handled its present events and tasks, for code on the loop's goroutine.
// It costs no wake-up. A function that f defers runs after the next poll, which then does not wait.
func (l *Loop) Defer(f func()) { l.deferred = append(l.deferred, f) }

func (l *Loop) runDeferred() {
	for range len(l.deferred) {
		f := l.deferred[0]
		left := copy(l.deferred, l.deferred[1:]) // first, since f may not return (runtime.Goexit)
		l.deferred[left] = nil
		l.deferred = l.deferred[:left]
		l.beginCalls()
		f()
	}
}

// dispatch passes the first n polled events on.
func (l *Loop) dispatch(n int) {
	if invariants.Enabled {
		checkDispatch(l)
		defer l.dispatching.Store(false)
	}
	l.sole = nil
	if n == 0 {
		return
	}
	if l.lookUp(&l.caught, n) && l.onLoop() {
		l.poller.awake()
	}
	l.deliver()
}

// lookUp makes a batch of the first n polled events. It looks up all of them under one lock, and makes
// no calls while it holds the lock: a callback may register or close a descriptor. It reports whether
// Submit has woken the loop.
func (l *Loop) lookUp(c *catch, n int) (woken bool) {
	found := uint64(0)
	l.slots.Lock()
	for i := range n {
		t, ready := c.events.event(i)
		if t == wakeToken {
			woken = true
			continue
		}
		found++
		if f := l.slots.table[t.slot]; f != nil && f.token.gen == t.gen {
			c.batch = append(c.batch, delivery{f, ready})
		}
	}
	l.slots.Unlock()
	l.events.Add(found)
	c.number = 0
	if l.descriptors.Load() > 1 && l.hosts() {
		c.number = l.readers.begin(len(c.batch))
	}
	return woken
}

// deliver passes the events of the batch to their descriptors. If a callback did not return, the next
// call goes on behind it.
func (l *Loop) deliver() {
	others := 0
	c := &l.caught
	for i, d := range c.batch {
		if d.fd == nil {
			continue
		}
		c.batch[i] = delivery{} // do not keep a closed descriptor alive
		woken, called := d.fd.onReady(d.ready, c.number)
		if !woken {
			others++
		}
		// After a callback the next one is armed soon. If polling were already released, that would
		// wake the loop's goroutine only to let it wait again: a switch for each event.
		if len(c.batch) == 1 && !called {
			l.sole = d.fd
		}
	}
	l.readers.dispatched(c.number, others)
	c.number = 0 // or run may come back here for the rest of a finished batch
	c.batch = c.batch[:0]
}

// onLoop tells the goroutine that polls whether it is the loop's own.
func (l *Loop) onLoop() bool { return l.owner.state.Load() == ownedByLoop }

// runTasks runs the tasks submitted until now and reports whether there were any. Tasks submitted by
// tasks run after the next poll, so that events get their turn in between.
func (l *Loop) runTasks() bool {
	l.tasks.Lock()
	l.running, l.tasks.queue = l.tasks.queue, l.running
	l.tasks.woken.Store(false)
	l.tasks.Unlock()
	return l.runQueue()
}

// runQueue runs the tasks in running, and leaves an empty array there for the next ones. If a task did
// not return, the next call goes on behind it.
func (l *Loop) runQueue() bool {
	for i, task := range l.running {
		if task != nil {
			l.running[i] = nil
			l.beginCalls()
			task()
		}
	}
	ran := len(l.running) > 0
	if cap(l.running) <= taskQueueKept { // a burst's large array is not kept
		l.running = l.running[:0]
	} else {
		l.running = nil
	}
	return ran
}

// taskQueueKept is the largest task queue that is reused, in tasks: 8 KiB.
const taskQueueKept = 1024
