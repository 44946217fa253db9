//go:build !percore_net

package percore

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
)

// pendingConns are connections that have left the kernel's backlog, but that Accept has not returned
// yet. An acceptor has the ones whose PROXY header is awaited or has come; a listener has the ones
// that another process has accepted:
//
//	state      in       ends by
//	awaited    awaited  its callback: the header is whole (received), or the connection is to be closed
//	received   ready    Accept, which asks the user
//	adopted    ready    the same
//	accepted   neither  the user
//
// Both the callback and the listener's Close take a connection out of awaited; whichever does it
// first decides the outcome. Close also closes the connections that are ready.
type pendingConns struct {
	mu      sync.Mutex
	awaited map[*pendingConn]struct{} // guarded by mu
	ready   []*pendingConn            // guarded by mu; oldest first
	closed  bool                      // guarded by mu
}

// hold counts the memory of an awaited connection's header, which has grown to the given bytes. It
// fails if the listener's long headers take too much.
func (ps *pendingConns) hold(p *pendingConn, bytes int) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, ok := ps.awaited[p]; !ok {
		return nil // it is being closed
	}
	held, err := p.a.listener.proxy.Long.Hold(p.peer(), p.held, bytes)
	p.held = held
	return err
}

// leaveLocked takes an awaited connection out, and reports whether it was there.
func (ps *pendingConns) leaveLocked(p *pendingConn) bool {
	if _, ok := ps.awaited[p]; !ok {
		return false
	}
	delete(ps.awaited, p)
	p.a.listener.proxy.Long.Free(p.peer(), p.held)
	p.held = 0
	return true
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
	ps.ready = append(ps.ready, p)
	return true
}

// remove takes an awaited connection out, and reports whether it was there.
func (ps *pendingConns) remove(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.leaveLocked(p)
}

// received makes an awaited connection ready, and reports whether it was there.
func (ps *pendingConns) received(p *pendingConn) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ok := ps.leaveLocked(p)
	if ok {
		ps.ready = append(ps.ready, p)
	}
	return ok
}

// hasReady reports whether next would find a connection.
func (ps *pendingConns) hasReady() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.ready) > 0
}

// next returns the next connection that is ready, or nil.
func (ps *pendingConns) next() *pendingConn {
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
	return p
}

// awaitingHeader returns how many of the listener's connections still wait for their header.
func (l *listener) awaitingHeader() (n int) {
	for _, a := range l.acceptors() {
		a.pending.eachAwaited(func(*pendingConn) { n++ })
	}
	return n
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
		ps.leaveLocked(p)
	}
	ps.ready, ps.awaited = nil, nil
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
	since   int64             // when that began, in the time of package monotime; immutable
	held    int               // of the memory for long headers; guarded by pendingConns.mu
	client  proxyproto.Header // once it is there
	counter accepting.Counter // of connections of its kind
}

// take returns the connection for Accept, or nil if the user doesn't want it.
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
	p := &pendingConn{a: a, c: c, header: header, since: monotime.Now(), options: l.connOptions, counter: accepting.Accepted}
	if !a.pending.addAwaited(p) {
		c.Close()
		return nil, net.ErrClosed
	}
	_ = c.sock.SetReadDeadline(time.Now().Add(l.proxy.Timeout)) // fails if it is closed; so does arm
	p.arm()
	return nil, nil
}

// arm waits for more of the header.
func (p *pendingConn) arm() {
	err := p.a.pending.hold(p, cap(p.header.got))
	if err == nil {
		err = p.c.sock.fd.NotifyReadable(p)
	}
	if err != nil {
		p.end(err)
	}
}

// peer is the proxy, in the form in which long headers are counted.
func (p *pendingConn) peer() netip.Prefix { return accepting.Peer(p.c.sock.peer.AddrPort().Addr()) }

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

// awaitedConns are the connections of a listener whose headers are awaited: they make room at MaxConns.
type awaitedConns struct{ l *listener }

// EachIdle implements accepting.Idler.
func (w awaitedConns) EachIdle(_ *accepting.Limits, do func(accepting.IdleConn, int64, netip.Addr)) {
	for _, a := range w.l.acceptors() {
		if a != nil {
			a.pending.eachAwaited(func(p *pendingConn) { do(p, p.since, netip.Addr{}) })
		}
	}
}

func (ps *pendingConns) eachAwaited(do func(*pendingConn)) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.awaited {
		do(p)
	}
}

// CloseIdle implements accepting.IdleConn. A connection stays open if the loop has yet to read its
// next bytes.
func (p *pendingConn) CloseIdle(int64) bool {
	if p.unread() > 0 || !p.a.pending.remove(p) {
		return false
	}
	go p.c.Close() // it may block
	return true
}

// unread returns how many bytes have come that the loop has not read.
func (p *pendingConn) unread() (n int) {
	_ = p.c.sock.Control(func(fd int) (errno syscall.Errno) {
		n, errno = sys.Unread(fd)
		return errno
	})
	return n
}
