package reactortls

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/testnet"
)

// versions are the protocol versions that differ in how they are read and written.
var versions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

// at returns config limited to a version.
func at(config *tls.Config, version uint16) *tls.Config {
	config = config.Clone()
	config.MinVersion, config.MaxVersion = version, version
	return config
}

// Open knows the name, the protocol and the certificate of the client; a session is resumed.
func TestConnectionState(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	server.NextProtos, client.NextProtos = []string{"b", "c"}, []string{"a", "b"}
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, client.RootCAs
	client.Certificates = server.Certificates
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	states := make(chan tls.ConnectionState, 1)
	_, ln := serve(t, server, Limits{}, &handler{open: func(c *reactor.Conn) {
		state, ok := ConnectionState(c)
		if !ok {
			t.Error("ConnectionState: got false for a TLS connection")
		}
		states <- state
		c.Write([]byte("x")) // behind the session's ticket
	}})
	for i := range 2 {
		c := dial(t, ln, client)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s := testnet.Receive(t, "Open", states)
		if s.ServerName != "localhost" || s.NegotiatedProtocol != "b" || len(s.PeerCertificates) != 1 || s.DidResume != (i > 0) {
			t.Errorf("connection %d: got name %q, protocol %q, %d certificates, resumed %t", i,
				s.ServerName, s.NegotiatedProtocol, len(s.PeerCertificates), s.DidResume)
		}
		c.Close()
	}
	client.Certificates, client.ClientSessionCache = nil, nil
	if _, err := io.ReadAll(dial(t, ln, client)); !isAlert(err) {
		t.Errorf("without a certificate: got %v, want an alert", err)
	}
	plain := make(chan bool, 1)
	_, ln = serve(t, nil, Limits{}, &handler{open: func(c *reactor.Conn) {
		_, ok := ConnectionState(c)
		plain <- ok
	}})
	testnet.Dial(t, ln)
	if testnet.Receive(t, "Open", plain) {
		t.Error("ConnectionState: got true for a plain connection")
	}
}

// Each way to end a connection ends the stream of TLS, after everything that was written.
func TestEnds(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	long := bytes.Repeat([]byte("long"), 256<<10)
	for _, version := range versions {
		for name, end := range map[string]struct {
			f    func(s *reactor.Server, c *reactor.Conn)
			want error
		}{
			"Abort":      {func(_ *reactor.Server, c *reactor.Conn) { c.Abort() }, nil},
			"Close":      {func(_ *reactor.Server, c *reactor.Conn) { c.Write(long); c.Close() }, nil},
			"CloseWrite": {func(_ *reactor.Server, c *reactor.Conn) { c.Write(long); c.CloseWrite() }, io.EOF},
			"Shutdown": {func(s *reactor.Server, c *reactor.Conn) {
				c.Write(long)
				go s.Shutdown(context.Background())
			}, reactor.ErrServerClosed},
		} {
			t.Run(fmt.Sprintf("%s, %s", tls.VersionName(version), name), func(t *testing.T) {
				closed, ended := closes()
				var s *reactor.Server
				ready := make(chan bool)
				s, ln := serve(t, at(server, version), Limits{}, &handler{close: closed, data: func(c *reactor.Conn, p []byte) int {
					<-ready
					end.f(s, c)
					return len(p)
				}})
				close(ready)
				c := dial(t, ln, client)
				wire := &tap{Conn: c.NetConn()}
				c = tls.Client(wire, client)
				c.Write([]byte("x"))
				want := len(long)
				if name == "Abort" {
					want = 0
				}
				if got := readAll(t, c); len(got) != want {
					t.Errorf("got %d bytes, want %d", len(got), want)
				}
				if wire.ended {
					t.Error("the stream has ended without close_notify")
				}
				c.Close()
				if err := testnet.Receive(t, "Close", ended); err != end.want {
					t.Errorf("Close: got %v, want %v", err, end.want)
				}
			})
		}
	}
}

// tap notes whether the end of the TCP stream was read.
type tap struct {
	net.Conn
	ended bool
}

func (w *tap) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.ended = w.ended || err == io.EOF
	return n, err
}

// A client that sends nothing, stops in its handshake, or in a record, is closed in time; so is each
// when the server is closed.
func TestStalls(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	hello := clientHello(t, client)
	for _, silent := range []string{"", string(hello[:3]), string(hello[:len(hello)-1]), string(hello)} {
		_, ln := serve(t, server, Limits{HandshakeTimeout: 20 * time.Millisecond}, &handler{})
		c := testnet.Dial(t, ln)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		io.WriteString(c, silent)
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client that stops after %d bytes is not closed", len(silent))
		}

		s, ln := serve(t, server, Limits{HandshakeTimeout: time.Hour}, &handler{})
		c = testnet.Dial(t, ln)
		io.WriteString(c, silent)
		testnet.Eventually(t, "the server has it", func() bool { return s.Stats().Conns == 1 })
		s.Close()
	}

	closed, ended := closes()
	_, ln := serve(t, server, Limits{}, &handler{close: closed}, reactor.Config{ReadTimeout: 20 * time.Millisecond})
	c := dial(t, ln, client)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	c.NetConn().Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
	if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that stops in a record: got %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

// Functions of the tls.Config that block keep no other client from its handshake.
func TestBlockingFunctions(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	gate := make(chan bool)
	var blocked atomic.Int64
	server = withCertificates(server, func(hello *tls.ClientHelloInfo) {
		if hello.ServerName == "slow.example" {
			blocked.Add(1)
			<-gate
		}
	})
	_, ln := serve(t, server, Limits{HandshakeTimeout: time.Hour}, &handler{data: echo})
	slow := client.Clone()
	slow.ServerName, slow.InsecureSkipVerify = "slow.example", true
	n := 3*runtime.GOMAXPROCS(0) + 1
	var handshakes sync.WaitGroup
	for range n {
		c := dial(t, ln, slow)
		handshakes.Go(func() { _ = exchange(c) })
	}
	testnet.Eventually(t, "all of them block", func() bool { return blocked.Load() == int64(n) })
	if err := exchange(dial(t, ln, client)); err != nil {
		t.Error(err)
	}
	close(gate)
	testnet.Within(t, "the other handshakes", handshakes.Wait)
}

// HandshakeTimeout, and the server's end, end the context that functions of the tls.Config get.
func TestFunctionsHaveContext(t *testing.T) {
	testnet.NoLeaks(t)
	// On a busy machine a short timeout may pass before the server has the client's first message.
	for timeout := 20 * time.Millisecond; !endFunction(t, timeout, nil); timeout *= 4 {
		if timeout > testnet.HangTimeout {
			t.Fatalf("the function was not called within %v", timeout)
		}
	}
	endFunction(t, time.Hour, (*reactor.Server).Close)
}

// endFunction begins a handshake with a function that blocks until its context ends, which end brings
// about, or else the timeout. It reports whether the function was called before the handshake ended.
func endFunction(t *testing.T, timeout time.Duration, end func(*reactor.Server) error) bool {
	server, client := testnet.TLS(t)
	blocked := make(chan bool, 1)
	server = withCertificates(server, func(hello *tls.ClientHelloInfo) {
		blocked <- true
		<-hello.Context().Done()
	})
	s, ln := serve(t, server, Limits{HandshakeTimeout: timeout}, &handler{})
	c := dial(t, ln, client)
	ended := make(chan error, 1)
	go func() { ended <- exchange(c) }() // the client's part of the handshake may be done
	if end != nil {
		testnet.Eventually(t, "the function's call", func() bool { return len(blocked) > 0 })
		end(s)
	}
	if err := testnet.Receive(t, "the client's end", ended); err == nil {
		t.Error("the server took the connection")
	}
	return len(blocked) > 0
}

// withCertificates returns config with a function that finds its certificate, and calls f first.
func withCertificates(config *tls.Config, f func(hello *tls.ClientHelloInfo)) *tls.Config {
	config = config.Clone()
	certificate := config.Certificates[0]
	config.Certificates = nil
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		f(hello)
		return &certificate, nil
	}
	return config
}

// clientHello returns the first flight of a client.
func clientHello(t *testing.T, config *tls.Config) []byte {
	client, server := net.Pipe()
	defer server.Close()
	defer client.Close()
	failed := make(chan error, 1)
	go func() { failed <- tls.Client(client, config).Handshake() }()
	p := make([]byte, 16<<10)
	n, err := server.Read(p)
	server.Close()
	<-failed
	if err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// Only so many handshakes are under way at a time, and the others have their turn.
func TestMaxHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	var mu sync.Mutex
	running, most := 0, 0
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return nil, nil
	}
	_, ln := serve(t, server, Limits{MaxHandshakes: 1}, &handler{data: echo})
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			// On a busy machine one that waits for its client for long is closed for the next.
			for t.Context().Err() == nil && exchange(dial(t, ln, client)) != nil {
			}
		})
	}
	testnet.Within(t, "the clients", clients.Wait)
	if most != 1 && !onGoroutines {
		t.Errorf("got %d handshakes at a time, want 1", most)
	}
}

// A client that doesn't speak TLS, and a function of the tls.Config that panics, end only their own
// connection.
func TestBadHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName == "panic" {
			panic("a test's panic")
		}
		return nil, nil
	}
	s, ln := serve(t, server, Limits{}, &handler{data: echo}, quiet)
	c := testnet.Dial(t, ln)
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	io.ReadAll(c)
	other := client.Clone()
	other.ServerName = "panic"
	if err := dial(t, ln, other).Handshake(); err == nil {
		t.Error("a handshake that panics: got no error")
	}
	good := dial(t, ln, client)
	good.Write([]byte("x"))
	if _, err := io.ReadFull(good, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	good.Close()
	testnet.Eventually(t, "all have ended", func() bool { return s.Stats().Conns == 0 })
}

// A connection changes between the loop and blocking code, with a backlog, and stays TLS; none of its
// bytes gets lost.
func TestHijackAttach(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	const answer = 100_000
	for _, version := range versions {
		var s *reactor.Server
		ready := make(chan bool)
		turns := 0
		s, ln := serve(t, at(server, version), Limits{}, &handler{data: func(c *reactor.Conn, p []byte) int {
			<-ready
			c.Write(bytes.Repeat(p[:1], answer))
			if turns++; turns%2 == 0 {
				return 1
			}
			conn, buffered, err := c.Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return 1
			}
			if _, err := c.Write([]byte("lost")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after Hijack: got %v, want %v", err, net.ErrClosed)
			}
			go func() {
				tc := conn.(*tls.Conn)
				rest := buffered[1:]
				for len(rest) == 0 { // one message is answered by blocking code
					p := make([]byte, 1)
					n, err := tc.Read(p)
					if rest = p[:n]; err != nil {
						tc.Close()
						return
					}
				}
				if _, err := tc.Write(bytes.Repeat(rest[:1], answer)); err != nil {
					t.Errorf("Write: %v", err)
				}
				if _, err := s.Attach(tc, rest[1:], nil); err != nil {
					tc.Close()
				}
			}()
			return 1
		}})
		close(ready)
		c := dial(t, ln, client)
		const messages = 60
		go func() {
			for i := range messages {
				c.Write([]byte{byte(i)})
			}
		}()
		got := make([]byte, answer)
		for i := range messages {
			if _, err := io.ReadFull(c, got); err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			if !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, answer)) {
				t.Fatalf("answer %d is wrong", i)
			}
		}
		c.Close()
	}
}

// A program that closes the *tls.Conn that Attach has taken sends the end of the stream. The connection
// ends as the peer answers that.
func TestCloseTaken(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	ended := make(chan error, 1)
	s, _ := serve(t, nil, Limits{}, &handler{data: echo, close: func(_ *reactor.Conn, err error) { ended <- err }})
	pc, raw := testnet.Pair(t, percore.Listen, testnet.TCP4)
	tc, peer := tls.Server(Wrap(pc, nil), server), tls.Client(raw, client)
	go func() {
		_, _ = io.ReadAll(peer)
		peer.Close()
	}()
	err := tc.Handshake()
	if err == nil {
		_, err = s.Attach(tc, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	tc.Close()
	testnet.Receive(t, "Close", ended)
}

// A connection that the program has dialed, or one that has begun without TLS, gets its layer by Wrap.
func TestWrap(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	_, ln := serve(t, server, Limits{}, &handler{data: echo})
	got := make(chan string, 1)
	s, _ := serve(t, nil, Limits{}, passing(got))
	pc, err := percore.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tc := tls.Client(Wrap(pc, nil), client)
	if _, err := s.Attach(tc, nil, nil); err == nil || !strings.Contains(err.Error(), "handshake is done") {
		t.Errorf("Attach before the handshake: got %v", err)
	}
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	c, err := s.Attach(tc, nil, "client")
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("to the echo"))
	if text := testnet.Receive(t, "the answer", got); text != "to the echo" {
		t.Errorf("got %q", text)
	}
	c.Abort()

	if _, err := s.Attach(tls.Client(testnet.Dial(t, ln), client), nil, nil); err == nil {
		t.Error("Attach of a *tls.Conn without Wrap: got no error")
	}

	upgrade := make(chan *reactor.Conn, 1)
	ready := make(chan bool)
	s, starts := serve(t, nil, Limits{}, &handler{open: func(c *reactor.Conn) {
		if c.User() == nil {
			c.Write([]byte("."))
		}
	}, data: func(c *reactor.Conn, p []byte) int {
		if _, ok := ConnectionState(c); ok {
			return echo(c, p)
		}
		conn, buffered, err := c.Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return len(p)
		}
		go func() {
			tc := tls.Server(Wrap(conn, buffered), server)
			err := tc.Handshake()
			<-ready // s is set
			if err == nil {
				var c *reactor.Conn
				c, err = s.Attach(tc, nil, "over TLS")
				upgrade <- c
			}
			if err != nil {
				t.Errorf("STARTTLS: %v", err)
				conn.Close()
			}
		}()
		return len(p)
	}})
	close(ready)
	plain := testnet.Dial(t, starts)
	if _, err := io.ReadFull(plain, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	tc = tls.Client(plain, client)
	tc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	tc.Write([]byte("x"))
	if _, err := io.ReadFull(tc, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	testnet.Receive(t, "the upgraded connection", upgrade)
}

// passing is a handler that passes on what comes.
func passing(got chan string) reactor.Handler {
	return &handler{data: func(c *reactor.Conn, p []byte) int {
		got <- string(p)
		return len(p)
	}}
}

// If crypto/tls doesn't read as the loops need it, no connection over TLS gets on one.
func TestChangedTLS(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	surprise := errors.New("it sings")
	s, _ := serve(t, nil, Limits{}, &handler{})
	defer func(f func() error) { layer.Check = f }(layer.Check)
	layer.Check = func() error { return surprise }
	if _, err := reactor.New(&handler{}, reactor.Config{TLS: Server(server, Limits{})}); !errors.Is(err, surprise) {
		t.Errorf("New: got %v, want %v", err, surprise)
	}
	peer := testnet.Listen(t, percore.Listen, testnet.TCP4)
	tlsPeer := make(chan error, 1)
	go func() {
		c, err := peer.Accept()
		if err == nil {
			defer c.Close()
			err = tls.Server(c, server).Handshake()
		}
		tlsPeer <- err
	}()
	conn, err := new(percore.Dialer).Dial("tcp", peer.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tc := tls.Client(Wrap(conn, nil), client)
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(tc, nil, nil); !errors.Is(err, surprise) {
		t.Errorf("Attach: got %v, want %v", err, surprise)
	}
	testnet.Receive(t, "the peer", tlsPeer)
}

// exchange has a client send a byte and receive it again.
func exchange(c *tls.Conn) error {
	defer c.Close()
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return fmt.Errorf("a client beside them: %w", err)
	}
	return nil
}
