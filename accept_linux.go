//go:build !percore_net

package percore

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
)

// acceptor is where Accept takes connections from: the listener's sockets, or one of them. It has no
// goroutine and no queue: the goroutine that calls Accept waits until one of the sockets is
// readable, and calls accept4 itself. Connections that are not accepted stay in the kernel's
// backlog, which is bounded, and where a successor that got the sockets finds them.
type acceptor struct {
	listener *listener
	ready    *engine.AcceptPoller // of sockets
	sockets  []int                // descriptors, owned by the listener
	first    int                  // the index of sockets[0] among the listener's
	gate     engine.Gate          // look, made once
	pending  pendingConns         // whose PROXY headers are awaited, or have come

	// atomic; for Settled
	waiting     atomic.Int32  // goroutines in Accept that have no connection yet
	waitingMost atomic.Int32  // the most that there were at a time
	lastPause   atomic.Uint64 // listener.pauses when a call of Accept last found the listener paused
}

func (l *listener) newAcceptor(first int, sockets []int) (*acceptor, error) {
	ready, err := engine.NewAcceptPoller(sockets)
	if err != nil {
		return nil, err
	}
	a := &acceptor{listener: l, ready: ready, sockets: sockets, first: first}
	a.gate = a.look
	return a, nil
}

// When resources run out, Accept waits this long before it tries again. The wait doubles each time,
// as in net/http, so a short shortage costs little time and a long one no CPU time. If a connection
// of the process is closed during the wait, Accept tries again at once. Tests change the times.
var (
	backoffMin = 5 * time.Millisecond
	backoffMax = time.Second
)

// reportPeriod is how often the user is notified of a shortage.
const reportPeriod = time.Minute

// starving counts the calls of Accept that wait for resources. Such a call first counts itself, and
// then checks whether a connection was closed since its last try. Closing a connection first counts
// it as closed, and then checks for starving calls. So one of the two sees the other.
var starving atomic.Int64

// feedStarving lets the starving calls of Accept try again, now that a descriptor is free.
func feedStarving() {
	if starving.Load() == 0 {
		return
	}
	for _, l := range listeners.all() {
		for _, a := range l.acceptors() {
			a.ready.Retry()
		}
	}
}

// backoff waits after a try that failed for lack of resources. closed is how many connections had
// been closed when the try began.
func (a *acceptor) backoff(err error, delay time.Duration, closed uint64) error {
	a.listener.reportBackoff(err)
	starving.Add(1)
	defer starving.Add(-1)
	return a.ready.Backoff(delay, func() bool { return conns.closed.Load() != closed })
}

// shortage is an error that passes: Accept waits and tries again.
type shortage struct{ error }

// accept waits for a connection.
func (a *acceptor) accept() (*Conn, error) {
	// The connection needs the loops even if the listener, which also holds them, is closed now.
	if !a.listener.group.Retain() {
		return nil, net.ErrClosed
	}
	defer a.listener.group.Release()
	delay := time.Duration(0)
	for {
		closed := conns.closed.Load()
		c, err := a.try()
		lack, isLack := err.(shortage)
		switch {
		case c != nil:
			return c, nil
		case err == nil:
			continue // it was refused
		case !isLack:
			return nil, err
		}
		delay = min(max(2*delay, backoffMin), backoffMax)
		if err := a.backoff(lack.error, delay, closed); err != nil {
			return nil, err
		}
	}
}

// withNetBuffers makes a netConn of c. If the process is out of descriptors or memory, c waits for
// them, as connections in the backlog do. It fails if the listener is closed while c waits.
func (a *acceptor) withNetBuffers(c *Conn) (net.Conn, error) {
	for delay := backoffMin; ; delay = min(2*delay, backoffMax) {
		closed := conns.closed.Load()
		tc, err := c.sock.netHalf()
		if err == nil {
			return &netConn{tc, c}, nil
		}
		if err := a.backoff(err, delay, closed); err != nil {
			return nil, err
		}
	}
}

// try waits for a connection. If it returns neither a connection nor an error, the connection was
// refused, or its PROXY header has yet to come.
func (a *acceptor) try() (*Conn, error) {
	t := attempts.Get().(*attempt)
	defer t.release()
	t.acceptor, t.errno = a, syscall.EAGAIN
	a.beginWaiting()
	err := a.ready.Wait(a.gate, t.accept)
	if t.errno != 0 {
		a.waiting.Add(-1) // before takePending: settled looks at the queues first
	}
	switch {
	case err != nil:
		return nil, err
	case t.errno == syscall.EAGAIN:
		return a.takePending(), nil
	case isBroken(t.errno):
		return nil, os.NewSyscallError("accept4", t.errno)
	case t.errno != 0:
		return nil, shortage{os.NewSyscallError("accept4", t.errno)}
	case a.listener.proxy != nil:
		return a.takeProxied(t.nfd, t.index, &t.from)
	}
	return a.take(t.nfd, t.index, &t.from, nil)
}

// attempt is a call of try. It is reused: otherwise each call would leave a function that escapes,
// and what it refers to, as garbage on the memory pages that the connections keep.
type attempt struct {
	acceptor *acceptor
	from     unix.RawSockaddrAny
	index    int
	nfd      int
	errno    syscall.Errno                           // EAGAIN until there is a connection, or an error
	accept   func(int, engine.Readiness) (done bool) // the method accept4
}

var attempts = sync.Pool{New: func() any {
	t := new(attempt)
	t.accept = t.accept4
	return t
}}

func (t *attempt) release() {
	*t = attempt{accept: t.accept}
	attempts.Put(t)
}

// accept4 accepts a connection from a socket that is ready.
func (t *attempt) accept4(i int, r engine.Readiness) (done bool) {
	a, l := t.acceptor, t.acceptor.listener
	if !l.limits.Acquire() {
		return false // the gate is shut now
	}
	t.from = unix.RawSockaddrAny{} // sockaddr.NetAddr relies on it
	t.index = i
	t.nfd, t.errno = sys.Accept4(a.sockets[i], &t.from)
	if t.errno == syscall.EAGAIN && r&engine.Hangup != 0 {
		t.errno = syscall.EINVAL // a unix socket that was shut down; a TCP one says so itself
	}
	if t.errno != 0 {
		l.limits.Release()
	} else {
		a.waiting.Add(-1) // now: no other goroutine looks at the gate until we return
	}
	if isSkipped(t.errno) {
		l.countSkipped(t.errno)
		t.errno = syscall.EAGAIN
	}
	return t.errno != syscall.EAGAIN
}

// beginWaiting counts a goroutine that waits for a connection from now on.
func (a *acceptor) beginWaiting() {
	n := a.waiting.Add(1)
	for {
		most := a.waitingMost.Load()
		if n <= most || a.waitingMost.CompareAndSwap(most, n) {
			return
		}
	}
}

// take makes a connection of nfd, which it owns, and which has a slot. client is its PROXY header,
// or nil. If take returns neither a connection nor an error, the user didn't want the connection.
func (a *acceptor) take(nfd, index int, from *unix.RawSockaddrAny, client *proxyproto.Header) (*Conn, error) {
	l := a.listener
	var local, remote netip.AddrPort
	if l.limits.WantsAddrs() {
		local, remote = addrPorts(nfd, from, client)
		refuse := func() {
			sys.Close(nfd)
			l.limits.Release()
		}
		if !l.limits.Admit(local, remote, refuse) {
			return nil, nil
		}
	}
	c, err := newConn(a.loopFor(index), nfd, l.connOptions, from)
	if err != nil {
		l.limits.Closed(local, remote)
		return nil, shortage{err}
	}
	if client != nil {
		c.sock.setClient(client)
	}
	l.counts.Add(accepting.Accepted)
	return c, nil
}

// addrPorts returns the addresses of a connection that was accepted from an address, or those in its
// PROXY header.
func addrPorts(nfd int, from *unix.RawSockaddrAny, client *proxyproto.Header) (local, remote netip.AddrPort) {
	if client != nil {
		if l, r := client.Addrs(); l != nil {
			return sockaddr.AddrPort(l), sockaddr.AddrPort(r)
		}
	}
	peer := sockaddr.Of(from)
	return sockaddr.AddrPort(sockaddr.Local(nfd)), peer.AddrPort()
}

// look is the gate of Accept: a connection that has left the backlog may be waiting; as many
// connections may be open as are allowed; or the listener may be paused.
func (a *acceptor) look() engine.GateState {
	l := a.listener
	switch {
	case a.pending.hasReady() || l.adopted.hasReady():
		return engine.GateDone
	case l.isPaused():
		a.lastPause.Store(l.pauses.Load())
		return engine.GateShut
	case !l.limits.MayAccept():
		return engine.GateShut
	}
	return engine.GateOpen
}

// takePending returns a connection that had already left the backlog, or nil if it is gone: another
// call of Accept has it, or the user didn't want it.
func (a *acceptor) takePending() *Conn {
	p := a.pending.next()
	if p == nil {
		p = a.listener.adopted.next()
	}
	if p == nil {
		return nil
	}
	return p.take()
}

// loopFor returns the loop for a connection from the socket with the given index. If each loop has a
// thread, and a socket, that is the socket's loop: the kernel has chosen both. Otherwise the group
// places the connection.
func (a *acceptor) loopFor(index int) *engine.Loop {
	l := a.listener
	if !l.config.LeastLoaded && l.group.Strategy() == engine.Thread && len(l.sockets) == l.group.Len() {
		return l.group.Loop(a.first + index)
	}
	return l.place()
}

// place returns the group's choice of a loop.
func (l *listener) place() *engine.Loop {
	if l.config.LeastLoaded {
		return l.group.LeastLoaded()
	}
	return l.group.Place()
}

// isSkipped reports whether an error of accept4 means that only this connection is lost, and the
// next may be fine: it was aborted, or the error is one of the "already-pending network errors on
// the new socket" of accept(2).
func isSkipped(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINTR, syscall.ECONNABORTED, syscall.EPROTO,
		syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENONET, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
		return true
	}
	return false
}

// countSkipped counts a connection that was lost. A call that was interrupted has lost none.
func (l *listener) countSkipped(errno syscall.Errno) {
	switch errno {
	case syscall.EINTR:
	case syscall.ECONNABORTED:
		l.counts.Add(accepting.SkippedAborted)
	case syscall.EPROTO:
		l.counts.Add(accepting.SkippedProtocol)
	default:
		l.counts.Add(accepting.SkippedNetwork)
	}
}

// isBroken reports whether an error of accept4 says that the socket doesn't listen: it was shut
// down. Accept backs off after an error that is neither skipped nor broken: EMFILE, ENFILE, ENOBUFS,
// ENOMEM; EPERM of a firewall; and errors of future kernels, on which Accept must not spin.
func isBroken(errno syscall.Errno) bool {
	switch errno {
	case syscall.EBADF, syscall.EFAULT, syscall.EINVAL, syscall.ENOTSOCK:
		return true
	}
	return false
}

// reportBackoff counts a backoff, and notifies the user once per period, on a goroutine of its own,
// since the user may close the listener.
func (l *listener) reportBackoff(err error) {
	l.counts.Add(accepting.Backoffs)
	if l.reported.Allow(reportPeriod) {
		go l.report(err)
	}
}

// warnAcceptError is the default of ListenConfig.OnAcceptError. It names the listener, since a
// program may have several, while the error is about the process.
func (l *listener) warnAcceptError(err error) {
	slog.Warn("percore: accepting connections is put off; the listener recovers by itself",
		"network", l.network, "address", l.addr.String(), "error", err)
}

// control calls f with a listening socket, which stays open until f returns.
func (l *listener) control(index int, f func(fd uintptr)) error {
	return l.all.ready.Use(func() { f(uintptr(l.sockets[index])) })
}

// rawListener is the result of a listener's SyscallConn.
type rawListener struct {
	l      *listener
	holder *holder // the owner of this can still use the sockets
}

func (r rawListener) Control(f func(fd uintptr)) error {
	r.l.copied.some.Store(true)
	for i := range r.l.sockets {
		err := r.l.control(i, func(fd uintptr) {
			f(fd)
			if r.l.connOptions.kind == engine.TCP && !sys.IsPlainTCP(int(fd)) {
				r.l.connOptions.altered.Store(true) // connections inherit it
			}
		})
		if err != nil {
			return &net.OpError{Op: "raw-control", Net: r.l.network, Addr: r.l.addr, Err: err}
		}
	}
	runtime.KeepAlive(r.holder)
	return nil
}

// Read fails: a listening socket can't be read, and this is package net's error.
func (r rawListener) Read(func(fd uintptr) bool) error { return syscall.EINVAL }

// Write fails as Read does.
func (r rawListener) Write(func(fd uintptr) bool) error { return syscall.EINVAL }

func (l *listener) rawConn(h *holder) (syscall.RawConn, error) { return rawListener{l, h}, nil }
