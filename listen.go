package percore

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/netfallback"
	"github.com/percore/percore/loop"
)

// Listen announces on a local address and returns a listener whose connections are *[Conn]. It takes
// net.Listen's arguments and fails with net.Listen's errors: networks "tcp", "tcp4", "tcp6" and
// "unix"; host names, service names, an empty host for all addresses, port 0 for any free port. On
// any other network the listener is package net's, if there is one ("unixpacket", whose connections
// are not streams).
//
// The listener runs on the default group of loops, up to one per GOMAXPROCS, which starts with the
// first listener and ends with the last listener and connection.
func Listen(network, address string) (net.Listener, error) {
	var lc ListenConfig
	return lc.Listen(context.Background(), network, address)
}

// ListenConfig has options for listening. The first three fields and the methods Listen, MultipathTCP
// and SetMultipathTCP are the same as in net.ListenConfig; the others are percore's. The fields from
// Group to NetBuffers are about the engine and have no effect off Linux. There is no ListenPacket.
type ListenConfig struct {
	// Control, if not nil, is called for each socket before it is bound. There is one socket per loop,
	// so it is called several times, for later sockets with the port that the first one got.
	Control func(network, address string, c syscall.RawConn) error

	// KeepAlive is how long an accepted connection must be idle before the first keep-alive probe:
	// 0 means 15 seconds, below 0 no probes. It is ignored if KeepAliveConfig.Enable is true.
	KeepAlive time.Duration

	// KeepAliveConfig has all parameters of the keep-alive probes.
	KeepAliveConfig net.KeepAliveConfig

	// Group is the loops that the listener and its connections run on; nil means the default group.
	Group *loop.Group

	// ReusePort shares a port that is in use, if the other listener belongs to the same user and shares
	// the port too (socket(7), SO_REUSEPORT). Otherwise a port that is in use is an error, as with
	// package net. Listeners with several sockets, one per loop, always share their port in this sense:
	// another process of the same user can join if it sets ReusePort.
	ReusePort bool

	// LeastLoaded places each new connection on the loop with the fewest, so all loops of the group are
	// in use. Without it, loops follow the load: another loop gets connections only when the loops in
	// use have many, which costs less CPU time. With the strategy loop.Thread the kernel chooses the
	// loop, by a hash of the addresses, unless LeastLoaded is set; on a unix or an inherited socket the
	// kernel has no choice, and LeastLoaded makes no difference.
	LeastLoaded bool

	// OnAcceptError, if not nil, is called when Accept fails for lack of descriptors or memory and
	// backs off: the first time, and then once a minute while the shortage lasts. Accept doesn't return
	// such errors; it waits and recovers by itself. OnAcceptError is called on a goroutine of its own.
	// nil means a warning to slog's default logger.
	OnAcceptError func(err error)

	// NetBuffers makes Accept return connections on which net.Buffers.WriteTo calls writev(2)
	// once, as on package net's, instead of sending each slice by itself. They have the methods
	// of a [Conn], but are of another type: package net's connection, on a duplicate of the
	// socket, writes, and a Conn reads.
	//
	// It is for programs that write many small slices with net.Buffers on long-lived connections, as
	// nats-server does. Each connection costs a second descriptor, 0.3 KiB of heap, and 35 µs more to
	// accept. Requests cost as much as with package net, since its poller watches the connection too.
	// Package httpadapter doesn't park these connections, and grpcadapter holds its read buffers while
	// it waits on them, because both know only a Conn. Write errors call the network "tcp", even if the
	// listener's network is "tcp4" or "tcp6".
	//
	// AcceptConn returns a plain Conn, which has WriteBuffers. On unix sockets NetBuffers has no
	// effect.
	NetBuffers bool

	// MaxConns, if above 0, limits how many connections of the listener may be open at a time. At the
	// limit Accept waits until a connection is closed, as with LimitListener of
	// golang.org/x/net/netutil. Further connections stay in the kernel's backlog, whose length
	// net.core.somaxconn limits; when it is full, clients retry until their connect times out. Closing
	// the listener, and its deadline, end the wait. The limit costs no goroutine.
	//
	// Accept does not wait for connections that are idle between two requests, or before their first byte,
	// in package httpadapter (HTTP/1.1 and HTTP/2) or in package h2, as with gRPC's fast path. When a
	// client comes, Accept closes the connection that has been idle longest, if that is at least a tenth
	// of a second, as its idle timeout would. If that takes time, because the connection's client is told
	// first, up to 8 may be closed. A peer with more than an eighth of MaxConns in idle connections loses
	// its own first; a peer is an IPv4 address, or 64 bits of an IPv6 address. A connection is never
	// closed if it has a request under way, is hijacked, or is read by net/http itself. If all answers of
	// a connection are detached (Detach of package httpadapter or grpcadapter), it goes first if its peer
	// has more than an eighth of MaxConns in such connections, and never otherwise. With ProxyProtocol,
	// connections without a header go first: see HeaderTimeout there.
	//
	// A connection counts from Accept until its Close has returned, or the garbage collector has closed
	// it, even while package httpadapter has it parked. Copies of its descriptor (Conn.File) don't
	// count. The limit is for all sockets of the listener together, including PerLoop's listeners, in
	// this process: a predecessor's connections (package handover) don't count. Listen fails if
	// MaxConns is below 0.
	MaxConns int

	// OnAccept, if not nil, is called with the addresses of each connection before anything is
	// allocated for it. If it returns false, the connection is closed, and Accept goes on to the next.
	// It is for deny lists and, with OnClose, for limits per address (see the example). An IPv4 address
	// is passed as such even on an IPv6 socket; on unix sockets both addresses are the zero AddrPort.
	//
	// It is called on the goroutine that calls Accept, so concurrently if several do. It should not
	// block: that goroutine accepts no other connection until it returns. It may close the listener. If
	// it panics, the connection is closed, and Accept panics.
	OnAccept func(local, remote netip.AddrPort) bool

	// OnClose, if not nil, is called once for each connection for which OnAccept returned true, with
	// the same addresses, after its descriptor was closed: by Close, by the garbage collector, or
	// because there was no memory for the connection. It is called on the goroutine that closes the
	// connection, which may be any goroutine of the program. It must not block, panic, or take a lock
	// that is held while a connection of the listener is closed.
	OnClose func(local, remote netip.AddrPort)

	// ProxyProtocol, if not nil, makes Accept expect a header of the PROXY protocol at the start
	// of each connection. It replaces the connection's addresses with those of the proxy's
	// client. OnAccept is then called after the header was read, with the client's addresses.
	ProxyProtocol *ProxyProtocol

	multipathTCP bool
}

// MultipathTCP reports whether the listener will accept Multipath TCP.
func (lc *ListenConfig) MultipathTCP() bool { return lc.multipathTCP }

// SetMultipathTCP makes Listen accept Multipath TCP (RFC 8684) if the kernel supports it. Unlike
// package net's, percore's listeners don't by default: on Linux it makes every system call on a
// connection more expensive, even when the peer speaks plain TCP.
func (lc *ListenConfig) SetMultipathTCP(use bool) { lc.multipathTCP = use }

// Listen is the function Listen with lc's options. ctx is only for resolving the address and has no
// effect on the listener. The result is a *[Listener] on the networks "tcp", "tcp4", "tcp6" and
// "unix", unless the environment has PERCOREDEBUG=engine=net.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if err := lc.check(network); err != nil {
		return nil, err
	}
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
	default:
		if !lc.accepting().IsZero() {
			err := errors.New("MaxConns, OnAccept, OnClose and ProxyProtocol are for the networks tcp and unix")
			return nil, &net.OpError{Op: "listen", Net: network, Err: err}
		}
		return lc.netConfig(lc.Control).Listen(ctx, network, address)
	}
	if engineIsNet() {
		nl, err := lc.netConfig(lc.netControl()).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return lc.fallback([]netfallback.Socket{nl.(netfallback.Socket)}), nil
	}
	impl, err := lc.listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return newListener(impl), nil
}

// check finds mistakes in the options, for a listener on the network.
func (lc *ListenConfig) check(network string) error {
	if err := lc.accepting().Check(network); err != nil {
		return &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return nil
}

// accepting returns the options for the connections that a listener accepts.
func (lc *ListenConfig) accepting() *accepting.Config {
	return &accepting.Config{
		MaxConns: lc.MaxConns,
		OnAccept: lc.OnAccept,
		OnClose:  lc.OnClose,
		Proxy:    (*accepting.ProxyConfig)(lc.ProxyProtocol),
	}
}

// netConfig returns the configuration with which package net makes a socket.
func (lc *ListenConfig) netConfig(control func(network, address string, c syscall.RawConn) error) *net.ListenConfig {
	config := &net.ListenConfig{Control: control, KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
	config.SetMultipathTCP(lc.multipathTCP)
	return config
}

// engineIsNet reports whether the environment switches the engine off: Listen and Dial then return
// package net's listeners and connections. Where there is no engine there is nothing to switch off.
func engineIsNet() bool { return !onNet && features.EngineIsNet() }

// fallback returns a listener without the engine: package net's own if that will do.
func (lc *ListenConfig) fallback(sockets []netfallback.Socket) net.Listener {
	config := lc.accepting()
	if len(sockets) == 1 && config.IsZero() {
		return sockets[0]
	}
	return netfallback.New(sockets, config)
}
