package reactortls

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/internal/layer"
)

// Limits bounds the handshakes of a server. Zero fields mean the defaults.
type Limits struct {
	// HandshakeTimeout is how long a client may take from the connection's beginning to the end of the
	// handshake: 10 seconds by default.
	HandshakeTimeout time.Duration

	// MaxHandshakes is how many handshakes may be under way at a time: 1024 by default, which take
	// some 30 KB each. Half of those that have begun within a second may be of one IPv4 address, or of
	// one IPv6 network of 64 bits. Clients beyond that wait, until their time is over. If others wait while
	// all are under way, handshakes are closed that have been for a second, and wait for their own client;
	// the more wait the sooner, down to a quarter of a second. All clients behind a load balancer without
	// the PROXY protocol have its address, and all of a unix socket count as one: raise it there.
	//
	// Off Linux, and with the build tag percore_net, MaxHandshakes does nothing: each connection has a
	// goroutine from its beginning, and percore.ListenConfig.MaxConns bounds them.
	MaxHandshakes int
}

// Server returns reactor.Config's TLS, for accepted connections that speak TLS. config must have a
// certificate, or a function that finds one, or reactor.New fails, and must not be changed any more.
// Connections that the program gives to Attach are what they are.
func Server(config *tls.Config, limits Limits) *reactor.TLS {
	return layer.TLS(layer.Handshakes{
		Config:  config,
		Timeout: cmp.Or(limits.HandshakeTimeout, 10*time.Second),
		Max:     cmp.Or(limits.MaxHandshakes, 1024),
		Err:     checkArguments(config, limits),
	}).(*reactor.TLS)
}

// checkArguments returns an error if the arguments of Server make no sense.
func checkArguments(config *tls.Config, limits Limits) error {
	switch {
	case config == nil:
		return errors.New("reactortls: Server was called with a nil *tls.Config: pass one with a certificate")
	case len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil:
		return errors.New("reactortls: Server was called with a tls.Config that has neither Certificates, GetCertificate nor GetConfigForClient")
	case limits.HandshakeTimeout < 0:
		return fmt.Errorf("reactortls: Limits.HandshakeTimeout is %v: want 0, for the default, or more", limits.HandshakeTimeout)
	case limits.MaxHandshakes < 0:
		return fmt.Errorf("reactortls: Limits.MaxHandshakes is %d: want 0, for the default, or more", limits.MaxHandshakes)
	}
	return nil
}

// Wrap returns a connection for tls.Client or tls.Server. When the handshake is done the *tls.Conn may
// be given to [reactor.Server.Attach]. conn must be one that Attach takes itself, and buffered are the
// bytes that were read from it and belong to the handshake: both may be what Hijack has returned.
//
//	tc := tls.Client(reactortls.Wrap(conn, nil), config)
//	if err := tc.HandshakeContext(ctx); err != nil {
//		...
//	}
//	c, err := server.Attach(tc, nil, nil)
func Wrap(conn net.Conn, buffered []byte) net.Conn {
	if conn == nil {
		panic("reactortls: Wrap was called with a nil net.Conn")
	}
	return layer.Wrap(conn, buffered)
}

// ConnectionState returns the state of a handler's connection, and false if it isn't TLS. It is safe for
// concurrent use.
func ConnectionState(c *reactor.Conn) (state tls.ConnectionState, ok bool) {
	if c == nil {
		panic("reactortls: ConnectionState was called with a nil *reactor.Conn")
	}
	tc := layer.Of(c)
	if tc == nil {
		return tls.ConnectionState{}, false
	}
	return tc.ConnectionState(), true
}
