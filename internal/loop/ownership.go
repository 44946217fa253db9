package loop

import "sync/atomic"

// ownership says which goroutine polls a loop. Usually the loop's own does. But when there is only
// one descriptor to wait for, waking the loop's goroutine so that it can wake the reader costs more
// than all else together: two switches, and often a thread that the scheduler starts to look for
// more work. Then the loop's goroutine releases the polling, and the goroutine that waits in Read
// polls in its place (leader and followers; the leader keeps what it finds for itself).
//
//	state          poller                       leaves by
//	ownedByLoop    the loop's goroutine, or it  releasePoll: there is one descriptor, no
//	               is about to                  goroutine waits for it, and its event was for
//	                                            no callback: unowned
//	unowned        none                         lead, from half.wait: ownedByWaiter;
//	                                            ensurePolled, after a callback or a task: ownedByLoop
//	ownedByWaiter  a goroutine in half.wait     lead: it has what it waited for, or an event finds
//	                                            other descriptors there: unowned, and ownedByLoop
//	                                            at once if another waiter is left
//
// The invariant is that no goroutine waits while polling is unowned. It holds because a waiter says so
// first (waiting, callback, the task queue) and looks at the state after, and the owner releases first
// and looks for waiters after: one of the two sees the other, and ensurePolled or lead does the rest.
//
// A goroutine that polls without owning is a guest: see guests.
type ownership struct {
	state  atomic.Uint32
	leader atomic.Pointer[half] // whose goroutine polls, while ownedByWaiter
	resume chan struct{}        // wakes the loop's goroutine after releasePoll; holds one
}

const (
	ownedByLoop uint32 = iota
	unowned
	ownedByWaiter
)

// releasePoll ends the ownership of the loop's goroutine, if the loop has no descriptor to look after
// except f, whose goroutine it has just woken. It reports whether to wait on resume; then another
// goroutine polls, or none needs to.
func (l *Loop) releasePoll(f *FD) bool {
	if f == nil || l.descriptors.Load() != 1 || l.group.config.Strategy != Nested {
		return false
	}
	checkOwner(&l.owner, ownedByLoop)
	l.owner.state.Store(unowned)
	if l.awaited(f) || f.life.closed() { // if it is closed, the one descriptor may be another
		return !l.owner.state.CompareAndSwap(unowned, ownedByLoop)
	}
	return true
}

// lead polls the loop until the caller, which has published that it waits for h, is woken, or until
// others need the loop's goroutine. It does nothing if another goroutine polls already.
func (l *Loop) lead(f *FD, h *half) {
	if !l.owner.state.CompareAndSwap(unowned, ownedByWaiter) {
		return
	}
	l.owner.leader.Store(h)
	l.poller.waitNested(l.ledPass)
	l.sole = nil
	l.owner.leader.Store(nil)
	checkOwner(&l.owner, ownedByWaiter)
	l.owner.state.Store(unowned)
	if l.awaited(f) {
		l.ensurePolled()
	}
}

// passLed is pass for a goroutine that leads. It runs no foreign code: tasks and callbacks are left to
// the loop's goroutine. So are all events once there is another descriptor: the leader, which waits for
// its own only, would be woken for each of them, at twice the cost if it is locked to its thread.
func (l *Loop) passLed(uintptr) (done bool) {
	checkOwner(&l.owner, ownedByWaiter)
	l.wakeups.Add(1)
	h := l.owner.leader.Load()
	for more := h.state.Load()&waiting != 0; more; { // or kick has woken it: other events wait for the next poll
		var n int
		n, more = l.poller.poll(&l.caught.events)
		l.dispatch(n)
	}
	return h.state.Load()&waiting == 0 || l.tasks.woken.Load() || l.descriptors.Load() > 1
}

// awaited reports whether there may be a waiter for an event, where f is the only
// descriptor if there is only one.
func (l *Loop) awaited(f *FD) bool {
	return l.descriptors.Load() > 1 || l.tasks.woken.Load() || f.awaited()
}

// ensurePolled makes the loop's goroutine poll if no other does.
func (l *Loop) ensurePolled() {
	if l.owner.state.Load() == unowned && l.owner.state.CompareAndSwap(unowned, ownedByLoop) {
		checkResume(&l.owner)
		l.owner.resume <- struct{}{}
	}
}

// kick wakes the goroutine that polls on behalf of h, if one does: it is not on its channel.
func (l *Loop) kick(h *half) {
	if l.owner.leader.Load() == h {
		l.poller.kick()
	}
}
