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
	inner   streamListener // a *merged if there are several sockets
	all     *acceptor

	admission *admission

	netBuffers bool // Accept returns netConns

	// atomic
	counts acceptCounts
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
	l := lc.newListener(network, nl)
	l.unlink.Store(true)
	return l, nil
}

func (lc *ListenConfig) fileListener(files []*os.File) (*listener, error) {
	var all []streamListener
	for i, f := range files {
		nl, err := net.FileListener(f)
		if err == nil {
			all = append(all, nl.(streamListener))
			err = checkFile(files, i, nl.Addr(), all[0].Addr())
		}
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, fileError(files, i, err)
		}
	}
	inner := all[0]
	if len(all) > 1 {
		inner = newMerged(all)
	}
	return lc.newListener(inner.Addr().Network(), inner), nil
}

func (lc *ListenConfig) newListener(network string, nl net.Listener) *listener {
	inner := nl.(streamListener)
	ready, admission := lc.admit(inner)
	return &listener{
		network:    network,
		addr:       nl.Addr(),
		inner:      inner,
		all:        &acceptor{ready},
		admission:  admission,
		netBuffers: lc.NetBuffers && nl.Addr().Network() == "tcp",
	}
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
	for _, inner := range l.sockets() {
		if ul, ok := inner.(*net.UnixListener); ok {
			ul.SetUnlinkOnClose(l.unlink.Load())
		}
	}
	l.all.ready.Close() // and inner
}

// sockets returns a listener of package net for each socket.
func (l *listener) sockets() []streamListener {
	if m, ok := l.inner.(*merged); ok {
		return m.all
	}
	return []streamListener{l.inner}
}

func (l *listener) rawConn(*holder) (syscall.RawConn, error) { return l.inner.SyscallConn() }

// files returns copies of the first n sockets, of all if n < 0.
func (l *listener) files(n int) ([]*os.File, error) {
	sockets := l.sockets()
	if n < 0 {
		n = len(sockets)
	}
	var files []*os.File
	for _, socket := range sockets[:n] {
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
	l.admission.addTo(&s)
	return s
}
