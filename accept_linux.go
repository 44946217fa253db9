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

// acceptor takes connections from one listening socket and puts them into a
// queue. Its loop tells it when there are any; everything it does for that is
// done on the loop's goroutine.
//
// It is in one of these states:
//
//	state     accept does                     leaves by
//	ready     accepts until EAGAIN            queue full: paused; no resources: put off; Close
//	paused    nothing; the queue knows it     Accept making room: ready
//	put off   nothing; a timer runs           the timer: ready
//	closed    nothing                         (final)
//
// An edge that comes while it is paused or put off is not lost: when it is ready
// again it accepts without waiting for another.
type acceptor struct {
	// immutable
	listener *listener
	loop     *loop.Loop
	fd       int

	mu struct {
		sync.Mutex // held while the socket is in use, never for long
		token      loop.Token
		started    bool // token is valid
		closed     bool
		paused     bool
		retry      *time.Timer   // runs while put off
		delay      time.Duration // the last one; 0 after a success
		reported   time.Time     // when the user was last told
	}
}

// After a failure for lack of resources an acceptor waits this long before it
// tries again: doubling, as net/http does, so that a short dip costs little and
// a long one no processor time. Who wants to be told is told once per period.
const (
	putOffMin    = 5 * time.Millisecond
	putOffMax    = time.Second
	reportPeriod = time.Minute
)

// start registers the socket. What waits in its backlog already is an edge.
func (a *acceptor) start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	token, err := a.loop.Register(a.fd, a)
	a.mu.token, a.mu.started = token, err == nil
	return err
}

// OnReady implements loop.Handler.
func (a *acceptor) OnReady(loop.Readiness) { a.accept() }

// resume accepts again, on the loop.
func (a *acceptor) resume() {
	a.loop.Submit(func() {
		a.mu.Lock()
		a.mu.paused = false
		a.mu.retry = nil
		a.mu.Unlock()
		a.accept()
	})
}

// accept takes a batch of connections. If more may wait it comes again after the
// loop has looked after the others.
func (a *acceptor) accept() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed || a.mu.paused || a.mu.retry != nil {
		return
	}
	var from unix.RawSockaddrAny
	for range acceptBatch {
		to := a.loop
		if a.listener.spread {
			to = to.Group().LeastLoaded()
		}
		q := a.listener.queueOf(to)
		if !q.admit(a) {
			a.mu.paused = true
			return
		}
		from = unix.RawSockaddrAny{} // unixAddr relies on it
		nfd, _, errno := sys.Accept4(a.fd, &from)
		if errno == 0 {
			err := a.deliver(to, q, nfd, &from)
			if err == nil {
				a.mu.delay = 0
				continue
			}
			a.putOffLocked(err)
			return
		}
		switch fateOf(errno) {
		case acceptDrained:
			return
		case acceptSkip:
			continue
		case acceptPutOff:
			a.putOffLocked(os.NewSyscallError("accept4", errno))
			return
		case acceptBroken:
			q.fail(os.NewSyscallError("accept4", errno))
			return
		}
	}
	a.loop.Submit(a.accept)
}

// deliver makes a connection of nfd on the loop to, and queues it. If it fails
// nfd is closed.
func (a *acceptor) deliver(to *loop.Loop, q *acceptQueue, nfd int, from *unix.RawSockaddrAny) error {
	c, err := newConn(to, nfd, a.listener.origin, from)
	if err != nil {
		return err
	}
	a.listener.accepted.Add(1)
	if !q.push(c) {
		reset(c)
	}
	return nil
}

// reset closes a connection that nobody was given, as the kernel would have
// closed it had it still been in the backlog.
func reset(c *Conn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// putOffLocked has accept tried again later.
func (a *acceptor) putOffLocked(err error) {
	a.mu.delay = min(max(2*a.mu.delay, putOffMin), putOffMax)
	a.mu.retry = time.AfterFunc(a.mu.delay, a.resume)
	a.listener.putOff.Add(1)
	if now := time.Now(); now.Sub(a.mu.reported) >= reportPeriod {
		a.mu.reported = now
		a.listener.report(err)
	}
}

// finish waits until a batch that was being accepted is queued.
func (a *acceptor) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
}

// control calls f with the socket, which stays open meanwhile.
func (a *acceptor) control(f func(fd uintptr)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return net.ErrClosed
	}
	f(uintptr(a.fd))
	return nil
}

// file returns a copy of the socket. Its descriptor stays non-blocking even when
// it is asked for by Fd (the flag is shared, and a blocking accept4 would hold
// the loop).
func (a *acceptor) file() (*os.File, error) {
	var fd int
	var errno syscall.Errno
	if err := a.control(func(s uintptr) { fd, errno = sys.Dup(int(s)) }); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(uintptr(fd), a.listener.network+":"+a.listener.addr.String()+"->"), nil
}

// close ends the acceptor and closes its socket.
func (a *acceptor) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return
	}
	a.mu.closed = true
	if a.mu.retry != nil {
		a.mu.retry.Stop()
	}
	if a.mu.started {
		// Copies of the socket may live on, in a successor or with the user.
		a.loop.Deregister(a.mu.token, a.fd, true)
	}
	sys.Close(a.fd)
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

// acceptQueue holds connections between the loops that accept them and the
// goroutines that call Accept. It is safe for concurrent use.
type acceptQueue struct {
	max int

	mu struct {
		sync.Mutex
		more     sync.Cond // something changed that Accept waits for
		conns    []*Conn   // oldest first, from head on
		head     int
		paused   []*acceptor // waiting for room
		err      error       // what every Accept fails with, for good
		expired  bool        // the deadline has passed
		deadline *time.Timer
	}
	pauses atomic.Uint64
}

func newAcceptQueue(max int) *acceptQueue {
	q := &acceptQueue{max: max}
	q.mu.more.L = &q.mu
	return q
}

// len returns how many connections wait.
func (q *acceptQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lenLocked()
}

func (q *acceptQueue) lenLocked() int { return len(q.mu.conns) - q.mu.head }

// admit reports whether there is room for another connection. If not, a is
// resumed when there is. Several acceptors may be admitted to the last place;
// that much the queue grows over its bound.
func (q *acceptQueue) admit(a *acceptor) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lenLocked() < q.max || q.mu.err != nil {
		return true
	}
	q.mu.paused = append(q.mu.paused, a)
	q.pauses.Add(1)
	return false
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
	// Half empty: then a paused acceptor has a batch's work before it stops again.
	if len(q.mu.paused) > 0 && q.lenLocked() <= q.max/2 {
		for _, a := range q.mu.paused {
			a.resume()
		}
		q.mu.paused = nil
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
