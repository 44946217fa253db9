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
// themselves, and so are writes, each for the whole call, except that ReadReady lets
// other reads go first while it asks for memory.
//
// # Life
//
//	life              meaning                               leaves by
//	refs, open        in use; refs calls other than reads   Close: sets closed, adds 1
//	                  and writes are under way
//	refs, closed      calls fail; those under way are       the last call's decref
//	                  being woken and leave
//	0, closed         the descriptor is closed, the slot    (final)
//	                  is free, and no call touches it again
//
// A read or a write holds its half instead of a reference. The call that drops the
// last reference closes the descriptor, and Close drops its own only when it has
// had both halves, so the number can't be reused while a call or the loop still goes
// by it. The order is: mark closed, wake the waiters, wait for the halves and for
// the last reference, take the timers and the registration away, close.
type FD struct {
	// immutable
	loop   *Loop
	token  token
	sysfd  int32
	stream StreamKind

	// atomic
	life    atomic.Uint32 // see the table; lifeClosed | number of references
	exposed atomic.Bool   // the raw descriptor was handed to the user, who may have duplicated it

	// guarded by the loop's timers
	timed bool // a deadline was in the wheel once

	// guarded by wr.mu
	watchesWrites bool // the registration includes room to write

	// guarded by rd.mu
	drained bool // what the function of a ReadWith says: see Drained

	rd, wr half
}

const (
	lifeClosed uint32 = 1 << 31
	lifeRefs          = lifeClosed - 1
)

// StreamKind says how much a short read proves.
type StreamKind uint8

const (
	// Plain streams promise nothing: a unix socket ends a read early at
	// ancillary data (unix(7)).
	Plain StreamKind = iota

	// TCP streams have been used up when a read returns less than it asked for
	// (epoll(7), "Questions and answers", 9), except at an urgent mark, which EPOLLPRI
	// tells of.
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
		f.rd.state.Store(shortReadUnreliable)
	}
	t, err := l.allocSlot(f)
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

// onReady notes what an event says and wakes the goroutines that wait for it. Only
// the goroutine that polls the loop calls it.
func (f *FD) onReady(r Readiness) {
	if r&Readable != 0 {
		bits := ready
		if r&Hangup != 0 {
			bits |= hangup
		}
		if r&Urgent != 0 {
			bits |= shortReadUnreliable
		}
		f.rd.signal(bits)
	}
	if r&Writable != 0 {
		f.wr.signal(ready)
	}
	if r&Readable == 0 {
		return
	}
	// Last, since a callback may not return (runtime.Goexit).
	if h := f.rd.takeCallback(); h != nil {
		if f.loop.onLoop() {
			h.OnReadable(nil)
		} else {
			f.loop.Submit(func() { h.OnReadable(nil) })
		}
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
	for {
		if err := f.awaitRead(); err != nil {
			return 0, err
		}
		f.rd.clearReady()
		if n, done, err := f.recv(p); done {
			return n, err
		}
	}
}

// awaitRead waits, for a caller who holds the read half, until a read may find
// something.
func (f *FD) awaitRead() error {
	for f.rd.state.Load()&ready == 0 {
		if err := f.wait(&f.rd); err != nil {
			return err
		}
	}
	return nil
}

// recv makes the system call of a read that cleared ready, and sets ready again
// if there may be more. It isn't done if there was nothing to read.
func (f *FD) recv(p []byte) (n int, done bool, err error) {
	if len(p) > maxRW {
		p = p[:maxRW]
	}
	n, errno := sys.Recv(int(f.sysfd), p)
	if errno == syscall.EAGAIN {
		return 0, false, nil
	}
	if 0 < n && n < len(p) && f.rd.shortReadReliable() {
		return n, true, nil // drained: the next read waits for an edge without asking the kernel
	}
	f.rd.setReady(f)
	switch {
	case errno == syscall.EINTR:
		return 0, false, nil
	case errno != 0:
		return 0, true, errno
	case n == 0:
		return 0, true, io.EOF
	}
	return n, true, nil
}

// ReadReady is Read into memory that is found only when there may be something
// to read, so that a call that waits holds none. lend returns the memory; up to
// its length is read straight into it. takeBack is called, next, if nothing was:
// there turned out to be nothing, and ReadReady waits again; the stream has
// ended; or reading failed. So what lend returned last is the caller's to look
// after exactly if n > 0.
//
// Both run on the caller's goroutine and must not read from f. They are called
// any number of times, in turn, not at all if the call fails before there is
// anything. If lend returns an empty slice ReadReady returns 0 and nil. lend may
// block: neither Close nor other reads wait for it, and the latter may read what it
// was called for.
func (f *FD) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	for {
		if err := f.awaitReadable(); err != nil {
			return 0, err
		}
		p := lend()
		if len(p) == 0 {
			takeBack()
			return 0, nil
		}
		n, done, err := f.tryRead(p)
		if n == 0 {
			takeBack()
		}
		if done {
			return n, err
		}
	}
}

// awaitReadable waits until a read may find something, and leaves it to that.
func (f *FD) awaitReadable() error {
	if err := f.lock(&f.rd); err != nil {
		return err
	}
	defer f.unlock(&f.rd)
	if err := f.rd.check(f); err != nil {
		return err
	}
	return f.awaitRead()
}

// tryRead is a Read that does not wait. It isn't done if there is nothing to read.
func (f *FD) tryRead(p []byte) (n int, done bool, err error) {
	if err := f.lock(&f.rd); err != nil {
		return 0, true, err
	}
	defer f.unlock(&f.rd)
	if err := f.rd.check(f); err != nil {
		return 0, true, err
	}
	if !f.rd.clearReady() {
		return 0, false, nil // another read was faster
	}
	return f.recv(p)
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
		case errno == syscall.EINTR, errno == 0:
			continue // a part: no more room, or no more memory behind p (EFAULT), of which no edge would tell
		case errno != 0 && errno != syscall.EAGAIN:
			return done, errno
		}
		// The buffer is full, and the kernel knows that we want to hear of room. ready is
		// what is left from before, or an edge since: one more try uses it up.
		if f.wr.clearReady() {
			continue
		}
		if err := f.wait(&f.wr); err != nil {
			return done, err
		}
		f.wr.clearReady()
	}
}

// wait parks the caller, who holds s, until there may be something to do. The
// first wait for room to write extends the registration, which is an edge if
// there is room by now.
func (f *FD) wait(s *half) error {
	if s == &f.wr && !f.watchesWrites {
		if err := f.loop.watchWrites(f.token, int(f.sysfd)); err != nil {
			return err
		}
		f.watchesWrites = true
	}
	return s.wait(f)
}

// RawRead calls fn with the descriptor until it reports true, waiting before
// each further call until the descriptor may be readable. It holds the reading
// half meanwhile. fn must not close the descriptor or keep it.
func (f *FD) RawRead(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.rd, fn) }

// RawWrite is RawRead for writing.
func (f *FD) RawWrite(fn func(fd uintptr) (done bool)) error { return f.rawIO(&f.wr, fn) }

func (f *FD) rawIO(s *half, fn func(fd uintptr) bool) error {
	if err := f.lock(s); err != nil {
		return err
	}
	defer f.unlock(s) // fn may panic
	if err := s.check(f); err != nil {
		return err
	}
	f.beginRaw()
	defer f.endRaw()
	defer s.setReady(f) // the state that fn left behind is not known
	for {
		s.clearReady()
		if fn(uintptr(f.sysfd)) {
			return nil
		}
		if err := f.wait(s); err != nil {
			return err
		}
	}
}

// ReadWith is RawRead for callers that vouch for fn: that it neither duplicates the
// descriptor nor changes the meaning of its reads and writes, and that it reports
// false only after a system call on the descriptor has said EAGAIN. So what the
// engine knows of the descriptor stays true: fn is not called before there may be
// something to read, and the reads that follow are not slower for it.
//
// The half is held from the first call of fn to the last, waiting included.
func (f *FD) ReadWith(fn func(fd uintptr) (done bool)) error {
	if err := f.lock(&f.rd); err != nil {
		return err
	}
	defer f.unlock(&f.rd) // fn may panic
	if err := f.rd.check(f); err != nil {
		return err
	}
	for {
		if err := f.awaitRead(); err != nil {
			return err
		}
		f.rd.clearReady()
		if f.callWith(fn) {
			return nil
		}
	}
}

// Drained is for the function of a ReadWith: its last read from the descriptor has
// returned something, but less than it asked for.
func (f *FD) Drained() { f.drained = true }

// Marked reports, to ReadWith's fn, whether there may be an urgent mark in the stream:
// there splice(2) says EAGAIN (0 if the end is near), however much is behind it, while
// a read goes on.
func (f *FD) Marked() bool { return f.stream == TCP && f.rd.state.Load()&shortReadUnreliable != 0 }

// callWith calls fn after ready was cleared, and sets it again unless fn has found
// nothing to read, or says that nothing is left: otherwise that is not known.
func (f *FD) callWith(fn func(fd uintptr) bool) (done bool) {
	done, f.drained = true, false // if fn panics
	defer func() {
		if done && !(f.drained && f.rd.shortReadReliable()) {
			f.rd.setReady(f)
		}
	}()
	done = fn(uintptr(f.sysfd))
	return done
}

// WriteWith is ReadWith for writing. fn is called at once: there is room most of
// the time. Before it reports false the kernel must have refused to take more
// with EAGAIN, or there will be no edge to wait for.
func (f *FD) WriteWith(fn func(fd uintptr) (done bool)) error {
	if err := f.lock(&f.wr); err != nil {
		return err
	}
	defer f.unlock(&f.wr) // fn may panic
	if err := f.wr.check(f); err != nil {
		return err
	}
	for {
		f.wr.clearReady() // an edge older than this call of fn is no news
		if fn(uintptr(f.sysfd)) {
			return nil
		}
		if err := f.wait(&f.wr); err != nil {
			return err
		}
	}
}

// Exposed reports whether the user has had the raw descriptor, and may have
// made it blocking.
func (f *FD) Exposed() bool { return f.exposed.Load() }

// Closed reports whether Close was called: for a function of ReadWith or WriteWith
// that is long about it, since Close waits for it.
func (f *FD) Closed() bool { return f.closed() }

// RawControl calls fn with the descriptor, which stays open meanwhile. fn must
// not close it or keep it.
func (f *FD) RawControl(fn func(fd uintptr)) error {
	if err := f.incref(); err != nil {
		return err
	}
	defer f.decref()
	f.beginRaw()
	defer f.endRaw() // fn may panic
	fn(uintptr(f.sysfd))
	return nil
}

// beginRaw begins a use of the raw descriptor by the user's code, which endRaw
// ends. Most uses change nothing: gRPC looks at four options of every connection
// it gets, database drivers look for a byte before each use, and net.TCPConn's
// ReadFrom tries whether sendfile can read from here. So the effect on the socket is
// not assumed but asked for, at the end. Until then a short read is not relied on.
func (f *FD) beginRaw() {
	f.exposed.Store(true)
	f.rd.state.Or(rawInUse)
}

// endRaw ends a use. On a stream whose short reads prove nothing anyway the next
// read asks the kernel, whatever the use was for (SO_RCVLOWAT). On a TCP socket that
// is not plain any more, a reader that waits is woken, too: it may have relied on a short
// read after the end of another use, during this one.
func (f *FD) endRaw() {
	if f.stream != TCP || f.rd.state.Load()&shortReadUnreliable != 0 {
		f.rd.setReady(f)
	} else if !sys.IsPlainTCP(int(f.sysfd)) {
		f.rd.wake(f, ready|shortReadUnreliable)
		f.rd.setReady(f) // to a callback, too
	}
	f.rd.state.And(^rawInUse)
}

// Control is RawControl for callers that vouch for fn: that it neither
// duplicates the descriptor nor changes the meaning of its reads and writes.
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
//
// A duplicate is a use without an end: its owner may make the socket a TLS socket
// at any time (tcp(7), TCP_ULP). So a short read proves nothing from now on, and a
// close leaves the duplicate registered.
func (f *FD) Dup() (int, error) {
	if err := f.incref(); err != nil {
		return -1, err
	}
	defer f.decref()
	f.exposed.Store(true)
	f.rd.state.Or(shortReadUnreliable)
	f.rd.setReady(f)
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

func (f *FD) setDeadlines(t time.Time, rd, wr *half) error {
	if f.closed() {
		return ErrClosed
	}
	at := deadlineOf(t)
	if rd != nil {
		rd.setDeadline(f, at)
	}
	if wr != nil {
		wr.setDeadline(f, at)
	}
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
func (f *FD) OnReadable(fn func(error)) error { return f.NotifyReadable(readableFunc(fn)) }

// ReadableHandler is the handler for NotifyReadable.
type ReadableHandler interface {
	// OnReadable runs on the loop's goroutine and must not block.
	OnReadable(err error)
}

// readableFunc is a function as a ReadableHandler.
type readableFunc func(error)

func (fn readableFunc) OnReadable(err error) { fn(err) }

// NotifyReadable is OnReadable for a handler instead of a function: with one that
// is there already, as the object that owns the descriptor is, an armed callback
// costs 16 bytes.
func (f *FD) NotifyReadable(h ReadableHandler) error {
	if err := f.incref(); err != nil {
		return err
	}
	defer f.decref()
	s := &f.rd
	if err := s.check(f); err != nil {
		return err
	}
	if !s.callback.CompareAndSwap(nil, &h) {
		return ErrArmed
	}
	// Published. Only this call tells h about events before that.
	switch {
	case s.check(f) != nil:
		s.interrupt(f)
	case s.state.Load()&ready != 0:
		f.recheck()
	}
	f.loop.ensurePolled()
	return nil
}

// recheck finds out what a ready that may be old is worth: after a read that need
// not have used everything up, most often nothing. It is turned off
// before the kernel is asked, as for a read, and on again for the waiter. For a
// read it stays on if the user may have set SO_RCVLOWAT, which poll(2) heeds and
// recv(2) does not.
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

// AtEnd reports whether the peer has ended the stream, or reset it, and no byte of it is
// unread: the next read finds the end, or the error, at once. It takes neither away and
// doesn't wait. false proves nothing: the news may be under way, or nothing waits for the
// descriptor, so that it is not polled.
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
	f.rd.drain()
	f.wr.drain()
	p := getParker(f.loop)
	defer putParker(p)
	f.rd.parker = p // no goroutine waits to read any more
	last, err := f.drop()
	if !last {
		<-p
	}
	return err
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
	if last, _ := f.drop(); last { // Close, which waits, can't know an error of close(2): as in package net
		f.rd.parker <- struct{}{}
	}
}

// drop drops a reference. The last one to a closed descriptor destroys it.
func (f *FD) drop() (last bool, err error) {
	if f.life.Add(^uint32(0)) == lifeClosed {
		return true, f.destroy()
	}
	return false, nil
}

// destroy gives everything back. It runs once, when f has no other user.
func (f *FD) destroy() error {
	if f.timed {
		f.loop.timers.disarm(f)
	}
	f.loop.freeSlot(f.token)
	if f.exposed.Load() || closeIsDear {
		f.loop.poller.del(int(f.sysfd))
	}
	errno := sys.Close(int(f.sysfd))
	f.loop.group.Release()
	if errno != 0 {
		return errno
	}
	return nil
}

// lock takes the half for a call. As long as it is held the descriptor stays
// open, which saves a read or a write a reference of its own: Close takes both
// halves before it lets go.
func (f *FD) lock(s *half) error {
	s.mu.Lock()
	if f.closed() {
		s.mu.Unlock()
		return ErrClosed
	}
	return nil
}

func (f *FD) unlock(s *half) { s.mu.Unlock() }

// drain waits for the calls that hold the half or are in line for it. Those in
// line find the descriptor closed.
func (s *half) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// halfOf returns the half that t is the timer of.
func (f *FD) halfOf(t *timer) *half {
	if t == &f.wr.timer {
		return &f.wr
	}
	return &f.rd
}
