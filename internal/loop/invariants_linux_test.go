//go:build invariants

package loop

import (
	"fmt"
	"strings"
	"testing"
)

// Each check must fire when the claim that it checks is broken.

func mustPanic(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("got the panic %q, want one with %q in it", got, want)
		}
	}()
	do()
}

func TestLifeChecks(t *testing.T) {
	for _, tt := range []struct {
		from, to uint32
		edge     bool
	}{
		{0, 1, true},
		{1, 0, true},
		{0, 1 | lifeClosed, true},
		{2, 3 | lifeClosed, true},
		{2 | lifeClosed, 1 | lifeClosed, true},
		{1 | lifeClosed, lifeClosed, true},

		{0, ^uint32(0), false},                  // a reference is dropped that was not taken
		{lifeClosed, lifeClosed - 1, false},     // the same, after the end
		{lifeClosed, 1 | lifeClosed, false},     // a reference is taken after the end
		{1 | lifeClosed, 2 | lifeClosed, false}, // or after Close
		{1 | lifeClosed, 0, false},              // opened again
		{1, lifeClosed, false},
		{1, 1, false},
		{1, 3, false},
	} {
		if tt.edge {
			checkLife(tt.from, tt.to)
		} else {
			mustPanic(t, "no edge of the table", func() { checkLife(tt.from, tt.to) })
		}
	}
	mustPanic(t, "refs 0, closed false", func() { new(life).drop() })
	l := new(life)
	if !l.close() || l.close() || l.incref() != ErrClosed || !l.drop() {
		t.Error("closing a life once, and dropping the reference of that: want it to end")
	}
	mustPanic(t, "refs 0, closed true", func() { l.drop() })
}

func TestTokenChecks(t *testing.T) {
	withToken := func() chan struct{} {
		p := make(chan struct{}, 1)
		p <- struct{}{}
		return p
	}
	mustPanic(t, "didn't take", func() { putParker(withToken()) })
	mustPanic(t, "no goroutine waits", func() { new(half).wakeParked() })
	mustPanic(t, "second token", func() { (&half{parker: withToken()}).wakeParked() })

	f := newLooplessFD()
	f.rd.state.Store(waiting)
	mustPanic(t, "another goroutine waits", func() { _ = f.rd.wait(f) })
}

func TestWokenCheck(t *testing.T) {
	f := newLooplessFD()
	woken := make(chan any)
	go func() {
		defer func() { woken <- recover() }()
		_ = f.rd.wait(f)
	}()
	awaitWaiting(t, &f.rd)
	f.rd.parker <- struct{}{} // without clearing waiting
	if got := fmt.Sprint(<-woken); !strings.Contains(got, "another goroutine waits") {
		t.Errorf("got the panic %q, want one about waiting", got)
	}
}

func TestOwnershipChecks(t *testing.T) {
	l := &Loop{poller: &poller{wakefd: -1}, group: &Group{}}
	l.owner.resume = make(chan struct{}, 1)
	f := &FD{loop: l}
	l.descriptors.Store(1)
	for _, state := range []uint32{unowned, ownedByWaiter} {
		l.owner.state.Store(state)
		mustPanic(t, "does not own", func() { l.pass(0) })
		mustPanic(t, "does not own", func() { l.releasePoll(f) })
	}
	l.owner.leader.Store(&f.rd)
	for _, state := range []uint32{unowned, ownedByLoop} {
		l.owner.state.Store(state)
		mustPanic(t, "does not own", func() { l.passLed(0) })
	}
	l.owner.state.Store(unowned)
	l.owner.resume <- struct{}{}
	mustPanic(t, "resumed twice", l.ensurePolled)
}

func TestReadersCheck(t *testing.T) {
	var b batchReaders
	number := b.begin(1)
	if b.dispatched(number, 0); !b.leave(number, 1) {
		t.Error("the only reader leaves: got false, want it to be the last")
	}
	mustPanic(t, "1 readers leave a batch of 0", func() { b.leave(number, 1) })
	b.begin(0)
	b.leave(number, 1) // of the batch before
	b.leave(0, 1)
}

func TestDispatchCheck(t *testing.T) {
	l := new(Loop)
	checkDispatch(l)
	mustPanic(t, "two goroutines", func() { l.dispatch(0) })
	l.dispatching.Store(false)
	l.dispatch(0)
	l.dispatch(0)
}

func TestSlotChecks(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	l := g.Loop(0)
	alloc := func() *FD {
		f := newLooplessFD()
		if err := l.allocSlot(f); err != nil {
			t.Fatal(err)
		}
		g.Release() // allocSlot's
		return f
	}
	used := alloc()
	old := alloc()
	l.freeSlot(old)
	free := func(f *FD, want string) {
		mustPanic(t, want, func() { l.freeSlot(f) })
		l.descriptors.Add(1) // freeSlot counts before it checks
	}
	free(old, "doesn't have it; it is in use: false")
	next := alloc()
	if next.token.slot != old.token.slot {
		t.Fatalf("got slot %d, want %d", next.token.slot, old.token.slot)
	}
	free(old, "doesn't have it; it is in use: true")
	l.slots.free = append(l.slots.free, used.token.slot)
	free(used, "free already")
	mustPanic(t, "allocated while it is in use", func() { _ = l.allocSlot(newLooplessFD()) })
	l.descriptors.Add(-1)
	g.Release()
	l.freeSlot(used)
	l.freeSlot(next)
}

func TestWheelCheck(t *testing.T) {
	w := new(wheel)
	w.add(new(timer), 5*wheelTick)
	w.advance(wheelTick, func(*timer) {})
	w.count++
	mustPanic(t, "the wheel is broken", func() { w.advance(2*wheelTick, func(*timer) {}) })

	// A crowded wheel is checked now and then.
	for range wheelCheckedTimers {
		w.add(new(timer), 1000*wheelTick)
	}
	w.advance(3*wheelTick, func(*timer) {})
	mustPanic(t, "the wheel is broken", func() { w.advance(wheelCheckedTicks*wheelTick, func(*timer) {}) })
}
