//go:build !linux || percore_net

package percore

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/percore/percore/internal/netfallback"
)

// listener is a listener of package net.
type listener struct {
	// immutable
	network    string
	addr       net.Addr
	all        *acceptor
	netBuffers bool // Accept returns netConns

	// atomic
	unlink atomic.Bool // remove the unix socket's file on close
	closed atomic.Bool
}

// acceptor is where Accept takes connections from.
type acceptor struct{ ready *netfallback.Listener }

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*listener, error) {
	nl, err := lc.netConfig(lc.Control).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := lc.listenerOn(network, []netfallback.Socket{nl.(netfallback.Socket)})
	l.unlink.Store(true)
	return l, nil
}

func (lc *ListenConfig) netControl() func(string, string, syscall.RawConn) error { return lc.Control }

func (lc *ListenConfig) fileListener(files []*os.File) (*listener, error) {
	sockets, err := lc.netSockets(files)
	if err != nil {
		return nil, err
	}
	return lc.listenerOn(sockets[0].Addr().Network(), sockets), nil
}

func (lc *ListenConfig) listenerOn(network string, sockets []netfallback.Socket) *listener {
	addr := sockets[0].Addr()
	return &listener{
		network:    network,
		addr:       addr,
		all:        &acceptor{netfallback.New(sockets, lc.accepting())},
		netBuffers: lc.NetBuffers && addr.Network() == "tcp",
	}
}

func (a *acceptor) accept() (*Conn, error) {
	nc, err := a.ready.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(nc), nil
}

// withNetBuffers makes a netConn of c, whose two halves are the same.
func (a *acceptor) withNetBuffers(c *Conn) (net.Conn, error) { return &netConn{c.sock.tcp, c}, nil }

// close closes the sockets, also if the Listener is one of several that PerLoop returned.
func (l *listener) close() {
	if !l.closed.Swap(true) {
		l.all.ready.SetUnlinkOnClose(l.unlink.Load())
		l.all.ready.Close()
	}
}

func (l *listener) rawConn(*holder) (syscall.RawConn, error) { return l.all.ready.SyscallConn() }

func (l *listener) files(n int) ([]*os.File, error) {
	if n < 0 {
		return l.all.ready.Files()
	}
	f, err := l.all.ready.File()
	return []*os.File{f}, err
}

// perLoop returns a single listener, which accepts what l accepts: there are no loops.
func (l *listener) perLoop() ([]*acceptor, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	return []*acceptor{l.all}, nil
}

func (l *listener) stats() ListenerStats {
	counts, open, limit := l.all.ready.Counts()
	return ListenerStats{Conns: open, MaxConns: limit, Full: l.all.ready.IsFull(), AcceptStats: acceptStats(counts)}
}
