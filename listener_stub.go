//go:build !linux || percore_net

package percore

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// listener is a listener of package net.
type listener struct {
	// immutable
	network string
	addr    net.Addr
	inner   streamListener
	all     *acceptor

	// atomic
	unlink atomic.Bool // remove the unix socket's file on close

	mu struct {
		sync.Mutex
		closed bool
	}
}

// streamListener is what *net.TCPListener and *net.UnixListener have in common.
type streamListener interface {
	net.Listener
	syscall.Conn
	SetDeadline(t time.Time) error
	File() (*os.File, error)
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*listener, error) {
	nl, err := lc.netConfig(lc.Control).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := newListener(network, nl)
	l.unlink.Store(true)
	return l, nil
}

func (lc *ListenConfig) fileListener(f *os.File) (*listener, error) {
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return newListener(nl.Addr().Network(), nl), nil
}

func newListener(network string, nl net.Listener) *listener {
	inner := nl.(streamListener)
	return &listener{network: network, addr: nl.Addr(), inner: inner, all: &acceptor{inner}}
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

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return // by one that PerLoop returned, or the one it was called on
	}
	l.mu.closed = true
	if ul, ok := l.inner.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(l.unlink.Load())
	}
	l.inner.Close()
}

func (l *listener) rawConn(*holder) (syscall.RawConn, error) { return l.inner.SyscallConn() }

// files returns a copy of the only socket, however many are asked for.
func (l *listener) files(int) ([]*os.File, error) {
	f, err := l.inner.File()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// perLoop returns one listener that accepts what the one it is called on
// accepts: there are no loops to have one each.
func (l *listener) perLoop() ([]*acceptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, net.ErrClosed
	}
	return []*acceptor{l.all}, nil
}

func (l *listener) stats() ListenerStats { return ListenerStats{} }
