//go:build !percore_net

package percore

import (
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/sys"
)

// onNet says that errors come from package net, wrapped.
const onNet = false

// sock is a Conn's socket. Its methods return errors of the second layer: an
// errno with the name of the system call, io.EOF, net.ErrClosed or
// os.ErrDeadlineExceeded.
//
// The Conn, which users hold, and the loop.FD, which the loop's table holds, are
// two objects so that the garbage collector can find a Conn that no object holds
// any more. Together they are 192 bytes, and an idle connection has nothing
// else.
type sock struct {
	// immutable
	fd      *loop.FD
	options *connOptions
	peer    rawAddr // as accept4 gave it

	// atomic
	addrs atomic.Pointer[addrPair] // set when first asked for, at the latest by Close
}

// connOptions are the options that the connections of one listener, or many dialed ones, share.
type connOptions struct {
	net  string // the network as the user gave it
	kind loop.StreamKind

	admission *admission // of the listener; nil: none
	quiet     bool       // OnClose is not told: the connection has not been let in yet
	served    bool       // another process has served requests on the connections

	// The sockets are not as package net makes them: the user's hook, or the process that the
	// listening socket is from, has seen to it that a read finds bytes that no edge announces.
	altered atomic.Bool

	opened, closed atomic.Uint64 // connections that were made, and of these: closed
}

// addrPair is a connection's two addresses.
type addrPair struct {
	local, remote net.Addr
	fixed         bool // the kernel can't tell them, or not any more: never forgotten
}

// newConn makes a connection of nfd, which it then owns, on the loop l. peer is
// nil for a connection whose address has to be asked for when it is wanted.
func newConn(l *loop.Loop, nfd int, o *connOptions, peer *unix.RawSockaddrAny) (*Conn, error) {
	c := &Conn{sock{options: o}}
	if peer != nil {
		if peer.Addr.Family == unix.AF_UNIX {
			c.sock.addrs.Store(&addrPair{local: localAddrOf(nfd), remote: unixAddr(peer)})
		} else {
			c.sock.peer = parseAddr(peer)
		}
	}
	fd, err := l.NewFD(nfd, o.kind)
	if err != nil {
		sys.Close(nfd)
		return nil, err
	}
	c.sock.fd = fd
	if o.altered.Load() {
		_ = fd.RawControl(func(uintptr) {}) // finds out the consequences for reads
	}
	runtime.SetFinalizer(c, (*Conn).Close)
	o.opened.Add(1)
	conns.opened.Add(1)
	return c, nil
}

func (s *sock) ok() bool        { return s.fd != nil }
func (s *sock) network() string { return s.options.net }

func (s *sock) read(b []byte) (int, error) {
	n, err := s.fd.Read(b)
	return n, syscallError("read", err)
}

func (s *sock) tryRead(b []byte) (int, error) {
	n, err := s.fd.TryRead(b)
	return n, syscallError("read", err)
}

func (s *sock) setNoWait(noWait bool) error { return s.fd.SetNoWait(noWait) }

func (s *sock) write(b []byte) (int, error) {
	n, err := s.fd.Write(b)
	return n, syscallError("write", err)
}

func (s *sock) close(c *Conn) error {
	c.hold()
	p := *s.pair() // afterwards it is too late to ask
	p.fixed = true
	s.addrs.Store(&p)
	err := s.fd.Close()
	if err == loop.ErrClosed {
		return err
	}
	s.options.closed.Add(1)
	conns.closed.Add(1)
	if admission := s.options.admission; admission.tells() && !s.options.quiet {
		admission.closed(addrPortOf(p.local), s.remoteAddrPort())
	} else {
		admission.release()
	}
	return err
}

func (s *sock) closeRead() error {
	return syscallError("shutdown", s.fd.Shutdown(unix.SHUT_RD))
}

func (s *sock) closeWrite() error {
	return syscallError("shutdown", s.fd.Shutdown(unix.SHUT_WR))
}

func (s *sock) localAddr() net.Addr  { return s.pair().local }
func (s *sock) remoteAddr() net.Addr { return s.pair().remote }

func (s *sock) remoteAddrPort() netip.AddrPort {
	if a := s.peer.addrPort(); a.IsValid() {
		return a
	}
	return addrPortOf(s.remoteAddr())
}

// pair returns the addresses, asking the kernel for the local one the first
// time.
func (s *sock) pair() *addrPair {
	if p := s.addrs.Load(); p != nil {
		return p
	}
	p := &addrPair{remote: s.peer.netAddr()}
	err := s.fd.Control(func(fd int) syscall.Errno {
		p.local = localAddrOf(fd)
		return 0
	})
	if err != nil {
		return s.addrs.Load() // closed meanwhile, by Close, which asked first
	}
	if !s.addrs.CompareAndSwap(nil, p) {
		if known := s.addrs.Load(); known != nil {
			return known
		}
	}
	return p
}

func (s *sock) setDeadline(t time.Time) error      { return s.fd.SetDeadline(t) }
func (s *sock) setReadDeadline(t time.Time) error  { return s.fd.SetReadDeadline(t) }
func (s *sock) setWriteDeadline(t time.Time) error { return s.fd.SetWriteDeadline(t) }

// onReadable arms f and keeps c from being collected until f is called: a Conn
// that waits is often held by nothing but its callback.
func (s *sock) onReadable(c *Conn, f func(error)) error {
	return s.fd.OnReadable(func(err error) {
		f(err)
		runtime.KeepAlive(c)
	})
}

func (s *sock) notifyReadable(h ReadableHandler) error {
	if err := s.fd.NotifyReadable(h); err != nil {
		return err
	}
	s.forgetAddrs()
	return nil
}

// forgetAddrs drops the addresses that pair remembers if they can be found out again, for a
// connection that is going to wait for long.
func (s *sock) forgetAddrs() {
	if p := s.addrs.Load(); s.peer.family != unix.AF_UNSPEC && p != nil && !p.fixed {
		s.addrs.CompareAndSwap(p, nil)
	}
}

func (s *sock) cancelOnReadable() bool { return s.fd.CancelOnReadable() }

func (s *sock) atEnd() bool { return s.fd.AtEnd() }

func (s *sock) loop() *loop.Loop { return s.fd.Loop() }

// watch has the watcher hold the connection, which needs no finalizer meanwhile.
func (s *sock) watch(c *Conn, h *EventHandler) error {
	if err := s.fd.Watch(h); err != nil {
		return err
	}
	c.hold()
	return nil
}

func (s *sock) unwatch(c *Conn) bool {
	if !s.fd.Unwatch() {
		return false
	}
	c.release()
	return true
}

func (s *sock) tryWrite(b []byte) (int, error) {
	n, err := s.fd.TryWrite(b)
	return n, syscallError("write", err)
}

func (s *sock) rawConn(c *Conn) (syscall.RawConn, error) { return rawConn{c}, nil }

// file goes by way of package net, so that the file is as a net.Conn's in every respect: its name,
// and that its Fd method makes the descriptor blocking. The latter concerns the connection too,
// since the two share the flag, and does it no harm: see sys.Recv. If it is blocking already,
// because of an earlier file, the owner of that one relies on it.
func (s *sock) file() (*os.File, error) {
	fd, err := s.fd.Dup()
	if err != nil {
		return nil, syscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "percore")
	defer f.Close()
	flags, errno := sys.StatusFlags(fd)
	if errno != 0 {
		return nil, syscallError("fcntl", errno)
	}
	if flags&unix.O_NONBLOCK == 0 {
		defer sys.SetNonblock(fd, false) // net.FileConn turns it non-blocking
	}
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, inner(err)
	}
	defer nc.Close()
	if f, err = nc.(interface{ File() (*os.File, error) }).File(); err != nil {
		return nil, inner(err)
	}
	return f, nil
}

// setByFileConn are the options that net.FileConn sets on a connection, level and name.
var setByFileConn = [...][2]int{
	{unix.IPPROTO_TCP, unix.TCP_NODELAY},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
}

// netHalf returns a connection of package net's on a duplicate of the descriptor, for a
// netConn. The socket's options stay as they are.
func (s *sock) netHalf() (*net.TCPConn, error) {
	var fd int
	var errno syscall.Errno
	// Not Control: now that there is a duplicate, closing the descriptor does not take it
	// out of epoll.
	if err := s.fd.RawControl(func(own uintptr) { fd, errno = sys.Dup(int(own)) }); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	f := os.NewFile(uintptr(fd), "percore")
	defer f.Close()
	var options [len(setByFileConn)]int
	for i, o := range setByFileConn {
		options[i], _ = sys.GetsockoptInt(fd, o[0], o[1])
	}
	nc, err := net.FileConn(f) // on another duplicate
	if err != nil {
		return nil, inner(err)
	}
	for i, o := range setByFileConn {
		_ = sys.SetsockoptInt(fd, o[0], o[1], options[i])
	}
	return nc.(*net.TCPConn), nil
}

// dupOf returns a duplicate of the descriptor of package net's connection or
// listener.
func dupOf(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int
	var errno syscall.Errno
	if err := raw.Control(func(s uintptr) { fd, errno = sys.Dup(int(s)) }); err != nil {
		return -1, err
	}
	if errno != 0 {
		return -1, os.NewSyscallError("fcntl", errno)
	}
	return fd, nil
}

func (s *sock) setNoDelay(on bool) error {
	return s.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, boolInt(on))
}

func (s *sock) setLinger(sec int) error {
	l := unix.Linger{}
	if sec >= 0 {
		l = unix.Linger{Onoff: 1, Linger: int32(sec)}
	}
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return sys.SetsockoptLinger(fd, &l)
	}))
}

func (s *sock) setKeepAlive(on bool) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_KEEPALIVE, boolInt(on))
}

func (s *sock) setKeepAlivePeriod(d time.Duration) error {
	if d < 0 {
		return nil // changes nothing, not even on a closed connection
	}
	return s.setKeepAliveParams(net.KeepAliveConfig{Idle: d, Interval: -1, Count: -1})
}

func (s *sock) setKeepAliveConfig(config net.KeepAliveConfig) error {
	if err := s.setKeepAlive(config.Enable); err != nil {
		return err
	}
	return s.setKeepAliveParams(config)
}

func (s *sock) setKeepAliveParams(config net.KeepAliveConfig) error {
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return setKeepAliveParams(fd, config)
	}))
}

func (s *sock) setReadBuffer(bytes int) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
}

func (s *sock) setWriteBuffer(bytes int) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
}

func (s *sock) setInt(level, opt, value int) error {
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return sys.SetsockoptInt(fd, level, opt, value)
	}))
}

// mptcpInfo is MPTCP_INFO of <linux/mptcp.h>.
const mptcpInfo = 1

// multipathTCP asks whether the protocol is MPTCP and has not fallen back to
// TCP. In the latter case the kernel does not know MPTCP_INFO for the socket
// (EOPNOTSUPP or ENOPROTOOPT, since Linux 5.16).
func (s *sock) multipathTCP() bool {
	is := false
	_ = s.fd.Control(func(fd int) syscall.Errno {
		proto, errno := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if errno != 0 || proto != unix.IPPROTO_MPTCP {
			return 0
		}
		_, errno = sys.GetsockoptInt(fd, unix.SOL_MPTCP, mptcpInfo)
		is = errno != syscall.EOPNOTSUPP && errno != syscall.ENOPROTOOPT
		return 0
	})
	return is
}

// rawConn is the result of SyscallConn.
type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	err := r.c.sock.fd.RawControl(f)
	if err != nil {
		err = r.c.localOpError("raw-control", err)
	}
	runtime.KeepAlive(r.c)
	return err
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error {
	err := r.c.sock.fd.RawRead(f)
	if err != nil {
		err = r.c.opError("raw-read", err)
	}
	runtime.KeepAlive(r.c)
	return err
}

func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	err := r.c.sock.fd.RawWrite(f)
	if err != nil {
		err = r.c.opError("raw-write", err)
	}
	runtime.KeepAlive(r.c)
	return err
}

// syscallError is the second layer of an error: it adds the name of the system
// call to an errno and leaves everything else alone.
func syscallError(name string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(name, errno)
	}
	return err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The defaults of package net, which are also net.KeepAliveConfig's.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 9
)

// setKeepAliveParams sets all that config doesn't leave alone: 0 means the default,
// below 0 means don't touch. The kernel wants whole seconds; they are rounded up
// (tcp(7), TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT).
func setKeepAliveParams(fd int, config net.KeepAliveConfig) syscall.Errno {
	set := func(opt, value, byDefault int) syscall.Errno {
		switch {
		case value < 0:
			return 0
		case value == 0:
			value = byDefault
		}
		return sys.SetsockoptInt(fd, unix.IPPROTO_TCP, opt, value)
	}
	if errno := set(unix.TCP_KEEPIDLE, wholeSeconds(config.Idle), int(keepAliveIdle/time.Second)); errno != 0 {
		return errno
	}
	if errno := set(unix.TCP_KEEPINTVL, wholeSeconds(config.Interval), int(keepAliveInterval/time.Second)); errno != 0 {
		return errno
	}
	return set(unix.TCP_KEEPCNT, config.Count, keepAliveCount)
}

// wholeSeconds rounds up; a negative duration stays negative.
func wholeSeconds(d time.Duration) int {
	switch {
	case d < 0:
		return -1
	case d > math.MaxInt32*time.Second:
		return math.MaxInt32 // which the kernel refuses
	}
	return int((d + time.Second - 1) / time.Second)
}
