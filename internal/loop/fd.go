package loop

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/internal/sys"
)

// FD is a connected stream socket registered with a loop. Its methods do what percore.Conn promises for
// those of the same name. Errors are raw: a syscall.Errno, io.EOF, [ErrClosed] or
// [os.ErrDeadlineExceeded]; the caller wraps them.
//
// All methods are safe for concurrent use. Reads are serialized among themselves, and so are writes,
// each for the whole call, except that ReadReady lets other reads go first while it asks for memory.
type FD struct {
	// immutable
	loop  *Loop
	token token
	sysfd int32
	kind  StreamKind

	// guarded by the loop's timers
	timed bool // a deadline was in the wheel once

	// guarded by rd.mu
	drained bool // the function of a Stream's Read says so: see Stream.Drained

	// atomic
	life    life
	exposed atomic.Bool                  // the raw descriptor was handed to the user, who may have duplicated it
	watcher atomic.Pointer[EventHandler] // see Watch

	callback struct {
		sync.Mutex
		handler ReadableHandler // nil: none is armed
	}

	rd, wr half
}

// StreamKind says how much a short read proves.
type StreamKind uint8

const (
	// Plain streams promise nothing: a unix socket ends a read early at ancillary data (unix(7)).
	Plain StreamKind = iota

	// TCP streams have been used up when a read returns less than it asked for (epoll(7),
	// "Questions and answers", 9), except at an urgent mark, which EPOLLPRI reports.
	TCP
)

// maxRW bounds one system call: some kernels refuse to transfer 2 GiB and more at once.
const maxRW = 1 << 30

// NewFD registers sysfd, a connected, non-blocking, close-on-exec stream socket, and owns it from then
// on; if NewFD fails, the caller still owns it.
func (l *Loop) NewFD(sysfd int, kind StreamKind) (*FD, error) {
	f := &FD{loop: l, sysfd: int32(sysfd), kind: kind}
	if kind != TCP {
		f.rd.state.Store(shortReadUnreliable)
	}
	if err := l.allocSlot(f); err != nil {
		return nil, err
	}
	if errno := l.poller.add(sysfd, f.token); errno != 0 {
		l.freeSlot(f)
		l.group.Release()
		return nil, os.NewSyscallError("epoll_ctl", errno)
	}
	return f, nil
}

// Loop returns the descriptor's loop.
func (f *FD) Loop() *Loop { return f.loop }

// onReady passes an event of a batch on, for the goroutine that polls the loop in its turn: a guest has
// deliverAsGuest. It reports whether it has woken a reader, and whether it has called the callback.
func (f *FD) onReady(r Readiness, batch uint32) (woken, called bool) {
	woken = f.wakeWaiters(r, batch)
	if f.loop.onLoop() {
		called = f.tell(r)
	} else {
		f.tellLater(r)
	}
	return woken, called
}

// wakeWaiters notes an event, wakes the goroutines that wait for it, and reports whether one of them
// reads.
func (f *FD) wakeWaiters(r Readiness, batch uint32) (woken bool) {
	if r&Readable != 0 {
		bits := ready
		if r&Hangup != 0 {
			bits |= hangup
		}
		if r&Urgent != 0 {
			bits |= shortReadUnreliable
		}
		var by *relay
		if f.loop.guests.line.Crowded() {
			by = &f.loop.relay
		}
		woken = f.rd.signal(bits, batch, by)
	}
	if r&Writable != 0 {
		f.wr.signal(ready, 0, nil)
	}
	return woken
}

// tell notifies the watcher or the callback of an event; there is at most one of them. It runs on the
// loop's goroutine, and may not return (runtime.Goexit). It reports whether there was a callback.
func (f *FD) tell(r Readiness) (called bool) {
	if h := f.watcher.Load(); h != nil {
		f.loop.watched = true
		(*h).OnEvent(r)
	}
	if r&Readable == 0 {
		return false
	}
	h := f.takeCallback(false)
	if h == nil {
		return false
	}
	f.loop.beginCalls()
	h.OnReadable(nil)
	return true
}

// tellLater makes the loop's goroutine call tell once it runs its tasks, if there is a watcher or a
// callback.
func (f *FD) tellLater(r Readiness) {
	if f.watcher.Load() != nil || r&Readable != 0 && f.rd.state.Load()&armed != 0 {
		f.loop.Submit(func() { f.tell(r) })
	}
}

// Read reads up to len(p) bytes, waiting until there are any. With an empty p it returns at once.
func (f *FD) Read(p []byte) (n int, err error) {
	switch err := f.begin(&f.rd); {
	case err == errTimeout && len(p) == 0:
		return 0, nil // a read of nothing has no deadline, as in package net
	case err != nil:
		return 0, err
	}
	var interrupted error
	if len(p) > 0 {
		interrupted = f.waitThenTry(func(uintptr) (done bool) {
			n, done, err = f.recv(p)
			return done
		})
	}
	f.end(&f.rd)
	if interrupted != nil {
		return 0, interrupted
	}
	return n, err
}

// recv makes the system call of a read that cleared ready, and sets ready again if there may be more.
// done is false if there was nothing to read.
func (f *FD) recv(p []byte) (n int, done bool, err error) {
	if len(p) > maxRW {
		p = p[:maxRW]
	}
	long := sys.IsLongRecv(len(p))
	if long {
		f.rd.state.Or(longCall)
	}
	n, errno := sys.Recv(int(f.sysfd), p, f.wr.state.Load()&longCall != 0)
	if long {
		f.rd.state.And(^longCall)
	}
	if errno == syscall.EAGAIN {
		f.doubtEAGAIN()
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

// doubtEAGAIN sets ready again, after a read that found nothing, if there is something to read after
// all. At an urgent mark recv(2) also says EAGAIN if a signal is about to be delivered to the thread
// (net/ipv4/tcp.c, tcp_recvmsg_locked), and Go's runtime preempts goroutines with signals. No further
// edge reports the bytes behind the mark.
func (f *FD) doubtEAGAIN() {
	if f.kind == TCP && f.rd.state.Load()&shortReadUnreliable != 0 && sys.HasData(int(f.sysfd)) {
		f.rd.setReady(f)
	}
}

// ReadReady is Read into memory that it asks for only when there may be something to read. lend and
// takeBack are called in turn, any number of times. lend may block: neither Close nor other reads wait
// for it, and other reads may take the bytes for which it was called.
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

// TryRead is Read that does not wait: it returns 0 and nil if there is nothing to read.
func (f *FD) TryRead(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, done, err := f.tryRead(p)
		if done || f.rd.state.Load()&ready == 0 {
			return n, err
		}
		// A signal came first (EINTR): no edge will report bytes that are already there.
	}
}

// ReadNow is TryRead for callers that can't wait for the next edge: it asks the kernel even if the loop
// has not reported anything yet.
func (f *FD) ReadNow(p []byte) (int, error) {
	f.rd.setReady(f)
	return f.TryRead(p)
}

// awaitReadable waits until a read may find something.
func (f *FD) awaitReadable() error {
	if err := f.begin(&f.rd); err != nil {
		return err
	}
	defer f.end(&f.rd)
	return f.awaitReady()
}

// tryRead is a Read that does not wait. done is false if there is nothing to read.
func (f *FD) tryRead(p []byte) (n int, done bool, err error) {
	if err := f.begin(&f.rd); err != nil {
		return 0, true, err
	}
	defer f.end(&f.rd)
	if !f.rd.clearReady() {
		return 0, false, nil // another read was faster
	}
	return f.recv(p)
}

// Write writes all of p, waiting whenever the kernel's buffer is full.
func (f *FD) Write(p []byte) (n int, err error) {
	if err := f.begin(&f.wr); err != nil {
		return 0, err
	}
	interrupted := f.tryThenWait(&f.wr, func(uintptr) (done bool) {
		var sent int
		sent, done, err = f.send(p[n:])
		n += sent
		return done
	})
	f.end(&f.wr)
	if interrupted != nil {
		return n, interrupted
	}
	return n, err
}

// send makes the system calls of a write, until the kernel has taken all of p. done is false if the
// kernel's buffer is full.
func (f *FD) send(p []byte) (n int, done bool, err error) {
	f.answer()
	for {
		chunk := p[n:min(len(p), n+maxRW)]
		long := sys.IsLongSend(len(chunk))
		if long {
			f.wr.state.Or(longCall)
		}
		sent, errno := sys.Send(int(f.sysfd), chunk, f.rd.state.Load()&longCall != 0)
		if long {
			f.wr.state.And(^longCall)
		}
		n += sent
		switch {
		case errno == syscall.EAGAIN:
			return n, false, nil // and the kernel has noted that room is wanted: an edge will come
		case errno == syscall.EINTR:
		case errno != 0:
			return n, true, errno
		case n == len(p):
			return n, true, nil
		case sent == 0:
			return n, true, io.ErrUnexpectedEOF
		}
		// A part was taken: there is no more room, or no more memory behind p (EFAULT), which no edge
		// would report.
	}
}

// begin takes the half for a call, or returns why the call must not even try. While the half is held the
// descriptor stays open, because Close takes both halves: a read or a write needs no reference.
func (f *FD) begin(h *half) error {
	h.mu.Lock()
	if err := h.check(f); err != nil {
		h.mu.Unlock()
		return err
	}
	return nil
}

func (f *FD) end(h *half) { h.mu.Unlock() }

// waitThenTry is the loop of reads: it calls try with the descriptor whenever a read may find
// something, until try reports true. It fails if the wait does. The caller holds the read half.
//
// Ready is cleared before the system call that try makes, never after it: see half.
func (f *FD) waitThenTry(try func(fd uintptr) (done bool)) error {
	for {
		if err := f.awaitReady(); err != nil {
			return err
		}
		f.rd.clearReady()
		if try(uintptr(f.sysfd)) {
			return nil
		}
	}
}

// tryThenWait is the loop of writes, which usually find room, and of raw calls: it calls try at once,
// and then whenever there may be something to do, until try reports true. It fails if the wait does.
// The caller holds h.
//
// Ready is cleared before the system call that try makes, never after it: see half. An edge that
// came before is used up by that call, and one that comes after it ends the wait at once.
func (f *FD) tryThenWait(h *half, try func(fd uintptr) (done bool)) error {
	for {
		h.clearReady()
		if try(uintptr(f.sysfd)) {
			return nil
		}
		if err := f.wait(h); err != nil {
			return err
		}
	}
}

// awaitReady is awaitReadable for a caller that holds the read half.
func (f *FD) awaitReady() error {
	for f.rd.state.Load()&ready == 0 {
		if err := f.wait(&f.rd); err != nil {
			return err
		}
	}
	return nil
}

// wait parks the caller, which holds h, until there may be something to do. The first wait for room to
// write extends the registration, which causes an edge if there already is room.
func (f *FD) wait(h *half) error {
	if h != &f.wr {
		return h.wait(f)
	}
	if err := f.expectRoom(); err != nil {
		return err
	}
	return f.waitForRoom()
}

// Shutdown is shutdown(2).
func (f *FD) Shutdown(how int) error {
	return f.Control(func(fd int) syscall.Errno { return sys.Shutdown(fd, how) })
}

// SetDeadline sets both deadlines.
func (f *FD) SetDeadline(t time.Time) error { return f.setDeadlines(t, &f.rd, &f.wr) }

// SetReadDeadline sets the deadline of reads. A time in the past takes effect before it returns.
func (f *FD) SetReadDeadline(t time.Time) error { return f.setDeadlines(t, &f.rd, nil) }

// SetWriteDeadline sets the deadline of writes.
func (f *FD) SetWriteDeadline(t time.Time) error { return f.setDeadlines(t, nil, &f.wr) }

func (f *FD) setDeadlines(t time.Time, rd, wr *half) error {
	if f.life.closed() {
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

// SetNoWait sets whether reads that find nothing fail with [ErrWouldWait] instead of waiting.
func (f *FD) SetNoWait(on bool) error {
	if err := f.life.incref(); err != nil {
		return err
	}
	defer f.decref()
	if !on {
		f.rd.state.And(^noWait)
		return nil
	}
	f.rd.state.Or(noWait)
	f.rd.endWait(f)
	return nil
}

// Close closes the descriptor. Blocked calls are woken and fail with [ErrClosed], and so does every
// later call, including Close. When Close returns, the descriptor is closed in the kernel. It returns
// the error of close(2), if this call made it.
//
// The order is: mark closed, wake the waiters, wait for the halves and for the last
// reference, take the timers and the registration away, close. The call that drops the last
// reference closes the descriptor, and Close drops its own only when it has had both halves:
// the number can't be reused while a call or the loop still uses it.
func (f *FD) Close() error {
	if !f.life.close() {
		return ErrClosed
	}
	f.rd.interrupt(f)
	f.wr.interrupt(f)
	f.loop.direct.kick(f)
	f.rd.drain()
	f.wr.drain()
	p := getParker(f.loop)
	defer putParker(p)
	f.rd.parker = p // no goroutine waits to read any more
	last := f.rd.leaveBatch(f.loop)
	if last {
		defer f.loop.visit(false, (*poller).glance)
	}
	if f.life.drop() {
		return f.destroy()
	}
	<-p
	return nil
}

// drain waits for the calls that hold the half or are in line for it. The latter find f closed.
func (h *half) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
}

// decref drops the reference of a call. Close waits for the last one.
func (f *FD) decref() {
	if f.life.drop() {
		_ = f.destroy() // Close can't know an error of close(2) here: as in package net
		f.rd.wakeParked()
	}
}

// destroy gives everything back. It runs once, when f has no other user.
func (f *FD) destroy() error {
	if f.timed {
		f.loop.timers.disarm(f)
	}
	f.loop.direct.forget(f)
	f.loop.freeSlot(f)
	if f.exposed.Load() || closeIsExpensive {
		f.loop.poller.del(int(f.sysfd))
	}
	errno := sys.Close(int(f.sysfd))
	f.loop.group.Release()
	if errno != 0 {
		return errno
	}
	return nil
}

func (f *FD) awaited() bool { return f.rd.awaited() || f.wr.awaited() || f.watcher.Load() != nil }

// halfOf returns the half whose timer is t, which was in the wheel.
func (f *FD) halfOf(t *timer) *half {
	if t == f.wr.timer.Load() {
		return &f.wr
	}
	return &f.rd
}
