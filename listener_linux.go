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

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/loop"
)

// listener is what a Listener and its per-loop listeners share: one acceptor per
// listening socket, and the queues they fill.
type listener struct {
	// immutable
	network  string
	addr     net.Addr
	group    *loop.Group // holds a reference
	origin   *origin
	spread   bool // place each connection on the least-loaded loop
	report   func(error)
	sockets  []*acceptor
	queueMax int
	queue    *acceptQueue // of all connections, until they are split

	closing chan struct{} // closed by close

	// atomic
	accepted, putOffs atomic.Uint64
	unlink            atomic.Bool // remove the unix socket's file on close

	mu struct {
		sync.Mutex
		closed bool
		split  []*Listener // per loop, from perLoop; nil before
	}
}

// defaultGroup is the group of loops of those who don't bring their own.
var defaultGroup struct {
	sync.Mutex
	group *loop.Group
}

// acquireGroup returns a group with a reference for the caller.
func acquireGroup(group *loop.Group) (*loop.Group, error) {
	if group != nil {
		if !group.Retain() {
			return nil, loop.ErrStopped
		}
		return group, nil
	}
	d := &defaultGroup
	d.Lock()
	defer d.Unlock()
	if d.group != nil && d.group.Retain() {
		return d.group, nil
	}
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		return nil, err
	}
	d.group = group // its maker's reference is the caller's
	return group, nil
}

func (lc *ListenConfig) listen(ctx context.Context, network, address string) (*listener, error) {
	// Package net resolves, checks and binds, and says what is wrong. The first
	// socket must not have SO_REUSEPORT while it is bound, or a port that is in
	// use by another server of this kind would be shared instead of refused.
	first, err := lc.netConfig(lc.control(lc.ReusePort)).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ul, isUnix := first.(*net.UnixListener)
	if isUnix {
		ul.SetUnlinkOnClose(false) // the file outlives package net's listener
	}
	l, err := lc.adopt(network, first)
	if err == nil && !isUnix {
		err = l.multiply(ctx, lc)
	}
	if err != nil {
		if l != nil {
			l.close()
		}
		if isUnix {
			_ = os.Remove(ul.Addr().String())
		}
		return nil, &net.OpError{Op: "listen", Net: network, Addr: first.Addr(), Err: err}
	}
	l.unlink.Store(isUnix)
	l.start()
	return l, nil
}

func (lc *ListenConfig) fileListener(f *os.File) (*listener, error) {
	nl, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		return &net.OpError{Op: "file", Net: "file+net", Addr: nl.Addr(), Err: err}
	}
	if ua, ok := nl.Addr().(*net.UnixAddr); ok && ua.Net != "unix" {
		nl.Close()
		return nil, fail(errors.New("percore serves stream sockets only; use net.FileListener for " + ua.Net))
	}
	l, err := lc.adopt(nl.Addr().Network(), nl)
	if err != nil {
		if l != nil {
			l.close()
		}
		return nil, fail(err)
	}
	l.spread = true // there is one socket for all loops
	l.start()
	return l, nil
}

// control is the hook that package net calls before it binds a socket.
func (lc *ListenConfig) control(reusePort bool) func(string, string, syscall.RawConn) error {
	if !reusePort {
		return lc.Control
	}
	return func(network, address string, c syscall.RawConn) error {
		var errno syscall.Errno
		err := c.Control(func(fd uintptr) {
			errno = sys.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
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

// adopt makes a listener of package net's, which it closes. If it fails after
// that the listener returned with the error must be closed.
func (lc *ListenConfig) adopt(network string, nl net.Listener) (*listener, error) {
	group, err := acquireGroup(lc.Group)
	if err != nil {
		nl.Close()
		return nil, err
	}
	l := &listener{
		network:  network,
		addr:     nl.Addr(),
		group:    group,
		origin:   &origin{net: network},
		spread:   lc.LeastLoaded,
		report:   lc.OnAcceptError,
		queueMax: lc.AcceptQueueMax,
		closing:  make(chan struct{}),
	}
	if l.report == nil {
		l.report = warnAcceptError
	}
	if l.queueMax <= 0 {
		l.queueMax = acceptQueueMax
	}
	l.queue = newAcceptQueue(l.queueMax)
	if _, ok := nl.(*net.TCPListener); !ok {
		l.spread = true // unix sockets can't be multiplied
	}
	if err := l.add(lc, nl); err != nil {
		return l, err
	}
	return l, l.sockets[0].control(func(fd uintptr) {
		if proto, _ := sys.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL); proto == unix.IPPROTO_TCP {
			l.origin.kind = loop.TCP // and not MPTCP, which an inherited socket may be
		}
	})
}

// multiply binds a socket for each of the other loops to the address of the
// first.
func (l *listener) multiply(ctx context.Context, lc *ListenConfig) error {
	others := l.group.Len() - 1
	if others == 0 {
		return nil
	}
	// Now that the first is bound it may share the port.
	var errno syscall.Errno
	err := l.sockets[0].control(func(fd uintptr) {
		errno = sys.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	config := lc.netConfig(lc.control(true))
	for range others {
		nl, err := config.Listen(ctx, l.network, l.addr.String())
		if err != nil {
			return inner(err)
		}
		if err := l.add(lc, nl); err != nil {
			return err
		}
	}
	return nil
}

// inner returns what a net.OpError wraps, for an error that is wrapped again.
func inner(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

// add takes a socket over from package net's listener, which it closes, for the
// next loop. It does not accept from it yet.
func (l *listener) add(lc *ListenConfig, nl net.Listener) error {
	defer nl.Close()
	raw, err := nl.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	var errno syscall.Errno
	if err := raw.Control(func(s uintptr) { fd, errno = sys.Dup(int(s)) }); err != nil {
		return err
	}
	if errno != 0 {
		return os.NewSyscallError("fcntl", errno)
	}
	if errno := lc.setInherited(fd, nl); errno != 0 {
		sys.Close(fd)
		return os.NewSyscallError("setsockopt", errno)
	}
	a, err := newAcceptor(l, l.group.Loop(len(l.sockets)), fd)
	if err != nil {
		return err
	}
	l.sockets = append(l.sockets, a)
	return nil
}

// setInherited sets on a listening socket what package net sets on every
// connection: on Linux they inherit it, so that accepting one costs no further
// system calls.
func (lc *ListenConfig) setInherited(fd int, nl net.Listener) syscall.Errno {
	if _, ok := nl.(*net.TCPListener); !ok {
		return 0
	}
	if errno := sys.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); errno != 0 {
		return errno
	}
	keepAlive := lc.KeepAliveConfig
	if !keepAlive.Enable {
		if lc.KeepAlive < 0 {
			return 0
		}
		keepAlive = net.KeepAliveConfig{Enable: true, Idle: lc.KeepAlive}
	}
	if errno := sys.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); errno != 0 {
		return errno
	}
	return setKeepAliveParams(fd, keepAlive)
}

// start accepts, now that all sockets are there.
func (l *listener) start() {
	for _, a := range l.sockets {
		go a.run()
	}
}

// close ends the listener. What was accepted and not handed out is reset, as the
// kernel resets what is still in the backlog.
func (l *listener) close() error {
	if err := l.markClosed(); err != nil {
		return err
	}
	if path := l.addr.String(); l.unlink.Load() && path != "" && path[0] != '@' {
		_ = os.Remove(path) // before the socket is closed, as package net does
	}
	l.fail(net.ErrClosed)
	for _, a := range l.sockets {
		a.close()
	}
	for _, q := range l.queues() {
		for _, c := range q.drain() {
			reset(c)
		}
	}
	l.group.Release()
	return nil
}

// markClosed decides who closes.
func (l *listener) markClosed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return net.ErrClosed
	}
	l.mu.closed = true
	close(l.closing)
	return nil
}

// fail makes Accept fail with err, everywhere and for good.
func (l *listener) fail(err error) {
	for _, q := range l.queues() {
		q.fail(err)
	}
}

// queues returns all queues.
func (l *listener) queues() []*acceptQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := []*acceptQueue{l.queue}
	for _, sub := range l.mu.split {
		queues = append(queues, sub.queue)
	}
	return queues
}

// queueOfLocked returns the queue for connections on a loop.
func (l *listener) queueOfLocked(on *loop.Loop) *acceptQueue {
	if l.mu.split != nil {
		return l.mu.split[on.Index()].queue
	}
	return l.queue
}

// admit waits until there is room for a connection on a loop. It reports false
// if the listener accepts no more.
func (l *listener) admit(on *loop.Loop) bool {
	l.mu.Lock()
	q := l.queueOfLocked(on)
	l.mu.Unlock()
	return q.admit()
}

// deliver queues an accepted connection. The lock keeps it from a queue that
// perLoop has emptied.
func (l *listener) deliver(c *Conn) {
	l.accepted.Add(1)
	l.mu.Lock()
	taken := l.queueOfLocked(c.sock.fd.Loop()).push(c)
	l.mu.Unlock()
	if !taken {
		reset(c)
	}
}

func (l *listener) perLoop() []*Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.split != nil {
		return l.mu.split
	}
	for range l.group.Len() {
		sub := &Listener{listener: l, queue: newAcceptQueue(l.queueMax)}
		if l.mu.closed {
			sub.queue.fail(net.ErrClosed)
		}
		l.mu.split = append(l.mu.split, sub)
	}
	for _, c := range l.queue.drain() {
		if !l.queueOfLocked(c.sock.fd.Loop()).push(c) {
			reset(c)
		}
	}
	return l.mu.split
}

func (l *listener) stats() ListenerStats {
	s := ListenerStats{
		Sockets:  len(l.sockets),
		Accepted: l.accepted.Load(),
		PutOff:   l.putOffs.Load(),
		Loops:    l.group.Stats(),
	}
	for _, q := range l.queues() {
		s.Queued += q.len()
		s.Paused += q.pauses.Load()
	}
	return s
}

// files returns copies of the first n sockets, of all if n < 0.
func (l *listener) files(n int) ([]*os.File, error) {
	if n < 0 {
		n = len(l.sockets)
	}
	files := make([]*os.File, 0, n)
	for _, a := range l.sockets[:n] {
		f, err := a.dup()
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

// rawListener is what a listener's SyscallConn returns.
type rawListener struct{ l *Listener }

func (r rawListener) Control(f func(fd uintptr)) error {
	for _, a := range r.l.listener.sockets {
		if err := a.control(f); err != nil {
			return &net.OpError{Op: "raw-control", Net: r.l.listener.network, Addr: r.l.listener.addr, Err: err}
		}
	}
	return nil
}

// Read fails: a listening socket can't be read, and package net says so thus.
func (r rawListener) Read(func(fd uintptr) bool) error { return syscall.EINVAL }

// Write fails as Read does.
func (r rawListener) Write(func(fd uintptr) bool) error { return syscall.EINVAL }

func (l *listener) rawConn(outer *Listener) (syscall.RawConn, error) { return rawListener{outer}, nil }
