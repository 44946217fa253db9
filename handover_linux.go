//go:build !percore_net

package percore

import (
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
)

// This is the engine's side of package seam, which looks for these methods of the raw connections.

func (r rawConn) FD() *engine.FD      { return r.c.sock.fd }
func (r rawConn) Info() seam.ConnInfo { return r.c.sock.info() }

// Limits returns the limits of the listener that accepted the connection, or nil.
func (r rawConn) Limits() *accepting.Limits { return r.c.sock.options.limits }

func (r rawConn) DropFinalizer()    { r.c.dropFinalizer() }
func (r rawConn) RestoreFinalizer() { r.c.restoreFinalizer() }

// Limits returns the listener's limits, or nil.
func (r rawListener) Limits() *accepting.Limits { return r.l.limits }

// Group returns the listener's loops.
func (r rawListener) Group() *engine.Group { return r.l.group }

func (r rawListener) Moving() seam.Listener {
	return movingListener{&Listener{listener: r.l, acceptor: r.l.all, holder: r.holder}}
}

// dropFinalizer removes the finalizer, for an owner that refers to c until it closes it.
func (c *Conn) dropFinalizer() { runtime.SetFinalizer(c, nil) }

// restoreFinalizer makes the garbage collector close c once no object refers to it. It first removes
// a finalizer that is already there, because a second one would crash the program: a connection may
// by mistake have two owners.
func (c *Conn) restoreFinalizer() {
	runtime.SetFinalizer(c, nil)
	runtime.SetFinalizer(c, (*Conn).Close)
}

// info describes the connection, for the process that takes over its socket.
func (s *sock) info() seam.ConnInfo {
	return seam.ConnInfo{Served: s.options.served, Client: s.client()}
}

// client returns the header that setClient was given.
func (s *sock) client() proxyproto.Header {
	p := s.addrs.Load()
	if p == nil || !p.fixed {
		return proxyproto.Header{}
	}
	var h proxyproto.Header
	if remote, ok := p.remote.(*net.UnixAddr); ok {
		local := p.local.(*net.UnixAddr)
		h = proxyproto.Header{IsUnix: true, SourceName: remote.Name, DestinationName: local.Name}
	} else {
		h = proxyproto.Header{Source: sockaddr.AddrPort(p.remote), Destination: sockaddr.AddrPort(p.local)}
	}
	if p.tlvs != nil {
		h.TLVs = *p.tlvs
	}
	return h
}

// movingListener is a Listener for package handover.
type movingListener struct{ *Listener }

func (l movingListener) Pause()  { l.listener.pause(true) }
func (l movingListener) Resume() { l.listener.pause(false) }

func (l movingListener) Alike(files ...*os.File) (net.Listener, error) {
	defer runtime.KeepAlive(l.holder)
	return l.listener.config.FileListeners(files...)
}

func (l movingListener) UnlinkOnClose() bool { return l.listener.unlink.Load() }

func (l movingListener) SetUnlinkOnClose(unlink bool) {
	l.listener.unlink.Store(unlink)
	if !unlink {
		return
	}
	l.listener.mu.Lock()
	closed := l.listener.mu.closed
	l.listener.mu.Unlock()
	if closed && l.listener.unlink.Swap(false) { // or close, which is under way, has seen it
		removeSocketFile(l.listener.addr)
	}
}

func (l movingListener) IsOpen() bool { return l.listener.control(0, func(uintptr) {}) == nil }

func (l movingListener) Settled() bool {
	defer runtime.KeepAlive(l.holder)
	return l.listener.settled()
}

func (l movingListener) Adopt(fd int, c seam.ConnInfo) error {
	defer runtime.KeepAlive(l.holder)
	p, err := l.listener.newAdopted(fd, c)
	if p != nil && !l.listener.adopted.addReady(p) {
		p.c.Close()
		err = net.ErrClosed
	}
	if err != nil {
		return l.opError("adopt", err)
	}
	l.listener.wake()
	return nil
}

func (l movingListener) AdoptAside(fd int, c seam.ConnInfo) (net.Conn, error) {
	defer runtime.KeepAlive(l.holder)
	p, err := l.listener.newAdopted(fd, c)
	if err != nil {
		return nil, l.opError("adopt", err)
	}
	if p != nil {
		if c := p.take(); c != nil {
			return c, nil
		}
	}
	return nil, nil
}

func (l movingListener) Has(c net.Conn) bool {
	pc, ok := c.(*Conn)
	return ok && (pc.sock.options == l.listener.connOptions || pc.sock.options == l.listener.servedOptions)
}

// isPaused reports whether Accept leaves connections in the backlog.
func (l *listener) isPaused() bool { return l.pauses.Load()%2 == 1 }

// pause pauses the listener, or ends the pause.
func (l *listener) pause(paused bool) {
	l.mu.Lock()
	if l.isPaused() != paused {
		l.pauses.Add(1)
	}
	l.mu.Unlock()
	l.wake()
}

// settled implements seam.Listener's Settled. Once a call of Accept has found the listener paused,
// no connection leaves the backlog any more, since one goroutine at a time looks. And once as many
// goroutines wait as have ever waited at a time, all have come back for the next connection.
func (l *listener) settled() bool {
	all := l.acceptors()
	for _, a := range all {
		if !a.pending.isEmpty() {
			return false
		}
	}
	if !l.adopted.isEmpty() {
		return false
	}
	for _, a := range all {
		most := a.waitingMost.Load()
		if most > 0 && (a.lastPause.Load() != l.pauses.Load() || a.waiting.Load() != most) {
			return false
		}
	}
	return true
}

// newAdopted makes a connection from another process's descriptor nfd, which it owns. It returns nil
// without an error if the peer has reset the connection.
func (l *listener) newAdopted(nfd int, m seam.ConnInfo) (*pendingConn, error) {
	from, err := l.checkConn(nfd)
	if err != nil || from.Addr.Family == unix.AF_UNSPEC { // the peer has reset it
		sys.Close(nfd)
		return nil, err
	}
	l.limits.Force()
	c, err := newConn(l.place(), nfd, l.servedOptions, from)
	if err != nil {
		l.limits.Release()
		return nil, err
	}
	p := &pendingConn{a: l.all, c: c, client: m.Client, options: l.connOptions, counter: accepting.Adopted}
	if m.Served {
		p.options = l.servedOptions
	}
	c.sock.options = l.pendingOptions
	return p, nil
}

// checkConn makes sure that nfd is a connection as accept4 on the listener's sockets would have
// returned it, and returns the peer's address. The address has no family if the connection has ended.
func (l *listener) checkConn(nfd int) (*unix.RawSockaddrAny, error) {
	var family sys.Family
	var err error
	if l.control(0, func(s uintptr) { family, err = sys.FamilyOf(int(s)) }) != nil {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	from := new(unix.RawSockaddrAny)
	if ended, err := family.CheckConn(nfd, from); err != nil || ended {
		return new(unix.RawSockaddrAny), err
	}
	if err := syscall.SetNonblock(nfd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return from, nil
}
