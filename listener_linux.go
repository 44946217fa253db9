//go:build !percore_net

package percore

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sys"
)

// listener is the part that a Listener and its per-loop listeners share.
type listener struct {
	// immutable
	config     ListenConfig
	network    string
	addr       net.Addr
	group      *engine.Group         // holds a reference
	limits     *accepting.Limits     // nil: none
	proxy      *accepting.ProxyRules // nil: no headers are awaited
	netBuffers bool                  // Accept returns netConns
	report     func(error)
	sockets    []int     // listening: one per loop, or one for all; closed by close
	all        *acceptor // from all sockets

	// immutable; the options of connections
	connOptions    *connOptions
	pendingOptions *connOptions // that Accept has not returned yet
	servedOptions  *connOptions // that another process has accepted and served

	// atomic
	counts accepting.Counts
	pauses atomic.Uint64 // calls of Pause and Resume: odd while the listener is paused
	unlink atomic.Bool   // remove the unix socket's file on close
	copied struct {      // the sockets that the user has had a chance to copy
		some, all atomic.Bool
	}

	adopted pendingConns // accepted by another process

	reported monotime.Throttle // for calls of OnAcceptError

	mu struct {
		sync.Mutex
		closed bool
		split  []*acceptor // per socket, from perLoop; nil before
	}
}

// defaultGroup is the group of listeners and dialers that have none of their own.
var defaultGroup struct {
	sync.Mutex
	group *engine.Group
}

// acquireGroup returns a group with a reference for the caller.
func acquireGroup(group *engine.Group) (*engine.Group, error) {
	if group != nil {
		if !group.Retain() {
			return nil, engine.ErrStopped
		}
		return group, nil
	}
	d := &defaultGroup
	d.Lock()
	defer d.Unlock()
	if d.group != nil && d.group.Retain() {
		return d.group, nil
	}
	group, err := engine.NewGroup(engine.Config{Name: "default"})
	if err != nil {
		return nil, err
	}
	d.group = group // the caller gets its first reference
	return group, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*listener, error) {
	// Package net resolves, checks and binds, and makes the errors. The first socket must not have
	// SO_REUSEPORT when it is bound, or a port that another server of this kind uses would be shared
	// instead of refused.
	first, err := lc.netConfig(lc.control(lc.ReusePort)).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ul, isUnix := first.(*net.UnixListener)
	if isUnix {
		ul.SetUnlinkOnClose(false) // the file outlives package net's listener
	}
	l, err := lc.fromNet(network, first)
	if err != nil {
		if isUnix {
			removeSocketFile(ul.Addr())
		}
		return nil, &net.OpError{Op: "listen", Net: network, Addr: first.Addr(), Err: err}
	}
	l.unlink.Store(isUnix)
	isOpen := false
	defer func() {
		if !isOpen { // the hook may have panicked
			l.close()
		}
	}()
	if !isUnix {
		// The context is only for resolving: package net, which binds once, would already be listening.
		if ctx != nil { // package net takes nil as well
			ctx = context.WithoutCancel(ctx)
		}
		err = l.bindReusePort(ctx, lc)
	}
	if err == nil {
		err = l.open()
	}
	if isOpen = err == nil; !isOpen {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: first.Addr(), Err: err}
	}
	return l, nil
}

// netControl returns the hook for a listener without the engine.
func (lc *ListenConfig) netControl() func(string, string, syscall.RawConn) error {
	return lc.control(lc.ReusePort)
}

// control returns the hook that package net calls before it binds a socket.
func (lc *ListenConfig) control(reusePort bool) func(string, string, syscall.RawConn) error {
	if !reusePort {
		return lc.Control
	}
	return func(network, address string, c syscall.RawConn) error {
		var errno syscall.Errno
		err := c.Control(func(fd uintptr) {
			if network != "unix" { // there are no ports
				errno = sys.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
		})
		if err != nil {
			return err
		}
		if errno != 0 {
			return os.NewSyscallError("setsockopt", errno)
		}
		if lc.Control == nil {
			return nil
		}
		return lc.Control(network, address, c)
	}
}

// fromNet makes a listener of package net's, which it closes.
func (lc *ListenConfig) fromNet(network string, nl net.Listener) (*listener, error) {
	group, err := acquireGroup((*engine.Group)(lc.Group))
	if err != nil {
		nl.Close()
		return nil, err
	}
	l := &listener{
		config:     *lc,
		network:    network,
		addr:       nl.Addr(),
		group:      group,
		netBuffers: lc.NetBuffers && nl.Addr().Network() == "tcp",
		report:     lc.OnAcceptError,
	}
	if l.report == nil {
		l.report = l.warnAcceptError
	}
	config := lc.accepting()
	l.limits = config.Limits(&l.counts, l.wake)
	l.proxy = config.ProxyRules(l.addr, &l.counts)
	if l.proxy != nil {
		l.limits.AddAwaiting(awaitedConns{l}, l.proxy.Timeout/accepting.SilentPart)
	}
	l.connOptions = &connOptions{net: network, limits: l.limits}
	l.pendingOptions = &connOptions{net: network, limits: l.limits, quiet: true}
	if err := l.add(lc, nl); err != nil {
		group.Release()
		return nil, err
	}
	l.connOptions.kind = l.kindOf(l.sockets[0])
	l.servedOptions = &connOptions{net: network, limits: l.limits, kind: l.connOptions.kind, served: true}
	l.servedOptions.altered.Store(true) // perhaps: the other process may have done anything to the socket
	return l, nil
}

// bindReusePort binds a socket for each of the other loops to the address of the first socket.
//
// The kernel may refuse them the port that the first socket, which asked for less, has got: because
// of a connection made from that port, for example. The listener then works with the sockets that it
// has, as with a unix socket; package net, which needs only one, would not fail here either.
func (l *listener) bindReusePort(ctx context.Context, lc *ListenConfig) error {
	others := l.group.Len() - 1
	if others == 0 {
		return nil
	}
	// Now that the first is bound it may share the port.
	if errno := sys.SetsockoptInt(l.sockets[0], unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	config := lc.netConfig(lc.control(true))
	for range others {
		nl, err := config.Listen(ctx, l.network, l.addr.String())
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil
		}
		if err != nil {
			return inner(err)
		}
		if err := l.add(lc, nl); err != nil {
			return err
		}
	}
	return nil
}

// inner returns the error in a net.OpError, to wrap it again.
func inner(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

// add takes over the socket of package net's listener, which it closes.
func (l *listener) add(lc *ListenConfig, nl net.Listener) error {
	defer nl.Close()
	fd, err := dupOf(nl.(syscall.Conn))
	if err != nil {
		return err
	}
	if _, ok := nl.(*net.TCPListener); ok {
		lc.setInherited(fd)
	}
	l.sockets = append(l.sockets, fd)
	return nil
}

// setInherited sets the options that package net sets on every connection on a listening socket: on
// Linux, connections inherit them, so accepting one costs no further system calls. Like package net
// it ignores options that the kernel refuses.
func (lc *ListenConfig) setInherited(fd int) {
	_ = sys.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	keepAlive := lc.KeepAliveConfig
	if !keepAlive.Enable {
		if lc.KeepAlive < 0 {
			return
		}
		keepAlive = net.KeepAliveConfig{Enable: true, Idle: lc.KeepAlive}
	}
	if errno := sys.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); errno == 0 {
		_ = setKeepAliveParams(fd, keepAlive)
	}
}

// open makes Accept possible, now that all sockets are there.
func (l *listener) open() (err error) {
	l.all, err = l.newAcceptor(0, l.sockets)
	if err == nil {
		listeners.add(l)
	}
	return err
}

// wake makes all calls of Accept look again.
func (l *listener) wake() {
	for _, a := range l.acceptors() {
		a.ready.Wake()
	}
}

// acceptors returns all acceptors: the one for all sockets, and the ones for single sockets.
func (l *listener) acceptors() []*acceptor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*acceptor{l.all}, l.mu.split...)
}

// close ends the listener. Connections in the backlog are reset by the kernel,
// unless copies of the sockets are open elsewhere.
func (l *listener) close() {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return
	}
	l.mu.closed = true
	l.mu.Unlock()
	listeners.remove(l)

	if l.unlink.Swap(false) {
		removeSocketFile(l.addr) // before the socket is closed, as package net does
	}
	for _, a := range l.acceptors() {
		if a != nil {
			a.ready.Close() // waits until no call uses the sockets
			a.pending.close()
		}
	}
	l.adopted.close()
	check := l.closeCheck()
	for _, fd := range l.sockets {
		sys.Close(fd)
	}
	check.warn()
	l.group.Release()
}

// removeSocketFile removes the file of a unix socket, unless the name is an abstract one.
func removeSocketFile(addr net.Addr) {
	if path := addr.String(); addr.Network() == "unix" && path != "" && path[0] != '@' {
		_ = syscall.Unlink(path) // not os.Remove, which would remove a directory of that name
	}
}

// perLoop returns an acceptor for each socket. A socket never has more than one, or the kernel would
// wake all of them for each connection, all but one for nothing. (EPOLLEXCLUSIVE doesn't help: an
// epoll set that is waited on through another one does not count as woken, and the kernel goes on to
// the next.)
func (l *listener) perLoop() ([]*acceptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.closed:
		return nil, net.ErrClosed
	case l.mu.split != nil:
		return l.mu.split, nil
	}
	var split []*acceptor
	for i := range l.sockets {
		a, err := l.newAcceptor(i, l.sockets[i:i+1])
		if err != nil {
			for _, a := range split {
				a.ready.Close()
			}
			return nil, err
		}
		split = append(split, a)
	}
	l.mu.split = split
	return split, nil
}

func (l *listener) stats() ListenerStats {
	// Closed connections first, or more would seem to be closed than were opened.
	closed := l.connOptions.closed.Load() + l.pendingOptions.closed.Load() + l.servedOptions.closed.Load()
	return ListenerStats{
		Network:        l.network,
		Address:        l.addr.String(),
		Group:          l.group.Name(),
		Sockets:        len(l.sockets),
		Conns:          int(l.connOptions.opened.Load() + l.servedOptions.opened.Load() - closed),
		MaxConns:       l.limits.Max(),
		Full:           l.limits.IsWaiting(),
		AwaitingHeader: l.awaitingHeader(),
		AcceptStats:    acceptStats(&l.counts),
	}
}
