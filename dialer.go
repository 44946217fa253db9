package percore

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/percore/percore/loop"
)

// Dial connects to an address and returns the connection, a *[Conn] on the networks "tcp", "tcp4",
// "tcp6" and "unix". It takes net.Dial's arguments, and fails with net.Dial's errors. Other networks
// don't carry a stream; on those the connection is package net's.
//
// The connection runs on the default group of loops, which starts with the first connection or listener
// and ends with the last. Everything that [Conn] documents holds for dialed connections as well.
func Dial(network, address string) (net.Conn, error) {
	var d Dialer
	return d.Dial(network, address)
}

// DialTimeout is Dial with a timeout, which includes resolving the address.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Timeout: timeout}
	return d.Dial(network, address)
}

// Dialer has options for connecting. All fields except Group and NetBuffers, and all methods except
// DialTarget, mean the same as in net.Dialer (whose deprecated DualStack and Cancel are missing).
// The zero value dials without options. Its methods are safe for concurrent use.
//
// Package net resolves the address and connects, including everything that belongs to it: several
// addresses one after the other, IPv6 and IPv4 at the same time (RFC 6555, "Happy Eyeballs"), hooks
// for tracing. percore then takes over the socket, for which it briefly needs a second descriptor.
//
// Set http.Transport.DialContext, and the dial hooks of most database drivers, to the method
// DialContext. DialTarget is for gRPC.
type Dialer struct {
	// Timeout is how long connecting may take, including the time to resolve the address. 0 means as long
	// as the operating system allows. If the name has several addresses, each gets a share of the time.
	Timeout time.Duration

	// Deadline is the time after which connecting fails; the zero time means never. If Timeout is
	// also set, the earlier of the two counts.
	Deadline time.Time

	// LocalAddr is the address to connect from, of the network's type (*net.TCPAddr,
	// *net.UnixAddr); nil lets the kernel choose.
	LocalAddr net.Addr

	// FallbackDelay is how long only IPv6 is tried before IPv4 is tried at the same time, if a name has
	// addresses of both kinds. 0 means 300 ms; below 0 they are tried one after the other.
	FallbackDelay time.Duration

	// KeepAlive is how long a connection must be idle before the first keep-alive probe: 0 means
	// 15 seconds, below 0 no probes. It is ignored if KeepAliveConfig.Enable is true.
	KeepAlive time.Duration

	// KeepAliveConfig has all parameters of the keep-alive probes.
	KeepAliveConfig net.KeepAliveConfig

	// Resolver resolves names; nil means net.DefaultResolver.
	Resolver *net.Resolver

	// Control, if not nil, is called for each socket before it is bound or connected, with "tcp4",
	// "tcp6" or "unix" and the address. It is ignored if ControlContext is set.
	Control func(network, address string, c syscall.RawConn) error

	// ControlContext is Control with the context that was passed to the method.
	ControlContext func(ctx context.Context, network, address string, c syscall.RawConn) error

	// Group is the loops that the connections run on, each on the loop with the fewest; nil means the
	// default group. A program that often dials while it has neither a listener nor a connection would
	// start the default group each time; a Group of its own avoids that. With a Group that has ended,
	// dialing fails before it connects.
	Group *loop.Group

	// NetBuffers makes Dial and DialContext return connections on which net.Buffers.WriteTo calls
	// writev(2) once; see [ListenConfig]. Package net's connection then stays open, and writes.
	// NetBuffers has no effect on unix sockets and on DialTCP.
	NetBuffers bool

	multipathTCP choice
}

// choice is yes, no, or left to a default.
type choice uint8

const (
	byDefault choice = iota
	yes
	no
)

// SetMultipathTCP sets whether to use Multipath TCP (RFC 8684) if the kernel and the peer support it.
// The default is package net's: no, unless GODEBUG in the environment has multipathtcp=1 or 3.
func (d *Dialer) SetMultipathTCP(use bool) {
	d.multipathTCP = no
	if use {
		d.multipathTCP = yes
	}
}

// MultipathTCP reports whether Multipath TCP will be tried.
func (d *Dialer) MultipathTCP() bool { return d.netDialer().MultipathTCP() }

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to an address, and blocks until it is connected; see the function Dial. It fails
// if ctx, which must not be nil, ends before that. Afterwards ctx has no effect on the connection.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		return d.netDialer().DialContext(ctx, network, address)
	}
	if engineIsNet() {
		return d.netDialer().DialContext(ctx, network, address)
	}
	c, tc, err := d.dial(network, d.NetBuffers, func(nd *net.Dialer) (net.Conn, error) {
		return nd.DialContext(ctx, network, address)
	})
	switch {
	case err != nil:
		return nil, err
	case tc != nil:
		return &netConn{tc, c}, nil
	}
	return c, nil
}

// dial makes a Conn of the connection that connect makes. With keepTCP it also returns that
// connection if it is TCP.
func (d *Dialer) dial(network string, keepTCP bool, connect func(*net.Dialer) (net.Conn, error)) (c *Conn, tc *net.TCPConn, err error) {
	if err := d.hold(network); err != nil {
		return nil, nil, err
	}
	defer d.release()
	nc, err := connect(d.netDialer())
	if err != nil {
		return nil, nil, err
	}
	if keepTCP {
		tc, _ = nc.(*net.TCPConn)
	}
	c, err = d.takeOver(network, nc, tc != nil)
	return c, tc, err
}

// DialTarget is DialContext for an address as gRPC passes it to the function set with
// grpc.WithContextDialer. "unix:PATH", "unix://PATH" and "unix:@NAME" are unix sockets. The last is an
// abstract one, as is a name that starts with a NUL. Everything else is "HOST:PORT" on network "tcp".
func (d *Dialer) DialTarget(ctx context.Context, target string) (net.Conn, error) {
	network, address := parseTarget(target)
	return d.DialContext(ctx, network, address)
}

func parseTarget(target string) (network, address string) {
	if strings.HasPrefix(target, "\x00") {
		return "unix", target
	}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		return "unix", strings.TrimPrefix(path, "//")
	}
	return "tcp", target
}

// DialTCP is DialContext for addresses that need no resolving; the network is "tcp", "tcp4" or
// "tcp6". The zero laddr lets the kernel choose.
func (d *Dialer) DialTCP(ctx context.Context, network string, laddr, raddr netip.AddrPort) (*Conn, error) {
	c, _, err := d.dial(network, false, func(nd *net.Dialer) (net.Conn, error) {
		return nd.DialTCP(ctx, network, laddr, raddr)
	})
	return c, err
}

// DialUnix is DialContext for unix addresses. The network must be "unix": the other two kinds of
// unix sockets are not streams. A nil laddr leaves the socket without a name.
func (d *Dialer) DialUnix(ctx context.Context, network string, laddr, raddr *net.UnixAddr) (*Conn, error) {
	if network == "unixgram" || network == "unixpacket" {
		err := errors.New("percore dials stream sockets only; use net.Dialer for " + network)
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, _, err := d.dial(network, false, func(nd *net.Dialer) (net.Conn, error) {
		return nd.DialUnix(ctx, network, laddr, raddr)
	})
	return c, err
}

// DialUDP calls net.Dialer's DialUDP. The connection is package net's.
func (d *Dialer) DialUDP(ctx context.Context, network string, laddr, raddr netip.AddrPort) (*net.UDPConn, error) {
	return d.netDialer().DialUDP(ctx, network, laddr, raddr)
}

// DialIP calls net.Dialer's DialIP. The connection is package net's.
func (d *Dialer) DialIP(ctx context.Context, network string, laddr, raddr netip.Addr) (*net.IPConn, error) {
	return d.netDialer().DialIP(ctx, network, laddr, raddr)
}

// netDialer returns package net's Dialer with the same options.
func (d *Dialer) netDialer() *net.Dialer {
	nd := &net.Dialer{
		Timeout:         d.Timeout,
		Deadline:        d.Deadline,
		LocalAddr:       d.LocalAddr,
		FallbackDelay:   d.FallbackDelay,
		KeepAlive:       d.KeepAlive,
		KeepAliveConfig: d.KeepAliveConfig,
		Resolver:        d.Resolver,
		Control:         d.Control,
		ControlContext:  d.ControlContext,
	}
	if d.multipathTCP != byDefault {
		nd.SetMultipathTCP(d.multipathTCP == yes)
	}
	return nd
}
