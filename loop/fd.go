package loop

import (
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/internal/sys"
)

// FD is a connected stream socket registered with a loop, with the semantics
// that package net gives to its connections: calls block their goroutine and
// no thread, deadlines interrupt them, and Close may be called at any time.
// Errors are raw: a syscall.Errno, io.EOF, [ErrClosed] or
// [os.ErrDeadlineExceeded]; wrapping them is the caller's.
//
// All methods are safe for concurrent use. Reads are serialized among
// themselves, and so are writes, each for the whole call.
//
// # Life
//
//	life              meaning                               leaves by
//	refs, open        in use; refs calls are under way      Close: sets closed, adds 1
//	refs, closed      calls fail; those under way are       the last call's decref
//	                  being woken and leave
//	0, closed         the descriptor is closed, the slot    (final)
//	                  is free, nobody touches it again
//
// The descriptor is closed by whoever drops the last reference, so its number
// can't be reused while a call or the loop still goes by it. The order is:
// mark closed, wake the waiters, wait for the last reference, take the timers
// and the registration away, close.
type FD struct {
	// immutable
	loop   *Loop
	token  Token
	sysfd  int32
	stream StreamKind

	// atomic
	life    atomic.Uint32 // see the table; lifeClosed | number of references
	exposed atomic.Bool   // the raw descriptor was handed to the user, who may have duplicated it

	// written under a reference; read by whoever drops the last one
	gone  chan struct{} // Close waits on it, if others still use the descriptor
	timed bool          // a deadline was in the loop's wheel once (guarded by its lock)

	rd, wr side

	// guarded by wr.mu
	watchesWrites bool // the registration includes room to write
}

const (
	lifeClosed uint32 = 1 << 31
	lifeRefs          = lifeClosed - 1
)

// StreamKind says how far a short transfer can be trusted.
type StreamKind uint8

const (
	// Plain streams promise nothing: a unix socket ends a read early at
	// ancillary data (unix(7)).
	Plain StreamKind = iota

	// TCP streams have been used up when a read returns less than it asked for,
	// and are full when a write does (epoll(7), "Questions and answers", 9),
	// except at an urgent mark, which EPOLLPRI tells of.
	TCP
)

// maxRW bounds one system call, as in package internal/poll: some kernels
// refuse to transfer 2 GiB and more at once.
const maxRW = 1 << 30

// NewFD registers sysfd, a connected, non-blocking, close-on-exec stream
// socket, and owns it from then on; if it fails the caller still does.
func (l *Loop) NewFD(sysfd int, kind StreamKind) (*FD, error) {
	f := &FD{loop: l, sysfd: int32(sysfd), stream: kind}
	f.rd.timer.owner, f.wr.timer.owner = f, f
	if kind != TCP {
		f.rd.state.Store(speculate)
	}
	t, err := l.claim(f)
	if err != nil {
		return nil, err
	}
	f.token = t
	if err := l.add(t, sysfd); err != nil {
		return nil, err
	}
	return f, nil
}

// Loop returns the loop that the descriptor is registered with.
func (f *FD) Loop() *Loop { return f.loop }

// OnReady implements [Handler]; only whoever polls the loop calls it.
func (f *FD) OnReady(r Readiness) {
	if r&Readable != 0 {
		bits := ready
		if r&Hangup != 0 {
			bits |= hangup
		}
		if r&Urgent != 0 {
			bits |= speculate
		}
		f.rd.signal(bits)
		if fn := f.rd.takeCallback(); fn != nil {
			if f.loop.onLoop() {
				fn(nil)
			} else {
				f.loop.Submit(func() { fn(nil) })
			}
		}
	}
	if r&Writable != 0 {
		f.wr.signal(ready)
	}
}

// Read reads up to len(p) bytes, waiting until there are any. It returns 0 and
// io.EOF at the end of the stream, and 0 and nil for an empty p, at once.
func (f *FD) Read(p []byte) (int, error) {
	if err := f.lock(&f.rd); err != nil {
		return 0, err
	}
	n, err := f.read(p)
	f.unlock(&f.rd)
	return n, err
}

func (f *FD) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := f.rd.check(f); err != nil {
		return 0, err
	}
	if len(p) > maxRW {
		p = p[:maxRW]
	}
	for {
		if !f.rd.take() {
			if err := f.wait(&f.rd); err != nil {
				return 0, err
			}
			continue
		}
		n, errno := sys.Recv(int(f.sysfd), p)
		if errno == syscall.EAGAIN {
			continue
		}
		if 0 < n && n < len(p) && f.rd.state.Load()&(speculate|hangup) == 0 {
			return n, nil // drained: the next read waits for an edge without asking the kernel
		}
		f.rd.give(f)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write writes all of p, waiting whenever the kernel's buffer is full. If it
// fails it returns how much of p the kernel had taken.
func (f *FD) Write(p []byte) (int, error) {
	if err := f.lock(&f.wr); err != nil {
		return 0, err
	}
	n, err := f.write(p)
	f.unlock(&f.wr)
	return n, err
}

func (f *FD) write(p []byte) (int, error) {
	if err := f.wr.check(f); err != nil {
		return 0, err
	}
	done := 0
	for {
		chunk := p[done:]
		if len(chunk) > maxRW {
			chunk = chunk[:maxRW]
		}
		n, errno := sys.Send(int(f.sysfd), chunk)
		done += n
		switch {
		case errno == 0 && done == len(p):
			return done, nil
		case errno == 0 && n == 0:
			return done, io.ErrUnexpectedEOF
		case errno == syscall.EINTR, errno == 0 && (n == len(chunk) || f.stream != TCP):
			continue
		case errno != 0 && errno != syscall.EAGAIN:
			return done, errno
		}
		// The buffer is full, and the kernel knows that we want to hear of room
		// (tcp_sendmsg sets SOCK_NOSPACE also when it takes a part). ready is
		// what is left from before, or an edge since: one more try uses it up.
		if f.wr.take() {
			continue
		}
		if err := f.wait(&f.wr); err != nil {
			return done, err
		}
		f.wr.take()
	}
}

// wait parks the caller, who holds s, until there may be something to do. The
// first wait for room to write extends the registration, which is an edge if
// there is room by now.
func (f *FD) wait(s *side) error {
	if s == &f.wr && !f.watchesWrites {
		if err := f.loop.WatchWrites(f.token, int(f.sysfd)); err != nil {
			return err
		}
		f.watchesWrites = true
	}
	return s.wait(f)
}

// RawRead calls fn with the descriptor until it reports true, waiting before
// each further call until the descriptor may be readable. It holds the reading
// side meanwhile. fn must not close the descriptor or keep it.
func (f *FD) RawRead(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.rd, fn) }

// RawWrite is RawRead for writing.
func (f *FD) RawWrite(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.wr, fn) }

func (f *FD) rawIO(s *side, fn func(fd uintptr) bool) error {
	if err := f.lock(s); err != nil {
		return err
	}
	defer f.unlock(s) // fn may panic
	if err := s.check(f); err != nil {
		return err
	}
	f.expose()
	defer s.give(f) // what fn left behind is not known
	for {
		s.take()
		if fn(uintptr(f.sysfd)) {
			return nil
		}
		if err := f.wait(s); err != nil {
			return err
		}
	}
}

// RawControl calls fn with the descriptor, which stays open meanwhile. fn must
// not close it or keep it.
func (f *FD) RawControl(fn func(fd uintptr)) error {
	if err := f.incref(); err != nil {
		return err
	}
	defer f.decref()
	f.expose()
	fn(uintptr(f.sysfd))
	return nil
}

// expose notes that the user has had the raw descriptor. From then on a short
// read proves nothing (he may have made it a TLS socket, tcp(7) TCP_ULP), and
// closing it may leave a duplicate registered.
func (f *FD) expose() {
	if !f.exposed.Load() {
		f.rd.state.Or(speculate)
		f.rd.give(f)
		f.exposed.Store(true)
	}
}

// Control is RawControl for callers that vouch for fn: that it neither
// duplicates the descriptor nor changes what its reads and writes mean.
func (f *FD) Control(fn func(fd int) syscall.Errno) error {
	if err := f.incref(); err != nil {
		return err
	}
	errno := fn(int(f.sysfd))
	f.decref()
	if errno != 0 {
		return errno
	}
	return nil
}

// Dup returns a duplicate of the descriptor, close-on-exec, which the caller
// owns. The two share their file status flags, O_NONBLOCK among them.
func (f *FD) Dup() (int, error) {
	if err := f.incref(); err != nil {
		return -1, err
	}
	defer f.decref()
	f.expose()
	fd, errno := sys.Dup(int(f.sysfd))
	if errno != 0 {
		return -1, errno
	}
	return fd, nil
}

// Shutdown is shutdown(2).
func (f *FD) Shutdown(how int) error {
	return f.Control(func(fd int) syscall.Errno { return sys.Shutdown(fd, how) })
}

// SetDeadline sets both deadlines.
func (f *FD) SetDeadline(t time.Time) error { return f.setDeadlines(t, &f.rd, &f.wr) }

// SetReadDeadline sets the time from which reads, those under way included, fail
// with [os.ErrDeadlineExceeded]. The zero time means never. They fail no earlier
// than that, and a few milliseconds later at most. A time in the past takes
// effect before SetReadDeadline returns.
func (f *FD) SetReadDeadline(t time.Time) error { return f.setDeadlines(t, &f.rd, nil) }

// SetWriteDeadline is SetReadDeadline for writes.
func (f *FD) SetWriteDeadline(t time.Time) error { return f.setDeadlines(t, nil, &f.wr) }

func (f *FD) setDeadlines(t time.Time, rd, wr *side) error {
	if err := f.incref(); err != nil {
		return err
	}
	at := deadlineOf(t)
	if rd != nil {
		rd.setDeadline(f, at)
	}
	if wr != nil {
		wr.setDeadline(f, at)
	}
	f.decref()
	return nil
}

// OnReadable arms a one-shot readiness callback: fn is called once, when a read
// may find data, the end of the stream or an error (with nil), when the read
// deadline passes (with [os.ErrDeadlineExceeded]) or when the descriptor is
// closed (with [ErrClosed]), whichever is first. Nothing waits meanwhile: no
// goroutine, no buffer.
//
// fn runs on the loop's goroutine, never within OnReadable, and must not block:
// typically it hands the connection to a goroutine. It may arm again. A nil may
// be spurious; a read then waits as ever. If there is something to read already,
// fn is called soon. Reads may go on while a callback is armed, and may take
// away what it was called for.
//
// It fails with [ErrArmed] if a callback is armed already, with [ErrClosed] on a
// closed descriptor and with [os.ErrDeadlineExceeded] after the deadline; then
// fn is not called.
func (f *FD) OnReadable(fn func(error)) error {
	if err := f.incref(); err != nil {
		return err
	}
	defer f.decref()
	s := &f.rd
	if err := s.check(f); err != nil {
		return err
	}
	if !s.callback.CompareAndSwap(nil, &fn) {
		return ErrArmed
	}
	// Published. What happened before that, nobody tells fn about but this call.
	switch {
	case s.check(f) != nil:
		s.interrupt(f)
	case s.state.Load()&ready != 0:
		f.recheck()
	}
	f.loop.cover()
	return nil
}

// recheck finds out what a ready that may be old is worth: after a read that is
// not trusted to have used everything up, most often nothing. It is turned off
// before the kernel is asked, as for a read, and on again for whoever waits.
func (f *FD) recheck() {
	f.rd.state.And(^ready)
	if sys.Readable(int(f.sysfd)) {
		f.rd.signal(ready)
		f.rd.give(f)
	}
}

// CancelOnReadable disarms the callback and reports whether there was one: then
// it is not called any more. Otherwise it was called, or is about to be.
func (f *FD) CancelOnReadable() bool { return f.rd.callback.Swap(nil) != nil }

// Close closes the descriptor. Calls under way are woken and fail with
// [ErrClosed], and so does every call from now on, Close included. When it
// returns, the descriptor is closed in the kernel; with SO_LINGER that can take
// as long as set there. It returns close(2)'s error, if it was this call that
// made it.
func (f *FD) Close() error {
	for {
		old := f.life.Load()
		if old&lifeClosed != 0 {
			return ErrClosed
		}
		if f.life.CompareAndSwap(old, (old+1)|lifeClosed) {
			break
		}
	}
	f.rd.interrupt(f)
	f.wr.interrupt(f)
	gone := getParker()
	defer putParker(gone)
	f.gone = gone
	if f.dropped() {
		return f.destroy()
	}
	<-gone
	return nil
}

// closed reports whether Close was called.
func (f *FD) closed() bool { return f.life.Load()&lifeClosed != 0 }

// incref takes a reference, so that the descriptor stays open.
func (f *FD) incref() error {
	for {
		old := f.life.Load()
		if old&lifeClosed != 0 {
			return ErrClosed
		}
		if old&lifeRefs == lifeRefs {
			panic("loop: too many concurrent calls on one descriptor")
		}
		if f.life.CompareAndSwap(old, old+1) {
			return nil
		}
	}
}

// decref drops the reference of a call.
func (f *FD) decref() {
	if f.dropped() {
		f.destroy() // Close, which waits, can't know an error of close(2): as in package net
		f.gone <- struct{}{}
	}
}

// dropped drops a reference and reports whether it was the last one to a closed
// descriptor: then it is the caller's to destroy.
func (f *FD) dropped() bool { return f.life.Add(^uint32(0)) == lifeClosed }

// destroy gives everything back. It runs once, when nobody else uses f.
func (f *FD) destroy() error {
	if f.timed {
		f.loop.timers.disarm(f)
	}
	f.loop.vacate(f.token)
	if f.exposed.Load() {
		f.loop.poller.del(int(f.sysfd))
	}
	errno := sys.Close(int(f.sysfd))
	f.loop.group.Release()
	if errno != 0 {
		return errno
	}
	return nil
}

// lock takes a reference and the side.
func (f *FD) lock(s *side) error {
	if err := f.incref(); err != nil {
		return err
	}
	s.mu.Lock()
	if f.closed() { // while we waited for the side
		f.unlock(s)
		return ErrClosed
	}
	return nil
}

func (f *FD) unlock(s *side) {
	s.mu.Unlock()
	f.decref()
}

// sideOf returns the side that t is the timer of.
func (f *FD) sideOf(t *timer) *side {
	if t == &f.wr.timer {
		return &f.wr
	}
	return &f.rd
}
