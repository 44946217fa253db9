//go:build !percore_net

package percore

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/accepting"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/zerocopy"
)

// onNet says that package net does the work, and has wrapped the errors.
const onNet = false

// sock is a Conn's socket. Its methods return errors of the second layer: an errno with the name of
// the system call, io.EOF, net.ErrClosed or os.ErrDeadlineExceeded. The FD's own methods return the
// errno alone; done adds the name.
//
// The Conn, which users hold, and the engine.FD, which the loop's table holds, are two objects so
// that the garbage collector can find a Conn that nothing refers to any more. Together they take 192
// bytes, and an idle connection needs nothing else.
type sock struct {
	// immutable
	*fd
	options *connOptions
	peer    sockaddr.Addr // as accept4 returned it, or as it was dialed

	// atomic
	addrs atomic.Pointer[addrPair] // set when they are first asked for, at the latest in Close
}

// fd is a name for the embedded field.
type fd = engine.FD

// connOptions are the options that the connections of one listener, or many dialed ones, share.
type connOptions struct {
	net  string // the network as the user gave it
	kind engine.StreamKind

	limits *accepting.Limits // of the listener; nil: none
	quiet  bool              // OnClose is not called: Accept has not returned the connection yet
	served bool              // another process has served requests on the connections

	// The user's hook, or the process that made the listening socket, has set options after which a
	// read may find bytes that no edge announces.
	altered atomic.Bool

	opened, closed atomic.Uint64 // how many connections were made, and how many of these closed
}

// addrPair is a connection's two addresses.
type addrPair struct {
	local, remote net.Addr
	tlvs          *string // of the PROXY header; nil: none
	fixed         bool    // never forgotten, since the kernel doesn't know them, or no longer does
}

// newConn makes a connection of nfd, which it then owns, on the loop l. peer is nil for a connection
// whose addresses the caller stores.
func newConn(l *engine.Loop, nfd int, o *connOptions, peer *unix.RawSockaddrAny) (*Conn, error) {
	c := &Conn{sock{options: o}}
	if peer != nil {
		if peer.Addr.Family == unix.AF_UNIX {
			c.sock.addrs.Store(&addrPair{local: sockaddr.Local(nfd), remote: sockaddr.NetAddr(peer)})
		} else {
			c.sock.peer = sockaddr.Of(peer)
		}
	}
	fd, err := l.NewFD(nfd, o.kind)
	if err != nil {
		sys.Close(nfd)
		return nil, err
	}
	c.sock.fd = fd
	if o.altered.Load() {
		_ = fd.RawControl(func(uintptr) {}) // checks whether reads have to ask the kernel
	}
	runtime.SetFinalizer(c, (*Conn).Close)
	o.opened.Add(1)
	conns.opened.Add(1)
	return c, nil
}

func (s *sock) ok() bool        { return s.fd != nil }
func (s *sock) network() string { return s.options.net }

func (s *sock) writeBuffers(v *net.Buffers) (n int64, err error) {
	var stopped error
	err = s.fd.Stream().Write(func(fd uintptr) (done bool) {
		var wrote int64
		wrote, stopped = zerocopy.Writev(int(fd), (*[][]byte)(v))
		n += wrote
		return stopped != syscall.EAGAIN
	})
	if err == nil {
		err = stopped
	}
	return n, err
}

func (s *sock) close(c *Conn) error {
	var closed func()
	if f := seam.Closing.Load(); f != nil {
		closed = (*f)(c)
	}
	c.dropFinalizer()
	p := *s.pair() // afterwards it is too late to ask the kernel
	p.fixed = true
	s.addrs.Store(&p)
	err := s.fd.Close()
	if err == engine.ErrClosed {
		return err
	}
	if closed != nil {
		closed()
	}
	s.options.closed.Add(1)
	conns.closed.Add(1)
	feedStarving()
	if limits := s.options.limits; s.options.quiet || !limits.WantsAddrs() {
		limits.Release()
	} else {
		limits.Closed(sockaddr.AddrPort(p.local), s.remoteAddrPort())
	}
	return err
}

func (s *sock) CloseRead() error  { return syscallError("shutdown", s.Shutdown(unix.SHUT_RD)) }
func (s *sock) CloseWrite() error { return syscallError("shutdown", s.Shutdown(unix.SHUT_WR)) }

func (s *sock) LocalAddr() net.Addr  { return s.pair().local }
func (s *sock) RemoteAddr() net.Addr { return s.pair().remote }

func (s *sock) remoteAddrPort() netip.AddrPort {
	if a := s.peer.AddrPort(); a.IsValid() {
		return a
	}
	return sockaddr.AddrPort(s.RemoteAddr())
}

// pair returns the addresses. The first time it asks the kernel for the local address.
func (s *sock) pair() *addrPair {
	if p := s.addrs.Load(); p != nil {
		return p
	}
	p := &addrPair{remote: s.peer.NetAddr()}
	err := s.fd.Control(func(fd int) syscall.Errno {
		p.local = sockaddr.Local(fd)
		return 0
	})
	if err != nil {
		return s.addrs.Load() // closed meanwhile: Close has stored them
	}
	if !s.addrs.CompareAndSwap(nil, p) {
		if known := s.addrs.Load(); known != nil {
			return known
		}
	}
	return p
}

// onReadable arms f.
func (s *sock) onReadable(c *Conn, f func(error)) error {
	return s.fd.NotifyReadable(&readableFunc{f, c})
}

// readableFunc is a function as a ReadableHandler. Until it is called it keeps c from being collected:
// often only its callback refers to a Conn that waits.
type readableFunc struct {
	f func(error)
	c *Conn
}

func (r *readableFunc) OnReadable(err error) {
	r.f(err)
	runtime.KeepAlive(r.c)
}

func (s *sock) NotifyReadable(h ReadableHandler) error {
	if err := s.fd.NotifyReadable(h); err != nil {
		return err
	}
	s.forgetAddrs()
	return nil
}

// forgetAddrs drops the addresses that pair has stored, if they can be looked up again: the
// connection may wait for a long time.
func (s *sock) forgetAddrs() {
	if p := s.addrs.Load(); s.peer.IsKnown() && p != nil && !p.fixed {
		s.addrs.CompareAndSwap(p, nil)
	}
}

// setClient gives the connection the addresses and the TLVs in its PROXY header, if there are any.
func (s *sock) setClient(h *proxyproto.Header) {
	pair := addrPair{fixed: true}
	if pair.local, pair.remote = h.Addrs(); pair.local != nil {
		s.peer = sockaddr.From(h.Source)
	} else if h.TLVs != "" {
		pair = *s.pair()
		pair.fixed = true
	} else {
		return
	}
	if tlvs := h.TLVs; tlvs != "" {
		pair.tlvs = &tlvs // not &h.TLVs, which would keep all of h's object
	}
	s.addrs.Store(&pair)
}

func (s *sock) proxyTLVs() []byte {
	if p := s.addrs.Load(); p != nil && p.tlvs != nil {
		return []byte(*p.tlvs)
	}
	return nil
}

func (s *sock) rawConn(c *Conn) (syscall.RawConn, error) { return rawConn{c}, nil }

// File makes the file with package net, so that it is like a net.Conn's in every respect: it has the
// same name, and its Fd method makes the descriptor blocking. That makes the connection's descriptor
// blocking too, since the two share the flag, but does no harm: see sys.Recv. If the descriptor is
// already blocking because of an earlier file, the owner of that file relies on it.
func (s *sock) File() (*os.File, error) {
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
		defer sys.SetNonblock(fd, false) // net.FileConn makes it non-blocking
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

// netHalf returns package net's connection on a duplicate of the descriptor, for a netConn. It
// leaves the socket's options as they are.
func (s *sock) netHalf() (*net.TCPConn, error) {
	// Not Control: with a duplicate, closing the descriptor doesn't take it out of epoll, but
	// RawControl handles that.
	var fd int
	var errno syscall.Errno
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

// dupOf returns a duplicate of the descriptor of package net's connection or listener.
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

// rawConn is the result of SyscallConn.
type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	return r.c.doneHere("raw-control", r.c.sock.RawControl(f))
}

func (r rawConn) Read(f func(fd uintptr) (done bool)) error {
	return r.c.done("raw-read", r.c.sock.RawRead(f))
}

func (r rawConn) Write(f func(fd uintptr) (done bool)) error {
	return r.c.done("raw-write", r.c.sock.RawWrite(f))
}
