//go:build !linux || percore_net

package percore

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// listener is a listener of package net.
type listener struct {
	// immutable
	network string
	addr    net.Addr
	sockets []streamListener
	all     *acceptor
	admits  *netListener // all.ready, if there is an admission

	netBuffers bool // Accept returns netConns

	// atomic
	unlink atomic.Bool // remove the unix socket's file on close

	mu struct {
		sync.Mutex
		closed bool
	}
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*listener, error) {
	nl, err := lc.netConfig(lc.Control).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := lc.newListener(network, []streamListener{nl.(streamListener)})
	l.unlink.Store(true)
	return l, nil
}

func (lc *ListenConfig) netControl() func(string, string, syscall.RawConn) error { return lc.Control }

func (lc *ListenConfig) fileListener(files []*os.File) (*listener, error) {
	all, err := netFileListeners(files)
	if err != nil {
		return nil, err
	}
	return lc.newListener(all[0].Addr().Network(), all), nil
}

func (lc *ListenConfig) newListener(network string, sockets []streamListener) *listener {
	l := &listener{
		network:    network,
		addr:       sockets[0].Addr(),
		sockets:    sockets,
		admits:     lc.admit(sockets),
		netBuffers: lc.NetBuffers && sockets[0].Addr().Network() == "tcp",
	}
	if l.admits != nil {
		l.all = &acceptor{l.admits}
	} else {
		l.all = &acceptor{merge(sockets)}
	}
	return l
}

// acceptor is where Accept takes connections from.
type acceptor struct{ ready streamListener }

func (a *acceptor) accept() (*Conn, error) {
	nc, err := a.ready.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(nc), nil
}

// withNetBuffers makes a netConn of c, whose two halves are the same.
func (a *acceptor) withNetBuffers(c *Conn) (net.Conn, error) { return &netConn{c.sock.tcp, c}, nil }

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return // by one that PerLoop returned, or the one it was called on
	}
	l.mu.closed = true
	for _, socket := range l.sockets {
		if ul, ok := socket.(*net.UnixListener); ok {
			ul.SetUnlinkOnClose(l.unlink.Load())
		}
	}
	l.all.ready.Close() // and the sockets
}

func (l *listener) rawConn(*holder) (syscall.RawConn, error) { return l.all.ready.SyscallConn() }

// files returns copies of the first n sockets, of all if n < 0.
func (l *listener) files(n int) ([]*os.File, error) {
	if n < 0 {
		n = len(l.sockets)
	}
	var files []*os.File
	for _, socket := range l.sockets[:n] {
		f, err := socket.File()
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// perLoop returns one listener that accepts the connections that the one it is called on
// accepts: there are no loops to have one each.
func (l *listener) perLoop() ([]*acceptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, net.ErrClosed
	}
	return []*acceptor{l.all}, nil
}

func (l *listener) stats() (s ListenerStats) {
	if l.admits != nil {
		l.admits.admission.addTo(&s)
		l.admits.proxy.addTo(&s)
	}
	return s
}
