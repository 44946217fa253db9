package conformance

import (
	"crypto/tls"
	"errors"
	"flag"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/percore/percore/internal/testnet"
)

// TestNettestConn runs golang.org/x/net/nettest over every kind of connection, once with the accepted
// end in the leading role and once with the dialed one.
func TestNettestConn(t *testing.T) {
	for _, e := range append(slices.Clone(engines), dialedByPercore()) {
		onEngine(t, e, onEachKindOf(func(t *testing.T, e engine, kind testnet.Kind) { nettestConn(t, e, kind, plain) }))
	}
}

// TestNettestTLSConn runs nettest over TLS on TCP. See skipTLSWriteTimeouts for the three subtests
// that no TLS connection of Go's passes.
func TestNettestTLSConn(t *testing.T) {
	for _, e := range append(slices.Clone(engines), dialedByPercore()) {
		onEngine(t, e, func(t *testing.T, e engine) { nettestConn(t, e, testnet.TCP4, overTLS(t)) })
	}
}

func nettestConn(t *testing.T, e engine, kind testnet.Kind, wrap wrapping) {
	for _, leader := range []string{"server", "client"} {
		t.Run(leader, func(t *testing.T) { nettest.TestConn(t, makePipe(t, e, kind, leader, wrap)) })
	}
}

// skipTLSWriteTimeouts skips the subtests of nettest that write again after a write has timed out.
// crypto/tls documents that its state is corrupt then and that all later writes fail. The only
// other way to skip a part of nettest is the test flags.
func skipTLSWriteTimeouts() {
	const pattern = "^TestNettestTLSConn$/.*/.*/^(PastTimeout|FutureTimeout|ConcurrentMethods)$"
	flag.Parse()
	skip := flag.Lookup("test.skip")
	if users := skip.Value.String(); users != "" {
		skip.Value.Set(users + "|" + pattern)
		return
	}
	skip.Value.Set(pattern)
}

// A wrapping turns the two ends of a connection into the pair under test.
type wrapping func(server, client net.Conn) (net.Conn, net.Conn, error)

func plain(server, client net.Conn) (net.Conn, net.Conn, error) { return server, client, nil }

// overTLS returns a wrapping that puts TLS on top, with the handshake done.
func overTLS(t *testing.T) wrapping {
	serverConfig, clientConfig := testnet.TLS(t)
	return func(server, client net.Conn) (net.Conn, net.Conn, error) {
		s, c := tls.Server(server, serverConfig), tls.Client(client, clientConfig)
		handshake := make(chan error, 1)
		go func() { handshake <- s.Handshake() }()
		return s, c, errors.Join(c.Handshake(), <-handshake)
	}
}

// makePipe returns a constructor of connected pairs for nettest. Each pair has its own listener,
// and the end named by leader is c1.
func makePipe(t *testing.T, e engine, kind testnet.Kind, leader string, wrap wrapping) nettest.MakePipe {
	return func() (c1, c2 net.Conn, stop func(), err error) {
		ln := testnet.Listen(t, e.listen, kind)
		accepted, dialed := e.connect(t, ln)
		server, client, err := wrap(accepted, dialed)
		if err != nil {
			return nil, nil, nil, err
		}
		stop = func() {
			server.Close()
			client.Close()
			ln.Close()
		}
		if leader == "client" {
			return client, server, stop, nil
		}
		return server, client, stop, nil
	}
}
