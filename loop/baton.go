package loop

import "sync/atomic"

// baton names the goroutine that polls a loop. Usually that is the loop's own. But when there is
// only one descriptor to wait for, waking the loop's goroutine so that it can wake the one that
// reads costs more than all else together: two switches, and often a thread that the scheduler
// starts to look for more work. Then the goroutine that waits in Read polls the loop itself, in
// the place of the loop's goroutine, which stands down (leader and followers; the leader keeps
// what it finds for itself).
//
//	holder    poller                                leaves by
//	byLoop    the loop's goroutine, or it is        standDown: there is one descriptor and
//	          about to                              none waits for it: free
//	free      none                                  wait: byWaiter
//	                                                a callback, a task: byLoop
//	byWaiter  a goroutine in FD.wait                it has what it waited for, or an event finds
//	                                                other descriptors there: free, and byLoop at
//	                                                once if another is left waiting
//
// The invariant is that no goroutine waits while it is free. It holds because a waiter says so
// first (waiting, callback, the task queue) and looks at the baton after, and the holder frees it
// first and looks for waiters after: one of the two sees the other, and cover or lead does the
// rest.
type baton struct {
	holder atomic.Uint32
	leader atomic.Pointer[side] // whose goroutine polls, while byWaiter
	recall chan struct{}        // wakes the loop's goroutine after standDown; holds one
}

const (
	byLoop uint32 = iota
	free
	byWaiter
)

// standDown frees the baton, which the loop's goroutine holds, if the loop has no
// descriptor to look after except f, whose goroutine it has just woken. It reports
// whether to wait on recall; then another goroutine polls, or none needs to.
func (l *Loop) standDown(f *FD) bool {
	if f == nil || l.descriptors.Load() != 1 || l.group.config.Strategy != Nested || l.group.config.BusyPoll > 0 {
		return false
	}
	l.baton.holder.Store(free)
	if l.awaited(f) || f.closed() { // if it is closed, the one descriptor may be another
		return !l.baton.holder.CompareAndSwap(free, byLoop)
	}
	return true
}

// lead polls the loop until the caller, which has published that it waits for s,
// is woken, or until others need the loop's goroutine. It does nothing if
// another goroutine polls already.
func (l *Loop) lead(f *FD, s *side) {
	if !l.baton.holder.CompareAndSwap(free, byWaiter) {
		return
	}
	l.baton.leader.Store(s)
	l.poller.waitNested(l.ledPass)
	l.sole = nil
	l.baton.leader.Store(nil)
	l.baton.holder.Store(free)
	if l.awaited(f) {
		l.cover()
	}
}

// passLed is pass for a goroutine that leads. It runs no foreign code: tasks and
// callbacks are left to the loop's goroutine. So are all events once there is another
// descriptor: the leader, which waits for its own only, would be woken for each of
// them, at twice the cost if it is locked to its thread.
func (l *Loop) passLed(uintptr) (done bool) {
	l.wakeups.Add(1)
	s := l.baton.leader.Load()
	for more := s.state.Load()&waiting != 0; more; { // or kick has woken it: other events wait for the next poll
		var n int
		n, more = l.poller.harvest()
		l.dispatch(n)
	}
	return s.state.Load()&waiting == 0 || l.tasks.woken.Load() || l.descriptors.Load() > 1
}

// awaited reports whether there may be a waiter for an event, where f is the only
// descriptor if there is only one.
func (l *Loop) awaited(f *FD) bool {
	return l.descriptors.Load() > 1 || l.tasks.woken.Load() || f.rd.awaited() || f.wr.awaited()
}

// cover has the loop's goroutine poll if no other does.
func (l *Loop) cover() {
	if l.baton.holder.Load() == free && l.baton.holder.CompareAndSwap(free, byLoop) {
		l.baton.recall <- struct{}{}
	}
}

// kick wakes the goroutine that polls on behalf of s, if one does: it is not on
// its channel.
func (l *Loop) kick(s *side) {
	if l.baton.leader.Load() == s {
		l.poller.kick()
	}
}
