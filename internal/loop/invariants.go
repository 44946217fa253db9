package loop

import (
	"fmt"
	"slices"

	"github.com/percore/percore/internal/invariants"
)

// The additional checks of a checking build: claims of this package's comments on which its correctness
// rests. In other builds invariants.Enabled is a constant false, and the compiler removes all of it.

// checkLife panics unless from, to is an edge of life's table.
func checkLife(from, to uint32) {
	if !invariants.Enabled {
		return
	}
	open := from&lifeClosed == 0
	taken := open && to&lifeRefs == from&lifeRefs+1                                                    // incref, close
	dropped := from&lifeRefs > 0 && to&lifeRefs == from&lifeRefs-1 && to&lifeClosed == from&lifeClosed // drop
	if !taken && !dropped {
		panic(fmt.Sprintf("loop: a descriptor's life went from %s to %s, which is no edge of the table", lifeString(from), lifeString(to)))
	}
}

func lifeString(word uint32) string {
	return fmt.Sprintf("(refs %d, closed %t)", word&lifeRefs, word&lifeClosed != 0)
}

// checkParker panics if p, which no goroutine waits on any more or yet, has a token: then the next
// wait would end for nothing. A token is sent only by the party that cleared waiting, and the
// waiter takes it before it goes on.
func checkParker(p chan struct{}) {
	if invariants.Enabled && len(p) != 0 {
		panic("loop: a parker has a token that its waiter didn't take")
	}
}

// checkOwed panics if sending a token to p would block: either no goroutine waits on it, or two
// parties have cleared waiting.
func checkOwed(p chan struct{}) {
	if !invariants.Enabled {
		return
	}
	switch {
	case p == nil:
		panic("loop: a token is sent to a half on which no goroutine waits")
	case len(p) != 0:
		panic("loop: a second token is sent for one wait")
	}
}

// checkNotWaiting panics if waiting is on, in the state before a wait is published or after the
// wait's token was taken: the goroutine that holds the half is the only one that waits.
func checkNotWaiting(state uint32) {
	if invariants.Enabled && state&waiting != 0 {
		panic(fmt.Sprintf("loop: a half's state is %#b: another goroutine waits", state))
	}
}

// checkOwner panics unless polling is owned as want says. Only the owner polls, and only
// the owner gives it up.
func checkOwner(o *ownership, want uint32) {
	if !invariants.Enabled {
		return
	}
	if got := o.state.Load(); got != want {
		panic(fmt.Sprintf("loop: a goroutine polls that does not own the polling: state %d, want %d", got, want))
	}
}

// checkResume panics if waking the loop's goroutine would block: it was woken before, and has not
// released the polling since.
func checkResume(o *ownership) {
	if invariants.Enabled && len(o.resume) != 0 {
		panic("loop: the loop's goroutine is resumed twice")
	}
}

// checkReaders panics if n readers leave a batch of fewer.
func checkReaders(readers uint32, n int) {
	if invariants.Enabled && int(readers) < n {
		panic(fmt.Sprintf("loop: %d readers leave a batch of %d", n, readers))
	}
}

// checkDispatch panics if another goroutine dispatches l's events. The caller dispatches until
// it turns dispatching off.
func checkDispatch(l *Loop) {
	if invariants.Enabled && l.dispatching.Swap(true) {
		panic("loop: two goroutines dispatch the events of one loop")
	}
}

// freeSlotsChecked is how much of the list of free slots is looked at each time, from its end.
const freeSlotsChecked = 64

// checkAlloc panics unless slot i is free.
func checkAlloc(table []*FD, i uint32) {
	if invariants.Enabled && table[i] != nil {
		panic(fmt.Sprintf("loop: slot %d is allocated while it is in use", i))
	}
}

// checkFree panics unless f has its slot, and the slot is not in the list of free ones.
func checkFree(table []*FD, free []uint32, f *FD) {
	if !invariants.Enabled {
		return
	}
	if table[f.token.slot] != f {
		panic(fmt.Sprintf("loop: slot %d is freed by a descriptor that doesn't have it; it is in use: %t", f.token.slot, table[f.token.slot] != nil))
	}
	if slices.Contains(free[max(0, len(free)-freeSlotsChecked):], f.token.slot) {
		panic(fmt.Sprintf("loop: slot %d is freed, and free already", f.token.slot))
	}
}

// A wheel with more timers than wheelCheckedTimers is looked at once in wheelCheckedTicks ticks.
const (
	wheelCheckedTimers = 1024
	wheelCheckedTicks  = 64
)

// checkWheel panics if w, which has advanced, breaks one of its invariants.
func checkWheel(w *wheel) {
	if !invariants.Enabled || w.count > wheelCheckedTimers && w.cursor%wheelCheckedTicks != 0 {
		return
	}
	if err := w.invariants(); err != nil {
		panic("loop: the wheel is broken: " + err.Error())
	}
}
