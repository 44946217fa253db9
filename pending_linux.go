//go:build !percore_net

package percore

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
)

// pendingConns are connections that have left the kernel's backlog and that Accept has not returned
// yet. An acceptor has those whose PROXY headers are awaited, or have come; a listener has those that
// another process has accepted:
//
//	state      in       ends by
//	awaited    awaited  its callback: the header is whole (received), or the connection is to be closed
//	received   ready    Accept, which asks the user
//	adopted    ready    the same
//	accepted   neither  the user
//
// Both the callback and the listener's Close take a connection out of awaited; the one that does it
// decides the outcome. Close also closes those that are ready.
type pendingConns struct {
	mu      sync.Mutex
	awaited map[*pendingConn]struct{} // guarded by mu
	ready   []*pendingConn            // guarded by mu; oldest first
	closed  bool                      // guarded by mu

	readyCount atomic.Int32 // len(ready), for a look without mu
}

// addAwaited adds a connection whose header is awaited, unless the listener is closed.
func (ps *pendingConns) addAwaited(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	if ps.awaited == nil {
		ps.awaited = make(map[*pendingConn]struct{})
	}
	ps.awaited[p] = struct{}{}
	return true
}

// addReady adds a connection that is ready, unless the listener is closed.
func (ps *pendingConns) addReady(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	ps.pushLocked(p)
	return true
}

func (ps *pendingConns) pushLocked(p *pendingConn) {
	ps.ready = append(ps.ready, p)
	ps.readyCount.Store(int32(len(ps.ready)))
}

// remove takes an awaited connection out, and reports whether it was there.
func (ps *pendingConns) remove(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	_, ok := ps.awaited[p]
	delete(ps.awaited, p)
	return ok
}

// received makes an awaited connection ready, and reports whether it was there.
func (ps *pendingConns) received(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	_, ok := ps.awaited[p]
	if ok {
		delete(ps.awaited, p)
		ps.pushLocked(p)
	}
	return ok
}

// hasReady reports whether next would find a connection.
func (ps *pendingConns) hasReady() bool { return ps.readyCount.Load() > 0 }

// next returns the next connection that is ready, or nil.
func (ps *pendingConns) next() *pendingConn {
	if !ps.hasReady() {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.ready) == 0 {
		return nil
	}
	p := ps.ready[0]
	ps.ready[0] = nil
	if ps.ready = ps.ready[1:]; len(ps.ready) == 0 {
		ps.ready = nil // a burst's array is not kept
	}
	ps.readyCount.Store(int32(len(ps.ready)))
	return p
}

// awaitedCount returns how many connections' headers are awaited.
func (ps *pendingConns) awaitedCount() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.awaited)
}

// awaitingHeader returns how many of the listener's connections have their header awaited.
func (l *listener) awaitingHeader() (sum int) {
	for _, a := range l.acceptors() {
		sum += a.pending.awaitedCount()
	}
	return sum
}

// isEmpty reports whether there are no connections.
func (ps *pendingConns) isEmpty() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.awaited) == 0 && len(ps.ready) == 0
}

// close closes all connections. It is called when no more are accepted.
func (ps *pendingConns) close() {
	ps.mu.Lock()
	ps.closed = true
	all := ps.ready
	for p := range ps.awaited {
		all = append(all, p)
	}
	ps.ready, ps.awaited = nil, nil
	ps.readyCount.Store(0)
	ps.mu.Unlock()
	for _, p := range all {
		_ = p.c.Close()
	}
}

// pendingConn is one of pendingConns. While its header is awaited it is also the engine's handler.
type pendingConn struct {
	a       *acceptor // any acceptor of the listener's if another process has accepted it
	c       *Conn
	options *connOptions      // of c, once Accept returns it
	header  headerReader      // while it is awaited
	client  proxyproto.Header // once it is there
	counter accepting.Counter // of connections of its kind
}

// take returns the connection for Accept if the user wants it, otherwise nil.
func (p *pendingConn) take() *Conn {
	l, c := p.a.listener, p.c
	c.sock.setClient(&p.client)
	if l.limits.WantsAddrs() {
		refuse := func() { c.Close() }
		if !l.limits.Admit(sockaddr.AddrPort(c.LocalAddr()), c.RemoteAddrPort(), refuse) {
			return nil
		}
	}
	c.sock.options = p.options
	l.counts.Add(p.counter)
	return c
}

// takeProxied is take for a listener with a ProxyProtocol.
func (a *acceptor) takeProxied(nfd, index int, from *unix.RawSockaddrAny) (*Conn, error) {
	l := a.listener
	refuse := func() {
		sys.Close(nfd)
		l.limits.Release()
	}
	if peer := sockaddr.Of(from); !l.proxy.Trusts(peer.AddrPort()) {
		if l.proxy.ServeUntrusted {
			return a.take(nfd, index, from, nil)
		}
		refuse()
		l.proxy.Refuse(peer.NetAddr())
		return nil, nil
	}
	var header headerReader
	client, whole, err := header.read(nfd)
	switch {
	case err != nil:
		l.proxy.Reject(sockaddr.NetAddr(from), err)
		refuse()
		return nil, nil
	case whole:
		return a.take(nfd, index, from, &client)
	}
	c, err := newConn(a.loopFor(index), nfd, l.connOptions, from)
	if err != nil {
		l.limits.Release()
		return nil, shortage{err}
	}
	c.sock.options = l.pendingOptions
	p := &pendingConn{a: a, c: c, header: header, options: l.connOptions, counter: accepting.Accepted}
	if !a.pending.addAwaited(p) {
		c.Close()
		return nil, net.ErrClosed
	}
	p.await()
	return nil, nil
}

// await registers the callback for the rest of the header.
func (p *pendingConn) await() {
	fd := p.c.sock.fd
	_ = fd.SetReadDeadline(time.Now().Add(p.a.listener.proxy.Timeout)) // fails if it is closed; so does arm
	p.arm()
}

func (p *pendingConn) arm() {
	if err := p.c.sock.fd.NotifyReadable(p); err != nil {
		p.end(err)
	}
}

// OnReadable reads as much of the header as is there. It runs on the connection's loop.
func (p *pendingConn) OnReadable(err error) {
	whole := false
	if err == nil {
		var failed error
		err = p.c.sock.fd.Control(func(fd int) syscall.Errno {
			p.client, whole, failed = p.header.read(fd)
			return 0
		})
		if err == nil {
			err = failed
		}
	}
	switch {
	case err != nil:
		p.end(err)
	case whole:
		_ = p.c.sock.fd.SetReadDeadline(time.Time{})
		if p.a.pending.received(p) {
			p.a.ready.Wake()
		}
	default:
		p.arm()
	}
}

// end closes the connection because of err, unless the listener's Close has.
func (p *pendingConn) end(err error) {
	if !p.a.pending.remove(p) {
		return
	}
	if err == os.ErrDeadlineExceeded {
		err = accepting.ErrHeaderTimeout
	}
	p.a.listener.proxy.Reject(p.c.RemoteAddr(), err)
	go p.c.Close() // it may block
}
