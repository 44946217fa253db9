package percore

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/internal/fastpath"
)

// streamListener has the methods that *net.TCPListener and *net.UnixListener share.
type streamListener interface {
	net.Listener
	syscall.Conn
	SetDeadline(t time.Time) error
	File() (*os.File, error)
}

// netListener is a listener of package net's with an admission. Its connections have all methods
// of package net's.
type netListener struct {
	streamListener

	// immutable
	admission *admission
	proxy     *proxyRules // nil: no headers are awaited
	headers   *merged     // the streamListener, if there is proxy

	mu struct {
		sync.Mutex
		closed   bool
		deadline time.Time
		changed  chan struct{} // closed, and made anew, when a call of Accept must look again
	}
}

// admit returns a listener of package net's on all sockets with lc's admission, or nil if lc has none.
func (lc *ListenConfig) admit(all []streamListener) *netListener {
	l := &netListener{proxy: lc.ProxyProtocol.rules(all[0].Addr())}
	l.mu.changed = make(chan struct{})
	l.admission = lc.admission(l.wake)
	switch {
	case l.admission == nil:
		return nil
	case l.proxy != nil:
		l.headers = newMergedWith(all, l.proxy)
		l.streamListener = l.headers
	default:
		l.streamListener = merge(all)
	}
	return l
}

// merge returns a listener on all sockets.
func merge(all []streamListener) streamListener {
	if len(all) == 1 {
		return all[0]
	}
	return newMerged(all)
}

// engineIsNet reports whether the environment has Listen and Dial return package net's listeners and
// connections, where they would not be package net's within in any case.
func engineIsNet() bool { return !onNet && fastpath.EngineIsNet() }

// listenNet is Listen without the engine.
func (lc *ListenConfig) listenNet(ctx context.Context, network, address string) (net.Listener, error) {
	nl, err := lc.netConfig(lc.netControl()).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lc.overNet([]streamListener{nl.(streamListener)}), nil
}

// fileListenNet is FileListeners without the engine.
func (lc *ListenConfig) fileListenNet(files []*os.File) (net.Listener, error) {
	all, err := netFileListeners(files)
	if err != nil {
		return nil, err
	}
	if err := lc.check(all[0].Addr().Network()); err != nil {
		closeListeners(all)
		return nil, err
	}
	return lc.overNet(all), nil
}

// overNet returns one listener on all sockets, with lc's admission if it has one.
func (lc *ListenConfig) overNet(all []streamListener) net.Listener {
	if l := lc.admit(all); l != nil {
		return l
	}
	return merge(all)
}

// netFileListeners returns package net's listeners on copies of the files' sockets.
func netFileListeners(files []*os.File) ([]streamListener, error) {
	var all []streamListener
	for i, f := range files {
		nl, err := net.FileListener(f)
		if err == nil {
			all = append(all, nl.(streamListener))
			err = checkFile(files, i, nl.Addr(), all[0].Addr())
		}
		if err != nil {
			closeListeners(all)
			return nil, fileError(files, i, err)
		}
	}
	return all, nil
}

func closeListeners(all []streamListener) {
	for _, l := range all {
		l.Close()
	}
}

// wake makes all calls of Accept look again.
func (l *netListener) wake() { l.change(func() {}) }

func (l *netListener) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// Accept waits until there is room, and then for a connection that is wanted.
func (l *netListener) Accept() (net.Conn, error) {
	for {
		if err := l.acquire(); err != nil {
			return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: err}
		}
		a := l.next()
		if a.err != nil {
			l.admission.release()
			return nil, a.err
		}
		if a.local == nil {
			a.local, a.remote = a.conn.LocalAddr(), a.conn.RemoteAddr()
		}
		t := &ticket{l.admission, a.local, a.remote}
		if t.admits(a.conn) {
			return newAdmitted(a.conn, t), nil
		}
	}
}

// next waits for a connection.
func (l *netListener) next() acceptResult {
	if l.headers != nil {
		return l.headers.acceptResult()
	}
	nc, err := l.streamListener.Accept()
	return acceptResult{conn: nc, err: err}
}

// acquire waits for a place. It fails when the listener is closed and when its deadline passes.
func (l *netListener) acquire() error {
	for {
		l.mu.Lock()
		closed, deadline, changed := l.mu.closed, l.mu.deadline, l.mu.changed
		l.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case l.admission.hasRoom():
			if l.admission.acquire() {
				return nil
			}
			continue
		}
		if err := awaitChange(changed, deadline); err != nil {
			return err
		}
	}
}

// awaitChange waits until changed is closed. It fails when the deadline passes.
func awaitChange(changed <-chan struct{}, deadline time.Time) error {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-changed:
		return nil
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

// SetDeadline sets the time from which Accept fails.
func (l *netListener) SetDeadline(t time.Time) error {
	err := l.streamListener.SetDeadline(t)
	if err == nil {
		l.change(func() { l.mu.deadline = t })
	}
	return err
}

// Close closes the listener and ends Accept.
func (l *netListener) Close() error {
	l.change(func() { l.mu.closed = true })
	return l.streamListener.Close()
}

// ticket is a connection's place.
type ticket struct {
	admission     *admission
	local, remote net.Addr // the client's, if there was a PROXY header
}

// admits asks the user about the connection, if they want to be asked, and closes it unless it is
// wanted.
func (t *ticket) admits(nc net.Conn) (wanted bool) {
	if !t.admission.asks() {
		return true
	}
	defer func() { // also if the user's function panics
		if !wanted {
			nc.Close()
			t.admission.release()
		}
	}()
	return t.admission.admits(addrPortOf(t.local), addrPortOf(t.remote))
}

func (t *ticket) closed() { t.admission.closed(addrPortOf(t.local), addrPortOf(t.remote)) }

// admitted is the part of a connection of package net's that its admission counts.
type admitted struct {
	ticket    *ticket
	collected runtime.Cleanup
}

// closed gives the place back, unless err says that the connection was closed before.
func (a *admitted) closed(err error) error {
	if !errors.Is(err, net.ErrClosed) {
		a.collected.Stop()
		a.ticket.closed()
	}
	return err
}

type (
	admittedTCP struct {
		*tcpConn
		admitted
	}
	admittedUnix struct {
		*unixConn
		admitted
	}
)

// unixConn is a name for an embedded field that nothing outside can select.
type unixConn = net.UnixConn

// newAdmitted returns nc with a place, which is given back when it is closed, also by the garbage
// collector: that closes the connection in it. (A finalizer of the result could run while a call
// on the connection is under way.)
func newAdmitted(nc net.Conn, t *ticket) net.Conn {
	switch nc := nc.(type) {
	case *net.TCPConn:
		return &admittedTCP{nc, admitted{t, runtime.AddCleanup(nc, (*ticket).closed, t)}}
	case *net.UnixConn:
		return &admittedUnix{nc, admitted{t, runtime.AddCleanup(nc, (*ticket).closed, t)}}
	}
	panic("percore: package net accepted a connection of another kind than its listener's")
}

// Close closes the connection and gives its place back.
func (c *admittedTCP) Close() error {
	defer runtime.KeepAlive(c)
	return c.closed(c.tcpConn.Close())
}

// Close closes the connection and gives its place back.
func (c *admittedUnix) Close() error {
	defer runtime.KeepAlive(c)
	return c.closed(c.unixConn.Close())
}

// LocalAddr returns the local address, or the one in the PROXY header.
func (c *admittedTCP) LocalAddr() net.Addr { return c.ticket.local }

// RemoteAddr returns the peer's address, or the one in the PROXY header.
func (c *admittedTCP) RemoteAddr() net.Addr { return c.ticket.remote }

// LocalAddr returns the local address, or the one in the PROXY header.
func (c *admittedUnix) LocalAddr() net.Addr { return c.ticket.local }

// RemoteAddr returns the peer's address, or the one in the PROXY header.
func (c *admittedUnix) RemoteAddr() net.Addr { return c.ticket.remote }
