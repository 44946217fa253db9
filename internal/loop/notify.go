package loop

import (
	"syscall"

	"github.com/percore/percore/internal/sys"
)

// ReadableHandler is the handler for NotifyReadable.
type ReadableHandler interface {
	// OnReadable runs on the loop's goroutine and must not block.
	OnReadable(err error)
}

// NotifyReadable arms a one-shot readiness callback, as percore.Conn.NotifyReadable describes it. If
// there is something to read already, it is called soon. Reads may go on while a callback is armed, and
// may take away what it was called for.
//
// It fails with [ErrArmed] if a callback is armed already, with [ErrClosed] on a closed descriptor and
// with [os.ErrDeadlineExceeded] after the deadline; then h is not called.
func (f *FD) NotifyReadable(h ReadableHandler) error {
	if err := f.life.incref(); err != nil {
		return err
	}
	defer f.decref()
	rd := &f.rd
	if err := rd.check(f); err != nil {
		return err
	}
	if f.watcher.Load() != nil || !f.armCallback(h) {
		return ErrArmed
	}
	// Published. Only this call tells h about events before that.
	switch {
	case rd.check(f) != nil:
		rd.interrupt(f)
	case rd.state.Load()&ready != 0:
		f.recheck()
	}
	f.expose()
	f.loop.ensurePolled()
	return nil
}

// armCallback arms a callback and reports false if there is one already.
func (f *FD) armCallback(h ReadableHandler) bool {
	f.callback.Lock()
	defer f.callback.Unlock()
	if f.callback.handler != nil {
		return false
	}
	f.callback.handler = h
	f.rd.state.Or(armed)
	return true
}

// takeCallback disarms the callback and returns it, or nil if there is none (any more). Its receiver
// calls it, on the loop. A guest gets it only if it may run anywhere.
//
// The handler is forgotten: the loop's table would hold it otherwise, and a connection that nothing
// else holds would not be garbage.
func (f *FD) takeCallback(guest bool) (h ReadableHandler) {
	if f.rd.state.Load()&armed == 0 {
		return nil
	}
	f.callback.Lock()
	defer f.callback.Unlock()
	if guest {
		if _, ok := f.callback.handler.(offLoopHandler); !ok {
			return nil
		}
	}
	h, f.callback.handler = f.callback.handler, nil
	f.rd.state.And(^armed)
	return h
}

// recheck finds out what a ready that may be old is worth: after a read that need not have used
// everything up, most often nothing. It is turned off before the kernel is asked, as for a read,
// and on again for the waiter. For a read it stays on if the user may have set SO_RCVLOWAT, which
// poll(2) heeds and recv(2) does not.
func (f *FD) recheck() {
	f.rd.state.And(^ready)
	readable := sys.Readable(int(f.sysfd))
	if readable || f.exposed.Load() {
		f.rd.wake(f, ready)
	}
	if readable {
		f.rd.setReady(f)
	}
}

// AtEnd reports whether the peer has ended the stream, or reset it, and no byte is unread. false proves
// nothing: see seam.AtEnd.
func (f *FD) AtEnd() bool {
	if f.rd.state.Load()&hangup == 0 {
		return false
	}
	unread := 0
	err := f.Control(func(fd int) (errno syscall.Errno) {
		unread, errno = sys.Unread(fd)
		return errno
	})
	return err == nil && unread == 0
}

// HungUp asks the kernel whether the peer has ended the stream, or reset it. Bytes before that may be
// unread. It doesn't wait.
func (f *FD) HungUp() bool {
	if f.life.incref() != nil {
		return false
	}
	defer f.decref()
	return sys.HungUp(int(f.sysfd))
}

// CancelOnReadable disarms the callback and reports whether there was one.
func (f *FD) CancelOnReadable() bool { return f.takeCallback(false) != nil }
