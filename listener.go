package percore

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/loop"
)

// Listen announces on a local address and returns a listener whose connections are *[Conn]. It
// takes net.Listen's arguments, and fails with net.Listen's errors: networks "tcp", "tcp4", "tcp6"
// and "unix"; host names, service names, an empty host for all addresses, port 0 for one of the
// kernel's choice. On any other network the listener, if there is one ("unixpacket", whose
// connections are no streams), is package net's.
//
// The listener runs on the default group of loops, up to one per GOMAXPROCS, which
// starts with the first listener and ends with the last listener and connection.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// ListenConfig has options for listening. The first three fields and the
// methods Listen, MultipathTCP and SetMultipathTCP are net.ListenConfig's; the others
// are percore's. Those before MaxConns are about the engine and have no effect on anything but
// Linux. There is no ListenPacket.
type ListenConfig struct {
	// Control, if not nil, is called for each socket before it is bound. There
	// is one socket per loop, so it is called several times, for those after the
	// first with the port that the first has got.
	Control func(network, address string, c syscall.RawConn) error

	// KeepAlive is for how long an accepted connection must be idle before the
	// first keep-alive probe: 0 means 15 seconds, below 0 no probes. It is
	// ignored if KeepAliveConfig.Enable is true.
	KeepAlive time.Duration

	// KeepAliveConfig has all parameters of the keep-alive probes.
	KeepAliveConfig net.KeepAliveConfig

	// Group is the loops that the listener and its connections run on; nil
	// means the default group.
	Group *loop.Group

	// ReusePort shares a port that is in use, if its user belongs to the same
	// user and shares it too (socket(7), SO_REUSEPORT). Otherwise a port that
	// is in use is an error, as it is with package net. Listeners with several
	// sockets, one per loop, always share theirs in this sense: a process of
	// the same user that insists can join in.
	ReusePort bool

	// LeastLoaded places each new connection on the loop with the fewest, so that all
	// loops of the group are in use. Without it, loops follow the load: a further loop
	// gets connections when those in use have many (see loop.Config), which costs
	// less CPU time. With the strategy loop.Thread the kernel, which hashes
	// addresses, chooses the loop, unless LeastLoaded is set; on a unix or an inherited
	// socket, where it has no choice, LeastLoaded makes no difference then.
	LeastLoaded bool

	// OnAcceptError, if not nil, is told when accepting fails for lack of
	// descriptors or memory and backs off: at first, and once a minute while
	// it lasts. Such errors don't come out of Accept, which waits and recovers by
	// itself. It is called on a goroutine of its own. nil means a warning to
	// slog's default logger.
	OnAcceptError func(err error)

	// NetBuffers has Accept return connections on which net.Buffers.WriteTo makes one
	// writev(2), as on package net's, instead of a send for each slice. They have the
	// methods of a [Conn], but are of another type: package net's connection, on a duplicate
	// of the socket, writes, and a Conn reads.
	//
	// It is for programs that write many small slices by net.Buffers on connections that
	// last, as nats-server does. A connection costs another descriptor, 0.3 KiB of heap,
	// and 35 µs more to accept. Requests cost what they cost on package net, since its
	// poller watches the connection, too. Package httpadapter does not park these
	// connections, and grpcadapter has them hold their read buffers: both know a Conn only.
	// Errors of writes call the network "tcp", also if the listener's is "tcp4" or "tcp6".
	//
	// AcceptConn returns a plain Conn, which has WriteBuffers. On unix sockets NetBuffers has
	// no effect.
	NetBuffers bool

	// MaxConns, if above 0, is how many connections of the listener may be open at a time. At the
	// limit Accept waits until a connection is closed, as with LimitListener of
	// golang.org/x/net/netutil; further connections stay in the kernel's backlog, whose length
	// net.core.somaxconn bounds, and beyond it clients try again for as long as their connect
	// takes. Close of the listener, and its deadline, end the wait. It costs no goroutine.
	//
	// A connection counts from Accept until its Close has returned, or the garbage collector has
	// closed it; also while package httpadapter has it parked. Copies of its descriptor
	// (Conn.File) don't count. The limit is for all of the listener's sockets together,
	// PerLoop's listeners included. Listen fails if MaxConns is below 0.
	MaxConns int

	// OnAccept, if not nil, is asked about each connection before anything is allocated for
	// it: false has its descriptor closed, and Accept goes on to the next. It is for deny lists
	// and, with OnClose, for limits per address (see the example). It gets the connection's
	// addresses, an IPv4 one as such also on an IPv6 socket; on unix sockets both are the zero
	// AddrPort.
	//
	// It is called on the goroutine that calls Accept, so by several at a time if several do,
	// and should not block: no other connection is accepted meanwhile on that goroutine. It may
	// close the listener. If it panics the connection is closed, and Accept's caller panics.
	OnAccept func(local, remote netip.AddrPort) bool

	// OnClose, if not nil, is called once for each connection that was accepted, OnAccept
	// having returned true, with the same addresses: after its descriptor was closed, by Close,
	// by the garbage collector, or since there was no memory for it. It is called on the
	// goroutine that closes the connection, which may be any of the program's, and must
	// neither block nor panic. It may use no lock that is held while a connection of the
	// listener is closed.
	OnClose func(local, remote netip.AddrPort)

	// ProxyProtocol, if not nil, has connections begin with a header of the PROXY protocol, which
	// replaces their addresses by those of the proxy's client. OnAccept is asked then when the
	// header has been read, with the client's addresses.
	ProxyProtocol *ProxyProtocol

	multipathTCP bool
}

// MultipathTCP reports whether the listener will accept Multipath TCP.
func (lc *ListenConfig) MultipathTCP() bool { return lc.multipathTCP }

// SetMultipathTCP makes Listen accept Multipath TCP (RFC 8684) if the kernel
// can. Unlike package net's, percore's listeners don't unless told to: on Linux
// it makes every system call on a connection more expensive, even when the peer speaks
// plain TCP.
func (lc *ListenConfig) SetMultipathTCP(use bool) { lc.multipathTCP = use }

// Listen is the function Listen with lc's options. ctx is for resolving the
// address and has no effect on the listener. The result is a *[Listener] on the
// networks "tcp", "tcp4", "tcp6" and "unix", unless the environment has PERCOREDEBUG=engine=net.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if err := lc.check(network); err != nil {
		return nil, err
	}
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		if err := lc.checkForeign(network); err != nil {
			return nil, err
		}
		return lc.netConfig(lc.Control).Listen(ctx, network, address)
	}
	if engineIsNet() {
		return lc.listenNet(ctx, network, address)
	}
	impl, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return newListenerOf(impl), nil
}

// newListenerOf returns the listener that users hold.
func newListenerOf(impl *listener) *Listener {
	h := &holder{impl}
	runtime.SetFinalizer(h, func(h *holder) {
		h.listener.unlink.Store(false) // the file may be another listener's by now
		h.listener.close()
	})
	return &Listener{listener: impl, acceptor: impl.all, holder: h}
}

// holder is held by a Listener and those that PerLoop makes of it, and by nothing
// else: when the garbage collector finds it, no goroutine can accept any more, and the
// sockets are closed, as package net's are; the file of a unix socket stays.
type holder struct{ listener *listener }

// netConfig returns the configuration by which package net makes a socket.
func (lc *ListenConfig) netConfig(control func(network, address string, c syscall.RawConn) error) *net.ListenConfig {
	config := &net.ListenConfig{Control: control, KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
	config.SetMultipathTCP(lc.multipathTCP)
	return config
}

// FileListener returns a listener on a copy of f, a listening socket that was inherited or made by
// a service manager. It fails with net.FileListener's errors. The caller still owns f. Closing the
// listener does not remove the file of a unix socket.
//
// Accepted connections get TCP_NODELAY and keep-alive as package net sets them,
// by way of the listening socket, which keeps these options afterwards.
//
// All sockets of a listener that has several ([Listener.Files]) go to FileListeners.
func FileListener(f *os.File) (net.Listener, error) {
	var lc ListenConfig
	return lc.FileListener(f)
}

// FileListener is the function FileListener with lc's options; Control, ReusePort
// and SetMultipathTCP come too late for it.
func (lc *ListenConfig) FileListener(f *os.File) (net.Listener, error) {
	return lc.FileListeners(f)
}

// FileListeners is [FileListener] for several files: one listener on copies of
// their sockets, as [Listener.Files] of a predecessor returns them. The caller still
// owns the files. All must listen on the same address, and no two may be the same
// socket; otherwise FileListeners fails with an error that names the file, and
// keeps nothing.
//
// The number of files need not be that of the loops.
//
// Where percore is package net (off Linux, build tag percore_net), a connection that
// was accepted from one of several sockets, and is waiting for a call of Accept, is
// closed by Close.
func FileListeners(files ...*os.File) (net.Listener, error) {
	var lc ListenConfig
	return lc.FileListeners(files...)
}

// FileListeners is the function FileListeners with lc's options; Control, ReusePort
// and SetMultipathTCP come too late for it.
func (lc *ListenConfig) FileListeners(files ...*os.File) (net.Listener, error) {
	if len(files) == 0 {
		return nil, fileOpError(nil, errors.New("no files"))
	}
	if i := slices.Index(files, nil); i >= 0 {
		return nil, fileError(files, i, fileOpError(nil, os.ErrInvalid))
	}
	if engineIsNet() {
		return lc.fileListenNet(files)
	}
	impl, err := lc.fileListener(files)
	if err != nil {
		return nil, err
	}
	if err := lc.check(impl.addr.Network()); err != nil {
		impl.close()
		return nil, err
	}
	return newListenerOf(impl), nil
}

// Listener accepts connections. It implements [net.Listener] and has the methods of
// *net.TCPListener and *net.UnixListener except AcceptTCP and AcceptUnix, in whose
// place is AcceptConn. All are safe for concurrent use.
type Listener struct {
	listener *listener
	acceptor *acceptor
	holder   *holder
	closed   atomic.Bool
}

var _ net.Listener = (*Listener)(nil)

func (l *Listener) ok() bool { return l != nil && l.listener != nil }

// Accept waits for the next connection, a *[Conn] unless NetBuffers is set ([ListenConfig]).
// Any number of goroutines may call it. It fails with [net.ErrClosed] once the listener is
// closed, and with [os.ErrDeadlineExceeded] once its deadline has passed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptConn()
	if err == nil && l.listener.netBuffers {
		return l.withNetBuffers(c)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// withNetBuffers makes a netConn of c.
func (l *Listener) withNetBuffers(c *Conn) (net.Conn, error) {
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

// Close stops listening. Accept, wherever it waits, fails with [net.ErrClosed].
// Connections that wait in the backlog are reset, unless a copy of the socket is
// open elsewhere (see Files); accepted ones are not affected. The file of a unix
// socket is removed.
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

// Addr returns the address that is listened on. It is shared by all callers, so
// do not change it.
func (l *Listener) Addr() net.Addr {
	if !l.ok() {
		return nil
	}
	return l.listener.addr
}

// SetDeadline sets the time from which Accept fails with
// [os.ErrDeadlineExceeded]. The zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	if !l.ok() {
		return syscall.EINVAL
	}
	return l.acceptor.ready.SetDeadline(t) // which package net does not wrap either
}

// SyscallConn returns a raw connection that supports only Control, which calls
// its function for each of the listener's sockets, one after the other, so that an
// option that it sets holds for all connections. The sockets are not closed
// meanwhile; Control fails with [net.ErrClosed] after Close.
//
// Code that duplicates the descriptor to hand the port over, as it may with package
// net's listeners, ends up with the last socket, or with several: see File.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	return l.listener.rawConn(l.holder)
}

// File returns a copy of the listener's first socket, which the caller must
// close. Its descriptor is non-blocking and stays so, also when it is asked for by
// Fd.
//
// To hand a port over take [Listener.Files], and give all to [FileListeners]. A
// successor that has only one of several sockets gets only the connections that the
// kernel assigns to it. Those that wait on the others are reset when this listener is
// closed, except where net.ipv4.tcp_migrate_req is 1 (Linux 5.14). Close logs a warning (slog's
// default logger) if that has happened: File, or Control of SyscallConn, was called
// and Files was not, and the address is listened on after Close. Tools that carry
// one descriptor per listener can have a listener with one socket:
// [FileListener] of package net's.
func (l *Listener) File() (*os.File, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	files, err := l.listener.files(1)
	if err != nil {
		return nil, l.opError("file", err)
	}
	return files[0], nil
}

// Files returns copies of all of the listener's sockets, one per loop. Their
// descriptors are non-blocking and stay so. The caller must close them.
func (l *Listener) Files() ([]*os.File, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	files, err := l.listener.files(-1)
	if err != nil {
		return nil, l.opError("file", err)
	}
	return files, nil
}

// SetUnlinkOnClose says whether Close removes the file of a unix socket. It does
// by default if Listen made the file. On other listeners it has no effect.
func (l *Listener) SetUnlinkOnClose(unlink bool) {
	if l.ok() {
		l.listener.unlink.Store(unlink)
	}
}

// PerLoop returns a listener for each of l's sockets, so that a goroutine for each can
// accept side by side. A TCP listener has a socket per loop; a unix or an inherited
// one has a single socket, and so has every listener off Linux: then there is one, which
// accepts what l accepts. Connections go to the loops that l's go to. With the strategy
// loop.Thread, a socket per loop, and without LeastLoaded, those of the i-th listener go to
// loop i.
//
// The listeners share their sockets with l: closing any of them, or l, closes all, since
// the kernel would reset the connections in the backlog of a socket that is closed
// alone. Each has a deadline of its own. PerLoop fails when the process is out of
// descriptors and when l is closed.
//
// http.Server and grpc.Server take several listeners, one Serve call each.
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

// Stats returns the listener's counters, which [ReadStats] has of all listeners. Off Linux all are 0
// except, with MaxConns, OnAccept, OnClose or ProxyProtocol, Open, LimitWaits, Refused and
// BadHeaders.
func (l *Listener) Stats() ListenerStats {
	if !l.ok() {
		return ListenerStats{}
	}
	return l.listener.stats()
}

func (l *Listener) opError(op string, err error) error {
	if _, ok := err.(*net.OpError); ok {
		return err // wrapped by package net already, off Linux
	}
	return &net.OpError{Op: op, Net: l.listener.network, Addr: l.listener.addr, Err: err}
}
