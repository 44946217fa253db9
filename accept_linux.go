//go:build !percore_net

package percore

import (
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/loop"
)

// acceptor takes connections from one listening socket, makes each of them a
// Conn on the socket's loop (or on the least-loaded one) and queues it. It is a
// goroutine that the Go runtime's poller wakes when connections wait, and that
// then accepts until none does.
//
// A full queue blocks it, which leaves further connections in the kernel's
// backlog.
type acceptor struct {
	// immutable
	listener *listener
	loop     *loop.Loop
	file     *os.File        // owns the socket
	raw      syscall.RawConn // file's

	// owned by the goroutine
	delay    time.Duration // for how long accepting was put off last; 0 after a success
	reported time.Time     // when the user was last told
}

// After a failure for lack of resources an acceptor waits this long before it
// tries again: doubling, as net/http does, so that a short dip costs little and
// a long one no processor time. Who wants to be told is told once per period.
const (
	putOffMin    = 5 * time.Millisecond
	putOffMax    = time.Second
	reportPeriod = time.Minute
)

// newAcceptor makes an acceptor of fd, a listening, non-blocking socket, and
// owns it from then on, also if it fails.
func newAcceptor(l *listener, on *loop.Loop, fd int) (*acceptor, error) {
	name := l.network + ":" + l.addr.String() + "->" // as package net calls it
	a := &acceptor{listener: l, loop: on, file: os.NewFile(uintptr(fd), name)}
	// Fails if the runtime's poller did not take the socket.
	err := a.file.SetReadDeadline(time.Time{})
	if err == nil {
		a.raw, err = a.file.SyscallConn()
	}
	if err != nil {
		a.file.Close()
		return nil, err
	}
	return a, nil
}

// run accepts until the acceptor is closed or its socket broken.
func (a *acceptor) run() {
	// Read calls its function, waits until the socket is readable each time
	// that returns false, and fails when the file is closed.
	_ = a.raw.Read(func(fd uintptr) (done bool) { return a.accept(int(fd)) })
}

// accept takes all connections that wait. It reports true if there will never be
// more.
func (a *acceptor) accept(fd int) (done bool) {
	var from unix.RawSockaddrAny
	for {
		to := a.loop
		if a.listener.spread {
			to = to.Group().LeastLoaded()
		}
		if !a.listener.admit(to) {
			return true
		}
		from = unix.RawSockaddrAny{} // unixAddr relies on it
		nfd, _, errno := sys.Accept4(fd, &from)
		if errno == 0 {
			c, err := newConn(to, nfd, a.listener.origin, &from)
			if err != nil {
				a.putOff(err)
				continue
			}
			a.delay = 0
			a.listener.deliver(c)
			continue
		}
		switch fateOf(errno) {
		case acceptDrained:
			return false
		case acceptPutOff:
			a.putOff(os.NewSyscallError("accept4", errno))
		case acceptBroken:
			a.listener.fail(os.NewSyscallError("accept4", errno))
			return true
		}
	}
}

// putOff waits before the next try. Closing the listener ends the wait.
func (a *acceptor) putOff(err error) {
	a.listener.putOffs.Add(1)
	if now := time.Now(); now.Sub(a.reported) >= reportPeriod {
		a.reported = now
		a.listener.report(err)
	}
	a.delay = min(max(2*a.delay, putOffMin), putOffMax)
	select {
	case <-time.After(a.delay):
	case <-a.listener.closing:
	}
}

// control calls f with the socket, which stays open meanwhile.
func (a *acceptor) control(f func(fd uintptr)) error {
	if err := a.raw.Control(f); err != nil {
		return net.ErrClosed // the only reason
	}
	return nil
}

// dup returns a copy of the socket. Its descriptor stays non-blocking, also when
// it is asked for by Fd: the flag is the socket's, and a successor's accept4
// must not block either.
func (a *acceptor) dup() (*os.File, error) {
	var fd int
	var errno syscall.Errno
	if err := a.control(func(s uintptr) { fd, errno = sys.Dup(int(s)) }); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(uintptr(fd), a.file.Name()), nil
}

// close closes the socket, once the goroutine doesn't use it any more. The queue
// must have been closed before, or it might wait there.
func (a *acceptor) close() { a.file.Close() }

// reset closes a connection that nobody was given, as the kernel would have
// closed it had it still been in the backlog.
func reset(c *Conn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// acceptFate is what to do about an error of accept4.
type acceptFate uint8

const (
	acceptDrained acceptFate = iota // nothing waits any more
	acceptSkip                      // this one is lost, the next may be fine
	acceptPutOff                    // not now
	acceptBroken                    // never again
)

// fateOf sorts the errors that accept(2) lists.
func fateOf(errno syscall.Errno) acceptFate {
	switch errno {
	case syscall.EAGAIN:
		return acceptDrained
	case syscall.EINTR, syscall.ECONNABORTED, syscall.EPROTO:
		return acceptSkip
	case syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENONET, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		// "already-pending network errors on the new socket"
		return acceptSkip
	case syscall.EBADF, syscall.EFAULT, syscall.EINVAL, syscall.ENOTSOCK:
		// The socket does not listen any more: somebody shut it down.
		return acceptBroken
	}
	// EMFILE, ENFILE, ENOBUFS, ENOMEM; EPERM of a firewall; and whatever else a
	// kernel comes up with, of which all that can be said is not to spin on it.
	return acceptPutOff
}

// acceptQueue holds connections between the acceptors and the goroutines that
// call Accept. It is safe for concurrent use.
type acceptQueue struct {
	max int

	mu struct {
		sync.Mutex
		more     sync.Cond // something changed that pop waits for
		room     sync.Cond // something changed that admit waits for
		conns    []*Conn   // oldest first, from head on
		head     int
		err      error // what every pop fails with, for good
		expired  bool  // the deadline has passed
		deadline *time.Timer
	}
	pauses atomic.Uint64 // times admit had to wait
}

func newAcceptQueue(max int) *acceptQueue {
	q := &acceptQueue{max: max}
	q.mu.more.L, q.mu.room.L = &q.mu, &q.mu
	return q
}

// len returns how many connections wait.
func (q *acceptQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lenLocked()
}

func (q *acceptQueue) lenLocked() int { return len(q.mu.conns) - q.mu.head }

// admit waits until there is room for another connection. It reports false if
// the queue is closed or broken. Several acceptors may be admitted to the last
// place; that much the queue grows over its bound.
func (q *acceptQueue) admit() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lenLocked() < q.max || q.mu.err != nil {
		return q.mu.err == nil
	}
	q.pauses.Add(1)
	// Half empty is where it goes on, so that it doesn't stop again at once.
	for q.lenLocked() > q.max/2 && q.mu.err == nil {
		q.mu.room.Wait()
	}
	return q.mu.err == nil
}

// push adds a connection, unless the queue is closed.
func (q *acceptQueue) push(c *Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return false
	}
	q.mu.conns = append(q.mu.conns, c)
	q.mu.more.Signal()
	return true
}

// pop takes the oldest connection, and waits for one.
func (q *acceptQueue) pop() (*Conn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.mu.err != nil:
			return nil, q.mu.err
		case q.mu.expired:
			return nil, os.ErrDeadlineExceeded
		case q.lenLocked() > 0:
			return q.popLocked(), nil
		}
		q.mu.more.Wait()
	}
}

func (q *acceptQueue) popLocked() *Conn {
	c := q.mu.conns[q.mu.head]
	q.mu.conns[q.mu.head] = nil
	q.mu.head++
	if q.mu.head == len(q.mu.conns) {
		q.mu.conns, q.mu.head = q.mu.conns[:0], 0
	}
	if q.lenLocked() == q.max/2 {
		q.mu.room.Broadcast()
	}
	return c
}

// drain takes all connections.
func (q *acceptQueue) drain() []*Conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	var conns []*Conn
	for q.lenLocked() > 0 {
		conns = append(conns, q.popLocked())
	}
	return conns
}

// fail makes every Accept fail with err, those that wait and those to come, and
// returns false if that was so already.
func (q *acceptQueue) fail(err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err == net.ErrClosed || q.mu.err != nil && err != net.ErrClosed {
		return false
	}
	q.mu.err = err
	if q.mu.deadline != nil {
		q.mu.deadline.Stop()
	}
	q.mu.more.Broadcast()
	q.mu.room.Broadcast()
	return true
}

// setDeadline sets the time from which pop fails.
func (q *acceptQueue) setDeadline(t time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err != nil {
		return q.mu.err
	}
	if q.mu.deadline != nil {
		q.mu.deadline.Stop()
		q.mu.deadline = nil
	}
	q.mu.expired = false
	if t.IsZero() {
		return nil
	}
	if d := time.Until(t); d > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(d, func() { q.expire(timer) })
		q.mu.deadline = timer
		return nil
	}
	q.mu.expired = true
	q.mu.more.Broadcast()
	return nil
}

// expire is the deadline's timer, if it is still the one.
func (q *acceptQueue) expire(timer *time.Timer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.deadline == timer {
		q.mu.expired = true
		q.mu.more.Broadcast()
	}
}

// warnAcceptError is the default of ListenConfig.OnAcceptError.
func warnAcceptError(err error) {
	slog.Warn("percore: accepting connections is put off; the listener recovers by itself", "error", err)
}
