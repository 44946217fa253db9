package loop

// EventHandler is the handler for [FD.Watch].
type EventHandler interface {
	// OnEvent runs on the loop's goroutine and must not block. Events are edges, and may be
	// spurious: see Readiness.
	OnEvent(r Readiness)
}

// Watch reports each event on the descriptor to *h, on the loop's goroutine, until Unwatch or Close. It
// is for owners that always wait for a descriptor: unlike [FD.NotifyReadable] it need not be armed
// again. The caller owns h, and must not change it while it is registered.
//
// Watch doesn't report earlier events: call TryRead after it. It reports space for writing after a
// TryWrite has met a full socket. The owner reads and writes with TryRead, TryWrite and
// [Stream.TryWrite] only; those wait for a Read or a Write that is under way.
//
// It fails with [ErrArmed] if the descriptor is watched already, or a callback of OnReadable is
// armed, with [ErrBusy] if a Read or a Write is under way, which the loop would have to wait for, and
// with [ErrClosed].
func (f *FD) Watch(h *EventHandler) error {
	if err := f.life.incref(); err != nil {
		return err
	}
	defer f.decref()
	for _, h := range []*half{&f.rd, &f.wr} {
		if !h.mu.TryLock() {
			return ErrBusy
		}
		h.mu.Unlock()
	}
	if f.rd.state.Load()&armed != 0 || !f.watcher.CompareAndSwap(nil, h) {
		return ErrArmed
	}
	f.expose()
	f.loop.ensurePolled()
	return nil
}

// Unwatch ends Watch. It reports false if the descriptor isn't watched. A call of OnEvent that is
// under way, or was put off until the loop runs its tasks, may still come.
func (f *FD) Unwatch() bool { return f.watcher.Swap(nil) != nil }

// remindWatcher makes the watcher try again, after the user has had the raw descriptor: it may have
// relied on the end of a read whose meaning has changed.
func (f *FD) remindWatcher() {
	if h := f.watcher.Load(); h != nil {
		f.loop.Submit(func() { (*h).OnEvent(Readable | Writable) })
	}
}

// TryWrite is Write that does not wait, for callers of Watch. If the kernel has not taken all of p, and
// err is nil, there will be an event when there is room.
func (f *FD) TryWrite(p []byte) (n int, err error) {
	if err := f.begin(&f.wr); err != nil {
		return 0, err
	}
	defer f.end(&f.wr)
	f.wr.clearReady()
	n, done, err := f.send(p)
	if !done {
		err = f.expectRoom()
	}
	return n, err
}

// TryWrite is Write that does not wait, for callers of [FD.Watch]: fn is called once. If it reports
// false, there will be an event when there is room.
func (s Stream) TryWrite(fn func(fd uintptr) (done bool)) error {
	f := s.fd
	if err := f.begin(&f.wr); err != nil {
		return err
	}
	defer f.end(&f.wr) // fn may panic
	f.answer()
	f.wr.state.Or(longCall)
	defer f.wr.state.And(^longCall)
	f.wr.clearReady()
	if fn(uintptr(f.sysfd)) {
		return nil
	}
	return f.expectRoom()
}

// expectRoom extends the registration by room to write, unless it is: which is an edge if there
// is room by now. The caller holds the write half.
func (f *FD) expectRoom() error {
	if f.rd.state.Load()&watchesRoom != 0 {
		return nil
	}
	return f.loop.direct.watchWrites(f)
}
