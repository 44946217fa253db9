package percore

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Listener accepts connections. It implements [net.Listener] and has the methods of
// *net.TCPListener and *net.UnixListener, with AcceptConn in place of AcceptTCP and AcceptUnix. All
// are safe for concurrent use.
type Listener struct {
	listener *listener
	acceptor *acceptor
	holder   *holder
	closed   atomic.Bool
}

var _ net.Listener = (*Listener)(nil)

// holder is held only by a Listener and the listeners that PerLoop makes of it. When the garbage
// collector finds it, no goroutine can accept any more, and the sockets are closed, as with package
// net; the file of a unix socket stays.
type holder struct{ listener *listener }

// newListener returns the listener that users hold.
func newListener(impl *listener) *Listener {
	h := &holder{impl}
	runtime.SetFinalizer(h, func(h *holder) {
		h.listener.unlink.Store(false) // the file may already belong to another listener
		h.listener.close()
	})
	return &Listener{listener: impl, acceptor: impl.all, holder: h}
}

func (l *Listener) ok() bool { return l != nil && l.listener != nil }

// Accept waits for the next connection, a *[Conn] unless NetBuffers is set ([ListenConfig]). Any
// number of goroutines may call it. It fails with [net.ErrClosed] once the listener is closed, and
// with [os.ErrDeadlineExceeded] once its deadline has passed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	switch {
	case err != nil:
		return nil, err
	case !l.listener.netBuffers:
		return c, nil
	}
	nc, err := l.acceptor.withNetBuffers(c)
	runtime.KeepAlive(l.holder)
	if err != nil {
		c.Close()
		return nil, l.opError("accept", err)
	}
	return nc, nil
}

// AcceptConn is Accept with the connection's type.
func (l *Listener) AcceptConn() (*Conn, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	c, err := l.acceptor.accept()
	if err != nil {
		err = l.opError("accept", err)
	}
	runtime.KeepAlive(l.holder)
	return c, err
}

// Close stops listening. Waiting and later calls of Accept fail with [net.ErrClosed]. Connections in
// the backlog are reset, unless a copy of the socket is open elsewhere (see Files); accepted
// connections are not affected. The file of a unix socket is removed.
func (l *Listener) Close() error {
	if !l.ok() {
		return syscall.EINVAL
	}
	if l.closed.Swap(true) {
		return l.opError("close", net.ErrClosed)
	}
	runtime.SetFinalizer(l.holder, nil)
	l.listener.close()
	return nil
}

// Addr returns the address of the listener. All callers share it, so do not change it.
func (l *Listener) Addr() net.Addr {
	if !l.ok() {
		return nil
	}
	return l.listener.addr
}

// SetDeadline sets the time from which Accept fails with [os.ErrDeadlineExceeded]. The zero time
// means never.
func (l *Listener) SetDeadline(t time.Time) error {
	if !l.ok() {
		return syscall.EINVAL
	}
	return l.acceptor.ready.SetDeadline(t) // package net doesn't wrap the error either
}

// SyscallConn returns a raw connection that supports only Control. Control calls its function for
// each of the listener's sockets in turn, so an option that it sets holds for all connections. The
// sockets stay open until Control returns; after Close it fails with [net.ErrClosed].
//
// Code that duplicates the descriptor to hand over the port, as it may with package net's listeners,
// gets only the last socket, or several: see File.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	return l.listener.rawConn(l.holder)
}

// File returns a copy of the listener's first socket, which the caller must close. Its descriptor
// is non-blocking, and Fd doesn't change that.
//
// To hand over a port, use [Listener.Files], and pass all files to [FileListeners]. A successor that
// has only one of several sockets gets only the connections that the kernel assigns to it. The
// connections that wait on the other sockets are reset when this listener is closed, unless
// net.ipv4.tcp_migrate_req is 1 (Linux 5.14). Close logs a warning (slog's default logger) if this
// seems to have happened: File, or Control of SyscallConn, was called and Files was not, and something
// still listens at the address after Close. For tools that pass one descriptor per listener, make a
// listener with one socket: pass the file of package net's listener to [FileListener].
func (l *Listener) File() (*os.File, error) {
	files, err := l.copySockets(1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// Files returns copies of all of the listener's sockets, one per loop. Their descriptors are
// non-blocking and stay so. The caller must close them.
func (l *Listener) Files() ([]*os.File, error) { return l.copySockets(-1) }

// copySockets returns copies of the first n sockets, or of all if n is below 0.
func (l *Listener) copySockets(n int) ([]*os.File, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	files, err := l.listener.files(n)
	if err != nil {
		return nil, l.opError("file", err)
	}
	return files, nil
}

// SetUnlinkOnClose sets whether Close removes the file of a unix socket. By default it does if
// Listen made the file. On other listeners SetUnlinkOnClose has no effect.
func (l *Listener) SetUnlinkOnClose(unlink bool) {
	if l.ok() {
		l.listener.unlink.Store(unlink)
	}
}

// PerLoop returns a listener for each of l's sockets, so that one goroutine for each can accept at
// the same time. A TCP listener has a socket per loop. A unix or an inherited listener has a single
// socket, and so has every listener off Linux: then PerLoop returns one listener, which accepts what
// l accepts. Connections go to the same loops as l's. With the strategy loop.Thread, a socket per
// loop, and without LeastLoaded, the i-th listener's connections go to loop i.
//
// The listeners share their sockets with l: closing any of them, or l, closes all, since the kernel
// would reset the connections in the backlog of a socket that is closed alone. Each has its own
// deadline. PerLoop fails if the process is out of descriptors or l is closed.
//
// http.Server and grpc.Server can serve several listeners, with one call of Serve for each.
func (l *Listener) PerLoop() ([]*Listener, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	acceptors, err := l.listener.perLoop()
	if err != nil {
		return nil, l.opError("perloop", err)
	}
	var split []*Listener
	for _, a := range acceptors {
		split = append(split, &Listener{listener: l.listener, acceptor: a, holder: l.holder})
	}
	return split, nil
}

// Stats returns the listener's counters; [ReadStats] returns the counters of all listeners. Off
// Linux all are 0 except MaxConns and, with MaxConns, OnAccept, OnClose or ProxyProtocol, Open,
// LimitWaits, Refused and BadHeaders.
func (l *Listener) Stats() ListenerStats {
	if !l.ok() {
		return ListenerStats{}
	}
	return l.listener.stats()
}

func (l *Listener) opError(op string, err error) error {
	if _, ok := err.(*net.OpError); ok {
		return err // off Linux package net has wrapped it
	}
	return &net.OpError{Op: op, Net: l.listener.network, Addr: l.listener.addr, Err: err}
}
