package loop

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/monotime"
)

// direct is for direct waits: a worker of a server that has answered, and has nothing else to do,
// blocks its thread in poll(2) on the socket of the loop's only descriptor. The client's next request
// is to be expected soon. Through the epoll instance and the runtime's poller, the request would wake
// another thread, which would switch to the loop's goroutine, and that would wake the worker.
//
// Meanwhile, the epoll instance doesn't report the descriptor: it is masked.
//
//	masked  waiter  meaning                                    leaves by
//	nil     nil     the epoll instance reports all events      begin: f, f
//	f       f       a worker polls f's socket, or is about     end: f, nil; watchWrites: nil, f
//	                to, or has found its event
//	f       nil     no goroutine waits for f                   begin: f, f; expose, watchWrites, forget:
//	                                                           nil, nil
//	nil     f       both report events, which may be spurious  end: nil, nil
//
// No event is lost. A party that waits for f says so first (waiting, armed, a watcher), and then calls
// expose, which leaves f masked if there is a waiter. The waiter leaves first, and then looks for
// parties that wait, for which it calls expose. When the kernel unmasks a descriptor, it looks at it
// again, and its readiness counts as an edge. poll(2) reports what there is, no matter since when.
//
// The scheduler takes the processor of a blocked thread away only after some time, up to 10 ms. So
// direct waits take half of the processors at most, and none on a single one. After waits that were
// long, or without an event, the next ones are not direct: see learn.
type direct struct {
	masked atomic.Pointer[FD] // written with mu held
	waiter atomic.Pointer[FD] // written with mu held

	mu     sync.Mutex
	misses int // direct waits in a row that were not worth it
	skip   int // how many of the next waits are not direct

	// owned by the waiter
	found Readiness
	soon  bool // it was found soon
}

const (
	// directTime is the longest direct wait. The kernel's timer tick comes earlier as a rule, which
	// makes the timer of the wait cheap.
	directTime = 10 * time.Millisecond

	// soonTime is how soon an event must come for a direct wait to be worth it.
	soonTime = time.Millisecond

	// missesMax limits how many waits are not direct after a miss: 2 after the first, 64 after the 6th
	// in a row.
	missesMax = 6
)

// directWaiters counts the goroutines of the process that wait directly.
var directWaiters atomic.Int32

// answer notes that the peer of f, which is alone on its loop, was sent something.
func (f *FD) answer() {
	if f.rd.state.Load()&answered == 0 && f.loop.descriptors.Load() == 1 {
		f.rd.state.Or(answered)
	}
}

// MayWaitDirectly reports whether BeginDirect may report true. It is cheap.
//
// Something must have been written since the last event. So a worker that has woken a goroutine does
// not keep it from its processor, and a condition that lasts, such as an unread error, ends one direct
// wait at most.
func (f *FD) MayWaitDirectly() bool {
	return f.rd.state.Load()&(answered|hangup|watchesRoom) == answered && f.loop.descriptors.Load() == 1 && f.loop.hosts() &&
		features.DirectWait.On()
}

// BeginDirect begins a direct wait, for a worker that has armed a callback on f, and reports whether it
// did. The worker calls WaitDirectly then, or doesn't, and EndDirect, soon.
func (f *FD) BeginDirect() bool {
	if !f.MayWaitDirectly() || f.life.incref() != nil {
		return false
	}
	if directWaiters.Add(1) <= int32(f.loop.group.processors/2) && f.loop.direct.begin(f) {
		return true
	}
	directWaiters.Add(-1)
	f.decref()
	return false
}

func (d *direct) begin(f *FD) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.skip > 0 && !invariants.Enabled:
		d.skip--
		return false
	case d.waiter.Load() != nil, f.rd.state.Load()&watchesRoom != 0:
		return false
	case d.masked.Load() == nil:
		if f.loop.poller.change(int(f.sysfd), f.token, toMasked) != 0 {
			return false
		}
		d.masked.Store(f)
	case d.masked.Load() != f: // a descriptor that is being closed
		return false
	}
	d.found, d.soon = 0, false
	d.waiter.Store(f)
	return true
}

// WaitDirectly blocks its thread until there is an event for f, and reports whether there is. It gives
// up after directTime, and when f is closed or the loop gets a task.
func (f *FD) WaitDirectly() bool {
	d := &f.loop.direct
	began := monotime.Now()
	for again := true; again && f.rd.state.Load()&armed != 0 && !f.life.closed(); {
		d.found, again = f.loop.poller.sleep(int(f.sysfd))
	}
	d.soon = monotime.Now()-began < int64(soonTime)
	return d.found != 0
}

// EndDirect ends the direct wait. If there was an event, it wakes the goroutines that wait for it, and
// calls the callback, as Look does.
func (f *FD) EndDirect() {
	l := f.loop
	if found := l.direct.end(); found != 0 {
		l.wakeups.Add(1)
		l.events.Add(1)
		f.deliverAsGuest(found, 0, true)
	}
	directWaiters.Add(-1)
	if f.awaited() {
		f.expose()
	}
	f.decref()
}

func (d *direct) end() (found Readiness) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.learn(d.found != 0 && d.soon)
	found = d.found
	d.waiter.Store(nil)
	return found
}

// learn decides about the next waits.
func (d *direct) learn(hit bool) {
	if hit {
		d.misses = 0
		return
	}
	d.misses = min(d.misses+1, missesMax)
	d.skip = 1 << d.misses
}

// expose makes the epoll instance report f again, if it is masked and no worker waits for it directly.
func (f *FD) expose() {
	d := &f.loop.direct
	if d.masked.Load() != f {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.masked.Load() != f || d.waiter.Load() != nil:
	case f.loop.poller.change(int(f.sysfd), f.token, toReads) == 0:
		d.masked.Store(nil)
	default:
		f.loop.Submit(f.expose) // again and again, until it succeeds
	}
}

// watchWrites extends the registration of f by room to write, and unmasks f.
func (d *direct) watchWrites(f *FD) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno := f.loop.poller.change(int(f.sysfd), f.token, toWrites); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	f.rd.state.Or(watchesRoom)
	if d.masked.Load() == f {
		d.masked.Store(nil)
	}
	return nil
}

// kick ends the direct wait for f, if there is one, after f was closed.
func (d *direct) kick(f *FD) {
	if d.waiter.Load() == f {
		f.loop.Submit(func() {})
	}
}

// forget is for f, which is about to be closed in the kernel.
func (d *direct) forget(f *FD) {
	if d.masked.Load() != f {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.masked.Store(nil)
}
