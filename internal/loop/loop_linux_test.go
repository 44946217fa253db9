package loop

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// An eventFD is an FD of an eventfd, the simplest descriptor that can become ready,
// with a callback that is armed again each time: each fire is one call.
type eventFD struct {
	*FD
	calls atomic.Int64
	then  func(*eventFD) // called on the loop's goroutine, before the callback is armed again
}

// newEventFD makes one, which lives until the end of the test.
func newEventFD(t testing.TB, l *Loop, then func(*eventFD)) *eventFD {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatalf("eventfd: %v", err)
	}
	e := &eventFD{FD: newTestFD(t, l, fd, Plain), then: then}
	if err := e.NotifyReadable(e); err != nil {
		t.Fatalf("NotifyReadable: %v", err)
	}
	return e
}

// OnReadable uses up the event's data, so that arming finds nothing.
func (e *eventFD) OnReadable(err error) {
	if err != nil {
		return
	}
	_, _ = unix.Read(int(e.sysfd), make([]byte, 8))
	if e.then != nil {
		e.then(e)
	}
	_ = e.NotifyReadable(e) // fails if the descriptor was closed meanwhile
	e.calls.Add(1)
}

// fire makes an edge.
func (e *eventFD) fire() { fire(int(e.sysfd)) }

// fire makes an edge on an eventfd.
func fire(fd int) { _, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)) }

// awaitCalls waits until the callback was called at least n times.
func (e *eventFD) awaitCalls(t testing.TB, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the callback is called %d times", n), func() bool { return e.calls.Load() >= n })
}

func TestWatchWrites(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		a, b := overUnix.pair(t)
		defer unix.Close(b)
		f := newTestFD(t, l, a, Plain)
		settle(t, l)
		if state := f.wr.state.Load(); state&ready != 0 {
			t.Errorf("a new socket: got state %#x, want it not ready: no write has asked for room", state)
		}
		if err := f.expectRoom(); err != nil {
			t.Fatalf("expectRoom: %v", err)
		}
		eventually(t, "the descriptor has room to write", func() bool {
			l.Submit(func() {}) // has the loop polled though no call waits
			return f.wr.state.Load()&ready != 0
		})
		if state := f.rd.state.Load(); state&ready != 0 {
			t.Errorf("after that: got state %#x, want nothing to read", state)
		}
	})
}

// The kernel goes on to report a file that was closed while a duplicate of it is
// open. Such events are dropped, and don't reach the slot's present descriptor.
func TestStaleEvents(t *testing.T) {
	defer func(was bool) { closeIsExpensive = was }(closeIsExpensive)
	closeIsExpensive = false
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		old := newEventFD(t, l, nil)
		duplicate, err := unix.FcntlInt(uintptr(old.sysfd), unix.F_DUPFD_CLOEXEC, 0) // of which the FD knows nothing
		if err != nil {
			t.Fatalf("fcntl: %v", err)
		}
		defer unix.Close(duplicate)
		closeFD(t, old.FD) // so that the kernel keeps the registration
		heir := newEventFD(t, l, nil)
		if heir.token.slot != old.token.slot {
			t.Fatalf("slot: got %d, want %d: that of the one before is free", heir.token.slot, old.token.slot)
		}
		if heir.token.gen == old.token.gen {
			t.Errorf("generation: got %d, want another", heir.token.gen)
		}
		for i := range uint64(3) {
			fire(duplicate)
			eventually(t, "a stale event is counted", func() bool { return g.Counts().Events == i+1 })
		}
		if n := heir.calls.Load(); n != 0 {
			t.Errorf("the slot's new owner was called %d times for events of the old one, want 0", n)
		}
		if n := old.calls.Load(); n != 0 {
			t.Errorf("the old owner was called %d times after Close, want 0", n)
		}
		heir.fire()
		heir.awaitCalls(t, 1)
		if got := g.Counts(); got.Events != 3+uint64(heir.calls.Load()) {
			t.Errorf("stats: %+v; want the events to be the 3 stale ones and %d that were delivered", got, heir.calls.Load())
		}
	})
}

// wantNoEvents fires a duplicate of a closed descriptor, of which l must not hear.
func wantNoEvents(t *testing.T, l *Loop, duplicate int) {
	t.Helper()
	settle(t, l)
	before := l.group.Counts().Events
	fire(duplicate)
	settle(t, l)
	if n := l.group.Counts().Events - before; n != 0 {
		t.Errorf("events after Close: got %d, want 0", n)
	}
}

// Where close(2) of a registered descriptor is dear it is taken out before.
func TestCloseIsDear(t *testing.T) {
	defer func(was bool) { closeIsExpensive = was }(closeIsExpensive)
	closeIsExpensive = true
	g := newTestGroup(t, Config{Loops: 1})
	l := g.Loop(0)
	newEventFD(t, l, nil) // so that the group lives on, and polls
	e := newEventFD(t, l, nil)
	duplicate, err := unix.FcntlInt(uintptr(e.sysfd), unix.F_DUPFD_CLOEXEC, 0) // of which the FD knows nothing
	if err != nil {
		t.Fatalf("fcntl: %v", err)
	}
	defer unix.Close(duplicate)
	closeFD(t, e.FD)
	wantNoEvents(t, l, duplicate)
}

// The event array doubles while it comes back full, up to its maximum.
func TestEventArrayGrows(t *testing.T) {
	const crowd = eventsMax + 100
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		fds := make([]*eventFD, crowd)
		for i := range fds {
			fds[i] = newEventFD(t, l, nil)
		}
		size := func() (n int) {
			done := make(chan struct{})
			l.Submit(func() {
				n = len(l.caught.events.events)
				close(done)
			})
			<-done
			return n
		}
		if n := size(); n != eventsMin {
			t.Errorf("event array at first: got %d, want %d", n, eventsMin)
		}
		for round := range int64(7) { // 32 doubles to 1024 in 5
			release := holdLoop(t, l)
			for _, e := range fds {
				e.fire()
			}
			release()
			for _, e := range fds {
				e.awaitCalls(t, round+1)
			}
		}
		if n := size(); n != eventsMax {
			t.Errorf("event array after polls of %d: got %d, want %d", crowd, n, eventsMax)
		}
	})
}

// Tasks that tasks submit are run too, in order, and events get their turn in
// between: a task that always submits another doesn't lock them out.
func TestSubmitFromTasks(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		e := newEventFD(t, l, nil)
		done := make(chan int, 1)
		depth := 0
		var task func()
		task = func() {
			if e.calls.Load() > 0 {
				done <- depth
				return
			}
			if depth++; depth == 10 {
				e.fire()
			}
			l.Submit(task)
		}
		l.Submit(task)
		if n := testnet.Receive(t, "an event's turn", done); n < 10 {
			t.Errorf("the event came after %d tasks, want 10 at least", n)
		}
		var order []int
		finished := make(chan struct{})
		l.Submit(func() {
			order = append(order, 1)
			l.Submit(func() { order = append(order, 3) })
			l.Submit(func() { order = append(order, 4); close(finished) })
			order = append(order, 2)
		})
		testnet.Receive(t, "the last task", finished)
		if want := []int{1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("order: got %v, want %v", order, want)
		}
	})
}

// However many tasks are submitted before the loop comes to them, it is woken once.
func TestSubmitWakesOnce(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		wakes := func() uint64 { // how often the eventfd was written to since last asked
			var b [8]byte
			if _, err := unix.Read(l.poller.wakefd, b[:]); err != nil {
				return 0
			}
			return binary.NativeEndian.Uint64(b[:])
		}
		release := holdLoop(t, l)
		wakes()
		var run atomic.Int32
		for range 100 {
			l.Submit(func() { run.Add(1) })
		}
		if n := wakes(); n != 1 {
			t.Errorf("wake-ups for 100 tasks: got %d, want 1", n)
		}
		release()
		settle(t, l)
		if n := run.Load(); n != 100 {
			t.Errorf("tasks run: got %d, want 100", n)
		}
	})
}

// A burst of tasks is run completely, and its array is let go.
func TestSubmitBurst(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		release := holdLoop(t, l)
		run := 0
		for range 5 * taskQueueKept {
			l.Submit(func() { run++ })
		}
		release()
		settle(t, l)
		if run != 5*taskQueueKept {
			t.Errorf("tasks run: got %d, want %d", run, 5*taskQueueKept)
		}
		kept := make(chan int, 1)
		l.Submit(func() {
			l.tasks.Lock()
			kept <- max(cap(l.tasks.queue), cap(l.running))
			l.tasks.Unlock()
		})
		if n := testnet.Receive(t, "a task", kept); n > taskQueueKept {
			t.Errorf("the queue's array has room for %d tasks after the burst, want %d at most", n, taskQueueKept)
		}
	})
}

// A callback or a task that ends its goroutine, as testing.T's FailNow does, ends
// neither the loop nor what the loop had found with it.
func TestGoexit(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		const crowd = 3 * eventsMin
		l := g.Loop(0)
		fds := make([]*eventFD, crowd)
		for i := range fds {
			fds[i] = newEventFD(t, l, nil)
		}
		for range 5 {
			leaving := make([]*eventFD, 3)
			for i := range leaving {
				leaving[i] = newEventFD(t, l, func(*eventFD) { runtime.Goexit() })
			}
			before := fds[0].calls.Load()
			var run atomic.Int32
			release := holdLoop(t, l)
			for i, e := range fds { // one batch, with those that leave in between
				e.fire()
				if i%eventsMin == 1 {
					leaving[i/eventsMin].fire()
				}
			}
			for i := range 10 {
				l.Submit(func() { run.Add(1) })
				if i%3 == 0 {
					l.Submit(runtime.Goexit)
				}
			}
			release()
			for _, e := range fds {
				e.awaitCalls(t, before+1)
			}
			eventually(t, "all tasks are run", func() bool { return run.Load() == 10 })
			for _, e := range leaving {
				closeFD(t, e.FD)
			}
		}
		settle(t, l)
	})
}

// A task that does not return may be what the eventfd has told the loop of: those
// behind it must not wait for another.
func TestGoexitBeforeTasks(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		l := g.Loop(0)
		for range 20 {
			e := newEventFD(t, l, func(*eventFD) { runtime.Goexit() })
			release := holdLoop(t, l)
			e.fire()
			done := make(chan struct{})
			l.Submit(func() { close(done) })
			release()
			testnet.Receive(t, "a task is run", done)
			closeFD(t, e.FD)
		}
	})
}

// A pinned loop's thread may run on one processor only, and no other's thread is affected.
func TestPin(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatalf("sched_getaffinity: %v", err)
	}
	loops := may.Count() + 1
	g := newTestGroup(t, Config{Loops: loops, Strategy: Thread, Pin: true})
	sets := make([]unix.CPUSet, loops)
	for i := range loops {
		errs := make(chan error, 1)
		g.Loop(i).Submit(func() { errs <- unix.SchedGetaffinity(0, &sets[i]) })
		if err := testnet.Receive(t, "a task", errs); err != nil {
			t.Fatalf("sched_getaffinity on loop %d: %v", i, err)
		}
		if n := sets[i].Count(); n != 1 {
			t.Errorf("loop %d may run on %d processors, want 1", i, n)
		}
	}
	for i := range sets[1 : loops-1] {
		if sets[i] == sets[i+1] {
			t.Errorf("loops %d and %d are on the same processor, want them on their own", i, i+1)
		}
	}
	if sets[0] != sets[loops-1] {
		t.Errorf("loop %d is not on loop 0's processor, want it to go round", loops-1)
	}
	var now unix.CPUSet
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // a thread that isn't a loop's
		defer runtime.UnlockOSThread()
		done <- unix.SchedGetaffinity(0, &now)
	}()
	if err := <-done; err != nil || now != may {
		t.Errorf("other threads: %v, %d processors, want all %d", err, now.Count(), may.Count())
	}
}
