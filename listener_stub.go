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
	queue   *acceptQueue
	only    []*Listener // what perLoop returns

	// atomic
	unlink atomic.Bool // remove the unix socket's file on close

	// mu serializes Close: package net's SetUnlinkOnClose must not run at the
	// same time.
	mu sync.Mutex
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
	l := &listener{network: network, addr: nl.Addr(), inner: inner, queue: &acceptQueue{inner}}
	l.only = []*Listener{{l, l.queue}}
	return l
}

// acceptQueue is where Accept takes from: package net's listener.
type acceptQueue struct{ inner streamListener }

func (q *acceptQueue) pop() (*Conn, error) {
	nc, err := q.inner.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(nc), nil
}

func (q *acceptQueue) setDeadline(t time.Time) error { return q.inner.SetDeadline(t) }

func (l *listener) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ul, ok := l.inner.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(l.unlink.Load())
	}
	return l.inner.Close()
}

func (l *listener) rawConn(*Listener) (syscall.RawConn, error) { return l.inner.SyscallConn() }

// files returns a copy of the only socket, however many are asked for.
func (l *listener) files(int) ([]*os.File, error) {
	f, err := l.inner.File()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// perLoop returns one listener, which takes from the same queue as the one that
// was split: there are no loops to have one each.
func (l *listener) perLoop() []*Listener { return l.only }

func (l *listener) stats() ListenerStats { return ListenerStats{} }
