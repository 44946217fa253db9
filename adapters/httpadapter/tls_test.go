package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/testnet"
)

// startTLS is like start, over TLS. It also returns a configuration for clients.
func startTLS(t *testing.T, handler http.HandlerFunc, configure func(f *fixture), opts ...Option) (*fixture, *tls.Config) {
	t.Helper()
	server, client := testnet.TLS(t)
	f := start(t, handler, func(f *fixture) {
		f.srv.TLSConfig, f.overListener = server, tlsByListener
		if configure != nil {
			configure(f)
		}
	}, opts...)
	return f, client
}

// tlsByListener makes startTLS serve with a listener of tls.NewListener.
var tlsByListener bool

// TestTLSListener: what holds for ServeTLS does for a listener of tls.NewListener.
func TestTLSListener(t *testing.T) {
	tlsByListener = true
	defer func() { tlsByListener = false }()
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"OddRequests", TestOddRequests},
		{"State", TestHTTP1TLSState},
		{"Waits", TestTLSWaits},
		{"Storm", TestTLSStorm},
		{"Flood", TestTLSFlood},
		{"BeginningOfAnAlert", TestTLSBeginningOfAnAlert},
		{"PartBeforeAnAlert", TestTLSPartBeforeAnAlert},
		{"NextProto", TestTLSNextProto},
		{"GetCertificate", TestTLSGetCertificate},
		{"StalledHandshake", TestTLSStalledHandshake},
		{"HandshakeInHook", TestTLSHandshakeInHook},
		{"DeadlineOfHook", TestTLSDeadlineOfHook},
		{"IdleTimeout", TestTLSIdleTimeout},
		{"Foreign", TestForeignTLS},
		{"DeadlineOfHandshakeIsTakenBack", TestTLSDeadlineOfHandshakeIsTakenBack},
		{"ClosedInHandshake", TestTLSClosedInHandshake},
		{"RefusedByTheClient", TestTLSRefusedByTheClient},
		{"ShutdownInCallback", TestTLSShutdownInCallback},
		{"HTTP2Server", TestHTTP2Server},
		{"HTTP2Shutdown", TestHTTP2Shutdown},
		{"HTTP2Stats", TestHTTP2Stats},
	} {
		t.Run(test.name, test.run)
	}
}

// Whether HTTP/2 is spoken above a listener of tls.NewListener depends on the http.Server, as with
// net/http, and connections whose type is another stay net/http's.
func TestTLSListenerProtocols(t *testing.T) {
	testnet.NoLeaks(t)
	serverConfig, clientConfig := testnet.TLS(t)
	with := func(protos ...string) *tls.Config {
		config := serverConfig.Clone()
		config.NextProtos = protos
		return config
	}
	var clear, second http.Protocols
	clear.SetHTTP1(true)
	clear.SetUnencryptedHTTP2(true)
	second.SetHTTP2(true)
	noProtos := map[string]func(*http.Server, *tls.Conn, http.Handler){}
	for _, server := range []struct {
		name string
		srv  func() *http.Server
	}{
		{"plain", func() *http.Server { return &http.Server{} }},
		{"TLSConfig", func() *http.Server { return &http.Server{TLSConfig: with()} }},
		{"TLSConfig with h2", func() *http.Server { return &http.Server{TLSConfig: with("h2")} }},
		{"no TLSNextProto", func() *http.Server { return &http.Server{TLSNextProto: noProtos} }},
		{"HTTP/2 in clear", func() *http.Server { return &http.Server{Protocols: &clear} }},
		{"HTTP/2 alone", func() *http.Server { return &http.Server{Protocols: &second} }},
	} {
		for _, protos := range [][]string{nil, {"http/1.1"}, {"h2"}, {"h2", "http/1.1"}} {
			var seen [2]string
			for i, serve := range []func(*http.Server, net.Listener) error{(*http.Server).Serve, Serve} {
				srv := server.srv()
				srv.ErrorLog = log.New(io.Discard, "", 0)
				srv.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					fmt.Fprint(rw, r.Proto, r.TLS != nil, r.Context().Value(http.LocalAddrContextKey) != nil)
				})
				srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
					if _, ok := nc.(*tls.Conn); !ok {
						t.Errorf("ConnContext: got a %T, want a *tls.Conn", nc)
					}
					return ctx
				}
				ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
				served := make(chan error, 1)
				go func() { served <- serve(srv, tls.NewListener(ln, with(protos...))) }()
				transport := &http.Transport{TLSClientConfig: clientConfig.Clone(), ForceAttemptHTTP2: true}
				resp, err := (&http.Client{Transport: transport}).Get("https://" + ln.Addr().String())
				if seen[i] = fmt.Sprint("failed: ", err != nil); err == nil {
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					seen[i] = fmt.Sprintf("%s %q %v", resp.Proto, body, err)
				}
				transport.CloseIdleConnections()
				srv.Close()
				if err := testnet.Receive(t, "Serve", served); err != http.ErrServerClosed {
					t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
				}
			}
			if seen[0] != seen[1] {
				t.Errorf("%s, %q: got %s, want %s", server.name, protos, seen[1], seen[0])
			}
		}
	}
}

// dialTLS connects and does the handshake.
func (f *fixture) dialTLS(config *tls.Config) *client {
	f.Helper()
	c := tls.Client(f.dialTCP().Conn, config)
	if err := c.Handshake(); err != nil {
		f.Fatalf("handshake: %v", err)
	}
	return &client{c, f, bufio.NewReader(c)}
}

// TestTLSWaits: a client that sends nothing holds no goroutine, before the handshake or after it.
func TestTLSWaits(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil)
	silent, early := f.dial(), f.dialTLS(config)
	f.awaitWaiting(2)
	testnet.Eventually(t, "no connection being served", func() bool { return goroutines(f) == 0 })
	if got := early.get("/x"); got != "/x" {
		t.Errorf("got %q, want %q", got, "/x")
	}
	f.shutdown()
	early.awaitEOF() // with a farewell: otherwise crypto/tls would return io.ErrUnexpectedEOF
	silent.awaitEOF()
}

// fewHandshakes makes places for a few handshakes.
func fewHandshakes(most, young int) Option {
	return func(c *config) {
		c.newHandshakes = func() *serving.Handshakes { return serving.NewHandshakes(most, young) }
	}
}

// TestTLSStorm: when there are many more clients of one address than places for handshakes, all get in.
func TestTLSStorm(t *testing.T) {
	needParking(t)
	const clients = 200
	// The time of a handshake begins before its turn, and a busy machine needs seconds for all of them.
	patient := func(c *config) { c.beginTime = testnet.HangTimeout }
	f, config := startTLS(t, echoPath, nil, fewHandshakes(clients, 4), patient)
	dialer := tls.Dialer{Config: config}
	ended := make(chan error, clients)
	for range clients {
		go func() {
			c, err := dialer.Dial("tcp", f.ln.Addr().String())
			if err == nil {
				c.Close()
			}
			ended <- err
		}()
	}
	for range clients {
		if err := testnet.Receive(t, "the end of a handshake", ended); err != nil {
			t.Error(err)
		}
	}
}

// TestTLSFlood: clients of one address that stop in their handshakes keep no other client from its own.
// Those that are cut off for others are reported as net/http reports a timeout.
func TestTLSFlood(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil, fewHandshakes(5, 4))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1)}}
	for range 50 {
		c, err := dialer.Dial("tcp", f.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte{22, 3, 1, 1, 0}) // the beginning of a ClientHello
	}
	if got := f.dialTLS(config).get("/x"); got != "/x" {
		t.Errorf("got %q, want %q", got, "/x")
	}
	testnet.Eventually(t, "the end of a client that stops", func() bool {
		return strings.Contains(f.log.String(), "http: TLS handshake error from 127.0.1.1:") && strings.Contains(f.log.String(), "i/o timeout\n")
	})
}

// holding sends the first writes, and keeps the bytes of later ones.
type holding struct {
	net.Conn
	passes int // writes that are still sent; negative: all
	held   []byte
}

func (c *holding) Write(p []byte) (int, error) {
	if c.passes != 0 {
		c.passes--
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	return len(p), nil
}

// dialHolding is like dialTLS without the handshake, and puts a holding in between.
func (f *fixture) dialHolding(config *tls.Config, passes int) (*client, *holding) {
	raw := &holding{Conn: f.dial().Conn, passes: passes}
	c := tls.Client(raw, config)
	return &client{c, f, bufio.NewReader(c)}, raw
}

// sendBeforeAlert sends data followed by the first three bytes of an alert. It returns the rest of
// the alert.
func (c *client) sendBeforeAlert(raw *holding, data string) []byte {
	raw.passes = 0
	c.send(data)
	whole := len(raw.held)
	c.Conn.(*tls.Conn).CloseWrite()
	_ = raw.SetWriteDeadline(time.Time{}) // CloseWrite has disabled writes
	raw.Conn.Write(raw.held[:whole+3])
	return raw.held[whole+3:]
}

// TestTLSBeginningOfAnAlert: when crypto/tls has data followed by the beginning of an alert, it
// waits for the rest before it returns the data. When it is time to park, the data is returned
// instead, and nothing is lost.
func TestTLSBeginningOfAnAlert(t *testing.T) {
	needParking(t)
	for _, parked := range []bool{false, true} {
		t.Run(fmt.Sprintf("parked %t", parked), func(t *testing.T) {
			f, config := startTLS(t, echoPath, nil)
			config.MaxVersion = tls.VersionTLS12 // later alerts look like data from outside
			c, raw := f.dialHolding(config, -1)
			c.get("/")
			f.awaitStates("new active idle") // before, net/http may read a byte in the background
			if parked {
				f.awaitParked(1)
			}
			rest := c.sendBeforeAlert(raw, request("/x"))
			if got := c.answer(); got != "/x" {
				t.Errorf("got %q, want %q", got, "/x")
			}
			f.awaitParked(1)
			raw.Conn.Write(rest)
			c.awaitEOF()
			f.awaitStates("new active idle active idle closed")
		})
	}
}

// TestTLSPartBeforeAnAlert: the same with so little data that the server waits for the rest of a
// request's first four bytes. This wait continues.
func TestTLSPartBeforeAnAlert(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil)
	config.MaxVersion = tls.VersionTLS12 // later alerts look like data from outside
	c, raw := f.dialHolding(config, -1)
	c.get("/")
	f.awaitParked(1)
	rest := c.sendBeforeAlert(raw, "GE")
	sc := f.conn()
	testnet.Eventually(t, "the data being read, or the connection closed", func() bool {
		return isIn(sc.Sight(), "closed") || f.hasPart()
	})
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Conn.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("before the end of the alert: got %d bytes, %v, want the connection to stay", n, err)
	}
	raw.Conn.Write(rest)
	f.awaitStates("new active idle closed")
}

// TestTLSNextProto: another protocol gets the *tls.Conn.
func TestTLSNextProto(t *testing.T) {
	f, config := startTLS(t, echoPath, func(f *fixture) {
		f.srv.TLSConfig.NextProtos = []string{"echo"}
		f.srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"echo": func(srv *http.Server, c *tls.Conn, h http.Handler) {
				if srv != f.srv || h == nil {
					t.Errorf("got %p, %v, want the http.Server and a handler", srv, h)
				}
				io.Copy(c, c)
			},
		}
	})
	config.NextProtos = []string{"echo"}
	c := f.dialTLS(config)
	c.send("hello")
	if p := make([]byte, 5); true {
		if _, err := io.ReadFull(c, p); string(p) != "hello" || err != nil {
			t.Errorf("got %q, %v, want %q", p, err, "hello")
		}
	}
	c.Close()
	testnet.Eventually(t, "the connection being closed", func() bool { return f.server.Stats().Conns == 0 })
}

// TestTLSGetCertificate: certificates are chosen as usual, also for an ALPN challenge protocol as
// in ACME. A panic there ends only its connection.
func TestTLSGetCertificate(t *testing.T) {
	var challenged atomic.Bool
	f, config := startTLS(t, echoPath, func(f *fixture) {
		cert := f.srv.TLSConfig.Certificates[0]
		f.srv.TLSConfig = &tls.Config{
			NextProtos: []string{"h2", "http/1.1", "acme-tls/1"},
			GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if hello.Context().Value(http.LocalAddrContextKey) == nil || hello.Conn == nil {
					t.Error("the handshake lacks the context or the connection")
				}
				if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == "acme-tls/1" {
					challenged.Store(true)
				}
				switch hello.ServerName {
				case "panic":
					panic("on purpose")
				case "unknown":
					return nil, errors.New("no such host")
				}
				return &cert, nil
			},
		}
	})
	if got := f.dialTLS(config).get("/x"); got != "/x" {
		t.Errorf("got %q, want %q", got, "/x")
	}
	challenge := config.Clone()
	challenge.NextProtos = []string{"acme-tls/1"}
	c := f.dialTLS(challenge)
	if got := c.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "acme-tls/1" || !challenged.Load() {
		t.Errorf("got protocol %q, challenged %t, want acme-tls/1", got, challenged.Load())
	}
	c.awaitEOF() // that protocol has no server
	want := ""
	for _, end := range [][2]string{{"panic", "http: panic serving 127.0.0.1:"}, {"unknown", "http: TLS handshake error from 127.0.0.1:"}} {
		if want != "" && strings.Contains(f.log.String(), end[1]) {
			t.Errorf("got the log %q of a panic", f.log.String())
		}
		want = end[1]
		wrong := config.Clone()
		wrong.ServerName = end[0]
		if err := tls.Client(f.dial().Conn, wrong).Handshake(); err == nil {
			t.Errorf("%s: the handshake succeeds", end[0])
		}
		testnet.Eventually(t, "the log saying "+want, func() bool { return strings.Contains(f.log.String(), want) })
	}
}

// TestTLSStalledHandshake: a client that sends nothing, or stops in the middle, is logged and
// disconnected when net/http would do so.
func TestTLSStalledHandshake(t *testing.T) {
	for _, beginning := range []string{"", "\x16\x03\x01\x02\x00"} {
		limit := 30 * time.Millisecond
		if beginning != "" {
			limit = time.Second // for the client to say it
		}
		f, _ := startTLS(t, echoPath, func(f *fixture) { f.srv.WriteTimeout = limit })
		c := f.dial()
		c.send(beginning)
		c.awaitEOF()
		testnet.Eventually(t, "the log", func() bool {
			log := f.log.String()
			return strings.HasPrefix(log, "http: TLS handshake error from 127.0.0.1:") && strings.HasSuffix(log, "i/o timeout\n")
		})
		f.awaitStates("new closed")
	}
}

// TestTLSHandshakeInHook: a hook may do the handshake itself. The server must not wait for bytes
// that crypto/tls has read beyond it, or for an error that it has found.
func TestTLSHandshakeInHook(t *testing.T) {
	results := make(chan error, 1)
	shake := func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			results <- c.(*tls.Conn).Handshake()
			return ctx
		}
	}
	t.Run("done", func(t *testing.T) {
		f, config := startTLS(t, echoPath, shake)
		c, raw := f.dialHolding(config, 1) // the first flight goes out, later bytes don't
		if err := c.Conn.(*tls.Conn).Handshake(); err != nil {
			t.Fatal(err)
		}
		c.send(request("/x"))
		raw.Conn.Write(raw.held) // the end of the handshake and the request together
		if err := testnet.Receive(t, "the handshake", results); err != nil {
			t.Errorf("the server's handshake: %v", err)
		}
		if got := c.answer(); got != "/x" {
			t.Errorf("got %q, want %q", got, "/x")
		}
	})
	t.Run("failed", func(t *testing.T) {
		f, _ := startTLS(t, echoPath, shake)
		c := f.dial()
		c.send(strings.Repeat("x", 10))
		if err := testnet.Receive(t, "the handshake", results); err == nil {
			t.Error("the server's handshake succeeds")
		}
		c.awaitEOF()
		f.awaitStates("new closed")
		if got, want := f.log.String(), "http: TLS handshake error from 127.0.0.1:"; !strings.HasPrefix(got, want) {
			t.Errorf("got log %q, want %q", got, want)
		}
	})
}

// TestTLSDeadlineOfHook: the handshake removes the deadlines that were set for it, and no others.
func TestTLSDeadlineOfHook(t *testing.T) {
	needParking(t)
	conns := make(chan *h1.Conn, 1)
	at := time.Now().Add(time.Hour)
	f, config := startTLS(t, echoPath, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			c.SetReadDeadline(at)
			conns <- h1.ConnOf(c)
			return ctx
		}
	})
	f.dialTLS(config)
	c := testnet.Receive(t, "the connection", conns)
	testnet.Eventually(t, "hands being shaken", func() bool { return c.Sight().Shaken })
	if got := c.Sight().ReadDeadline; got.Sub(at).Abs() > time.Second {
		t.Errorf("got the deadline %v after the handshake, want %v as the hook has set it", got, at)
	}
}

func TestTLSIdleTimeout(t *testing.T) {
	f, config := startTLS(t, echoPath, func(f *fixture) { f.srv.IdleTimeout = 30 * time.Millisecond })
	c := f.dialTLS(config)
	c.get("/")
	c.awaitEOF()
	f.awaitStates("new active idle closed")
}

func TestServeTLSErrors(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	defer ln.Close()
	for _, s := range []interface {
		ServeTLS(net.Listener, string, string) error
	}{&http.Server{}, Wrap(&http.Server{})} {
		if err := s.ServeTLS(ln, "no-such-file", "neither"); err == nil || !strings.Contains(err.Error(), "no-such-file") {
			t.Errorf("%T: got %v, want an error about no-such-file", s, err)
		}
	}
}

// TestForeignTLS: TLS over connections that can't be parked.
func TestForeignTLS(t *testing.T) {
	f, config := startTLS(t, echoPath, func(f *fixture) { f.ln = wrapping{f.ln} })
	c := f.dialTLS(config)
	for range 2 {
		if got := c.get("/x"); got != "/x" {
			t.Errorf("got %q, want %q", got, "/x")
		}
	}
	if got := f.server.Stats(); got.Foreign != 1 {
		t.Errorf("got %+v, want one foreign connection", got)
	}
}

// No deadline of a handshake is left when it is done, whether the http.Server's WriteTimeout or the
// Server's own time limits it: not for the wait for the first request.
func TestTLSDeadlineOfHandshakeIsTakenBack(t *testing.T) {
	needParking(t)
	for _, timeout := range []time.Duration{0, time.Hour} {
		f, config := startTLS(t, echoPath, func(f *fixture) { f.srv.WriteTimeout = timeout })
		f.dialTLS(config)
		f.awaitWaiting(1) // the handshake is over
		if at := f.conn().Sight().ReadDeadline; !at.IsZero() {
			t.Errorf("the connection has a read deadline, %v from now, want none", time.Until(at))
		}
	}
}

// TestTLSClosedInHandshake: a handshake that fails as its connection is closed, by either side, is
// logged once, before the end is reported to the user.
func TestTLSClosedInHandshake(t *testing.T) {
	const closed = "use of closed network connection\n"
	for _, tt := range []struct {
		name  string
		send  string // by the client
		close func(f *fixture, conn net.Conn, client *client)
		want  string
	}{
		{"Close before a byte", "", func(f *fixture, _ net.Conn, _ *client) { f.server.Close() }, closed},
		{"Shutdown before a byte", "", func(f *fixture, _ net.Conn, _ *client) { f.shutdown() }, closed},
		{"user before a byte", "", func(_ *fixture, conn net.Conn, _ *client) { conn.Close() }, closed},
		{"peer before a byte", "", func(_ *fixture, _ net.Conn, client *client) { client.Close() }, "EOF\n"},
		{"Close", "\x16\x03\x01\x02\x00", func(f *fixture, _ net.Conn, _ *client) { f.server.Close() }, closed},
		{"Shutdown", "\x16\x03\x01\x02\x00", func(f *fixture, _ net.Conn, _ *client) { f.shutdown() }, closed},
		{"user", "\x16\x03\x01\x02\x00", func(_ *fixture, conn net.Conn, _ *client) { conn.Close() }, closed},
		{"peer", "\x16\x03\x01\x02\x00", func(_ *fixture, _ net.Conn, client *client) { client.Close() }, "EOF\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needParking(t) // otherwise Shutdown waits, as net/http does
			conns := make(chan net.Conn, 1)
			f, _ := startTLS(t, echoPath, func(f *fixture) {
				f.srv.ConnState = func(c net.Conn, state http.ConnState) {
					switch state {
					case http.StateNew:
						conns <- c
					case http.StateClosed:
						if log := f.log.String(); log == "" {
							t.Error("StateClosed is told before the log")
						}
					}
					f.connState(c, state)
				}
			})
			client := f.dial()
			conn := testnet.Receive(t, "the connection", conns)
			c := h1.ConnOf(conn)
			want := "fresh"
			if tt.send != "" {
				client.send(tt.send)
				want = "handshake"
			}
			testnet.Eventually(t, "the handshake being waited for", func() bool { return isIn(c.Sight(), want) })
			tt.close(f, conn, client)
			f.awaitStates("new closed")
			got := f.log.String()
			if !strings.HasPrefix(got, "http: TLS handshake error from 127.0.0.1:") || !strings.HasSuffix(got, tt.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("got log %q, want a TLS handshake error, %q", got, tt.want)
			}
		})
	}
}

// TestTLSRefusedByTheClient closes connections as their handshakes fail. Every failure is logged.
func TestTLSRefusedByTheClient(t *testing.T) {
	for range 20 {
		conns := make(chan net.Conn, 1)
		f, config := startTLS(t, echoPath, func(f *fixture) {
			f.srv.ConnState = func(c net.Conn, state http.ConnState) {
				f.connState(c, state)
				if state == http.StateNew {
					conns <- c
				}
			}
		})
		config.ServerName = "other.test"
		if err := tls.Client(f.dial().Conn, config).Handshake(); err == nil {
			t.Fatal("the client's handshake succeeds with another server's name")
		}
		testnet.Receive(t, "the connection", conns).Close()
		f.awaitStates("new closed")
		if got := f.log.String(); strings.Count(got, "http: TLS handshake error from 127.0.0.1:") != 1 {
			t.Errorf("got log %q, want one TLS handshake error", got)
		}
	}
}

// TestTLSShutdownInCallback: Shutdown does not wait for a handshake that is in a user's callback.
// Its end is logged when it comes.
func TestTLSShutdownInCallback(t *testing.T) {
	needParking(t)
	entered, release := make(chan bool, 1), make(chan struct{})
	f, config := startTLS(t, echoPath, func(f *fixture) {
		f.srv.TLSConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			entered <- true
			<-release
			return nil, nil
		}
	})
	c := f.dial()
	shaken := make(chan error, 1)
	go func() { shaken <- tls.Client(c.Conn, config).Handshake() }()
	testnet.Receive(t, "the callback", entered)
	f.shutdown()
	if got := f.log.String(); got != "" {
		t.Errorf("got log %q during the handshake", got)
	}
	close(release)
	f.awaitStates("new closed")
	if got := f.log.String(); strings.Count(got, "http: TLS handshake error from 127.0.0.1:") != 1 {
		t.Errorf("got log %q, want one TLS handshake error", got)
	}
	if err := testnet.Receive(t, "the client's handshake", shaken); err == nil {
		t.Error("the client's handshake succeeds")
	}
}
