package loop

import (
	"syscall"

	"github.com/percore/percore/internal/sys"
)

// RawRead calls fn with the descriptor until it reports true, waiting before
// each further call until the descriptor may be readable. It holds the read
// half all the while. fn must not close the descriptor or keep it.
func (f *FD) RawRead(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.rd, fn) }

// RawWrite is RawRead for writing.
func (f *FD) RawWrite(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.wr, fn) }

func (f *FD) rawIO(h *half, fn func(fd uintptr) bool) error {
	if err := f.begin(h); err != nil {
		return err
	}
	defer f.end(h) // fn may panic
	f.beginRaw()
	defer f.endRaw()
	defer h.setReady(f) // the state that fn left behind is not known
	return f.tryThenWait(h, fn)
}

// RawControl calls fn with the descriptor, which stays open until fn returns. fn must
// not close it or keep it.
func (f *FD) RawControl(fn func(fd uintptr)) error {
	if err := f.life.incref(); err != nil {
		return err
	}
	defer f.decref()
	f.beginRaw()
	defer f.endRaw() // fn may panic
	fn(uintptr(f.sysfd))
	return nil
}

// beginRaw begins a use of the raw descriptor by the user's code. Most uses change nothing: gRPC looks
// at four options of every connection, database drivers look for a byte before each use. So the effect
// on the socket is not assumed but asked for, at the end. Until then a short read is not relied on.
func (f *FD) beginRaw() {
	f.exposed.Store(true)
	f.rd.state.Or(rawInUse)
}

// endRaw ends a use. On a stream whose short reads prove nothing anyway the next
// read asks the kernel, whatever the use was for (SO_RCVLOWAT). On a TCP socket that
// is not plain any more, a reader that waits is woken, too: it may have relied on a short
// read after the end of another use, during this one.
func (f *FD) endRaw() {
	if f.kind != TCP || f.rd.state.Load()&shortReadUnreliable != 0 {
		f.rd.setReady(f)
	} else if !sys.IsPlainTCP(int(f.sysfd)) {
		f.rd.wake(f, ready|shortReadUnreliable)
		f.rd.setReady(f) // to a callback, too
	}
	f.rd.state.And(^rawInUse)
	f.remindWatcher()
}

// Control is RawControl for callers that vouch for fn: that it neither
// duplicates the descriptor nor changes the meaning of its reads and writes.
func (f *FD) Control(fn func(fd int) syscall.Errno) error {
	if err := f.life.incref(); err != nil {
		return err
	}
	defer f.decref() // fn may panic
	if errno := fn(int(f.sysfd)); errno != 0 {
		return errno
	}
	return nil
}

// Dup returns a duplicate of the descriptor, close-on-exec, which the caller
// owns. The two share their file status flags, O_NONBLOCK among them.
//
// A duplicate is a use without an end: its owner may make the socket a TLS socket at any time (tcp(7),
// TCP_ULP). So a short read proves nothing from now on, and a close leaves the duplicate registered.
func (f *FD) Dup() (int, error) {
	if err := f.life.incref(); err != nil {
		return -1, err
	}
	defer f.decref()
	f.exposed.Store(true)
	f.rd.state.Or(shortReadUnreliable)
	f.rd.setReady(f)
	f.remindWatcher()
	fd, errno := sys.Dup(int(f.sysfd))
	if errno != 0 {
		return -1, errno
	}
	return fd, nil
}
