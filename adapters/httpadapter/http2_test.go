package httpadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// eachHTTP2 runs a test over TLS and in clear text, with net/http's server and ours.
func eachHTTP2(t *testing.T, test func(t *testing.T, start func(configure func(*http.Server)) *side)) {
	for _, w := range sides {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s TLS=%t", w, secure), func(t *testing.T) {
				test(t, func(configure func(*http.Server)) *side { return startHTTP2(t, w, secure, configure) })
			})
		}
	}
}

// startHTTP2 starts a side that speaks HTTP/1 and HTTP/2, with the handler that configure sets.
func startHTTP2(t *testing.T, w way, secure bool, configure func(*http.Server), opts ...Option) *side {
	t.Helper()
	if secure && tlsByListener {
		w = byListener
	}
	return newSide(t, w, func(srv *http.Server) {
		srv.Protocols = clearHTTP2(true)
		srv.Protocols.SetHTTP2(true)
		if secure {
			srv.TLSConfig, _ = testnet.TLS(t)
		}
		configure(srv)
	}, nil, opts...)
}

// http2Client returns a net/http client that speaks only HTTP/2.
func (s *side) http2Client() *http.Client { return testnet.HTTP2Client(s.t, s.client) }

func (s *side) url(path string) string { return testnet.URL(s.ln, s.client != nil, path) }

// get makes a request of HTTP/2, and returns the body of the answer.
func (s *side) get(c *http.Client, path string) string {
	s.t.Helper()
	resp, err := c.Get(s.url(path))
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 {
		s.t.Fatalf("GET %s: got %s, %v", path, resp.Proto, err)
	}
	return string(b)
}

// TestHTTP2Server: the handler and the hooks see the same in each way.
func TestHTTP2Server(t *testing.T) {
	type key struct{}
	eachHTTP2(t, func(t *testing.T, start func(configure func(*http.Server)) *side) {
		f := start(func(srv *http.Server) {
			srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, c) }
			srv.BaseContext = func(net.Listener) context.Context { return context.WithValue(context.Background(), key{}, "base") }
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				c, _ := ctx.Value(key{}).(net.Conn)
				_, isTLS := c.(*tls.Conn)
				fmt.Fprintf(w, "%s %t %t %t %t %v", r.Proto, r.RemoteAddr == c.RemoteAddr().String(), isTLS == (r.TLS != nil),
					ctx.Value(http.ServerContextKey) == srv, r.TLS == nil || r.TLS.NegotiatedProtocol == "h2", ctx.Value(http.LocalAddrContextKey))
			})
		})
		client := f.http2Client()
		client.Transport.(*http.Transport).MaxConnsPerHost = 1 // the goroutine that dials may be late to share the first
		for range 3 {
			if got, want := f.get(client, "/"), "HTTP/2.0 true true true true "+f.ln.Addr().String(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			// The client has the answer a moment before the server notes that the stream has ended.
			testnet.Eventually(t, "the stream's end", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.isIdleLocked()
			})
		}
		client.CloseIdleConnections()
		const want = "new active idle active idle active idle active idle closed" // one idle before the first
		if got := f.statesUntilClosed(); got != want {
			t.Errorf("got the states %s, want %s", got, want)
		}
		if f.log.String() != "" {
			t.Errorf("got the log %q", f.log.String())
		}
	})
}

// TestHTTP2Shutdown: Shutdown waits for streams and lets clients finish, on the Server and on the
// http.Server itself. Close doesn't.
func TestHTTP2Shutdown(t *testing.T) {
	for _, own := range []bool{false, true} {
		eachHTTP2(t, func(t *testing.T, start func(configure func(*http.Server)) *side) {
			begun, goOn := make(chan bool), make(chan bool)
			var inner *http.Server
			f := start(func(srv *http.Server) {
				inner = srv
				srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					begun <- true
					<-goOn
					_, _ = io.WriteString(w, "done")
				})
			})
			client := f.http2Client()
			got := make(chan string, 1)
			go func() { got <- f.get(client, "/") }()
			testnet.Receive(t, "the handler's begin", begun)
			ended := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
				defer cancel()
				if own {
					ended <- inner.Shutdown(ctx)
				} else {
					ended <- f.server.Shutdown(ctx)
				}
			}()
			select {
			case err := <-ended:
				t.Errorf("Shutdown returned %v with a request under way", err)
			case goOn <- true:
			}
			if s := testnet.Receive(t, "the answer", got); s != "done" {
				t.Errorf("got %q", s)
			}
			if err := testnet.Receive(t, "Shutdown's return", ended); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
	eachHTTP2(t, func(t *testing.T, start func(configure func(*http.Server)) *side) {
		ended := make(chan error, 1)
		begun := make(chan bool)
		f := start(func(srv *http.Server) {
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begun <- true
				<-r.Context().Done()
				_, err := r.Body.Read(make([]byte, 1))
				ended <- err
			})
		})
		go func() {
			<-begun
			f.server.Close()
		}()
		r, w := io.Pipe()
		defer w.Close()
		if resp, err := f.http2Client().Post(f.url("/"), "text/plain", r); err == nil {
			resp.Body.Close()
			t.Error("a request was answered behind Close")
		}
		if err := testnet.Receive(t, "the handler's end", ended); err == nil || err.Error() != "client disconnected" {
			t.Errorf("got %v of the body", err)
		}
	})
}

// servedBy is a handler that answers with the package whose server has called it.
func servedBy(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, reflect.Indirect(reflect.ValueOf(w)).Type().PkgPath())
}

// TestHTTP2Declined: the environment decides whether HTTP/2 is served past net/http. (TestNetHTTP2Logged
// has what the http.Server decides.)
func TestHTTP2Declined(t *testing.T) {
	for variable, wantOurs := range map[string]bool{"": canPark, "engine=net": false, "http=net": false} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s TLS=%t", variable, secure), func(t *testing.T) {
				t.Setenv("PERCOREDEBUG", variable)
				f := startHTTP2(t, withAdapter, secure, func(srv *http.Server) { srv.Handler = http.HandlerFunc(servedBy) })
				by := f.get(f.http2Client(), "/")
				if ours := strings.HasPrefix(by, "github.com/percore/percore/"); ours != wantOurs {
					t.Errorf("served by %s, want percore: %t", by, wantOurs)
				}
			})
		}
	}
}

// TestIsModern: other cipher suites than these are not for HTTP/2.
func TestIsModern(t *testing.T) {
	for suite, want := range map[uint16]bool{
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: true,
		tls.TLS_RSA_WITH_AES_128_GCM_SHA256:       false,
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:    false,
	} {
		if got := isModern(suite); got != want {
			t.Errorf("%s: got %t, want %t", tls.CipherSuiteName(suite), got, want)
		}
	}
}

// TestHTTP2SwitchedOff: where net/http has no HTTP/2, a client that speaks it anyway gets the same from
// both.
func TestHTTP2SwitchedOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		setenv string
		clear  bool // srv.Protocols has it in clear
	}{
		{"GODEBUG", "http2server=0", true},
		{"Protocols", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.setenv != "" {
				t.Setenv("GODEBUG", c.setenv)
			}
			pair := newPair(t, withAdapter, func(srv *http.Server) {
				srv.Protocols = clearHTTP2(true)
				srv.Protocols.SetHTTP2(true)
				srv.Protocols.SetUnencryptedHTTP2(c.clear)
			})
			pieces := []piece{{text: preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"}}
			if got := pair.play(t, &connectionScript{pieces: pieces, end: readsOn}); !strings.Contains(got, "HTTP/1.1 ") {
				t.Errorf("got %s, want an answer of HTTP/1", got)
			}
		})
	}
}

// TestHTTP2Stats: the figures of all calls of Serve are in the sum, also when they have ended.
func TestHTTP2Stats(t *testing.T) {
	if !canPark {
		t.Skip("nothing is served past net/http here: run it on Linux, without the build tag percore_net")
	}
	srv := &http.Server{Handler: http.HandlerFunc(servedBy), Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	s := Wrap(srv)
	for n := 1; n <= 3; n++ {
		l := testnet.Listen(t, percore.Listen, testnet.TCP4)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		client := testnet.HTTP2Client(t, nil)
		resp, err := client.Get(testnet.URL(l, false, "/"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		testnet.Eventually(t, "a served stream", func() bool { return s.HTTP2Stats().Served == uint64(n) })
		l.Close()
		testnet.Receive(t, "Serve's return", served)
		client.CloseIdleConnections()
		testnet.Eventually(t, "the connection's end", func() bool { return s.HTTP2Stats().Conns == 0 })
		if got := s.HTTP2Stats(); got.Opened != uint64(n) || got.Requests != uint64(n) {
			t.Errorf("got %+v after %d listeners with a request each", got, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.mu.streams); n > 2 {
		t.Errorf("got %d servers of streams kept, want those of calls that have ended dropped", n)
	}
}

// TestHTTP2InBubble: in a bubble of testing/synctest the loops can't reach the workers, so net/http
// serves.
func TestHTTP2InBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startHTTP2(t, withAdapter, false, func(srv *http.Server) { srv.Handler = http.HandlerFunc(servedBy) })
		client := f.http2Client()
		// The second request waits for the goroutine that dials to share the connection. Without it
		// CloseIdleConnections might come first and find none.
		client.Transport.(*http.Transport).MaxConnsPerHost = 1
		for range 2 {
			if got := f.get(client, "/"); strings.Contains(got, "percore") {
				t.Errorf("served by %s, want net/http", got)
			}
		}
		client.CloseIdleConnections()
	})
}

// TestNetHTTP2Logged: the log says once why percore doesn't serve HTTP/2, unless that is not offered.
func TestNetHTTP2Logged(t *testing.T) {
	needParking(t)
	own := func(srv *http.Server) {
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": nil}
	}
	for _, c := range []struct {
		name   string
		secure bool
		change func(*http.Server)
		want   string // in a line of the log; "": there is none
	}{
		{"served", true, nil, ""},
		{"TLSNextProto", true, own, "TLSNextProto"},
		{"CountError", true, func(srv *http.Server) { srv.HTTP2 = &http.HTTP2Config{CountError: func(string) {}} }, "CountError"},
		{"in clear", false, own, ""},
		{"none", true, func(srv *http.Server) { srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			srv := &http.Server{ErrorLog: log.New(&out, "", 0)}
			if c.change != nil {
				c.change(srv)
			}
			s := Wrap(srv)
			s.installed.Do(s.install)
			if c.secure {
				srv.TLSConfig, _ = testnet.TLS(t)
				if _, err := s.tlsConfig("", ""); err != nil {
					t.Fatal(err)
				}
			}
			streams := (&serveCall{server: s, overTLS: c.secure}).newStreams()
			if served := streams != nil; served != (c.name == "served") {
				t.Errorf("HTTP/2 is served: %t", served)
			} else if served {
				defer streams.Close()
			}
			got := out.String()
			if c.want == "" && got != "" || c.want != "" && (strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want)) {
				t.Errorf("got the log %q, want a line with %q", got, c.want)
			}
		})
	}
}

// blockingBody is a request's body that yields nothing until it is closed.
type blockingBody chan struct{}

func (b blockingBody) Read([]byte) (int, error) { <-b; return 0, io.EOF }
func (b blockingBody) Close() error             { close(b); return nil }

// TestHTTP2EarlyAnswerEnds: net/http's client gives up the body of a request that has been answered,
// also if the server is closed next.
func TestHTTP2EarlyAnswerEnds(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, start func(configure func(*http.Server)) *side) {
		f := start(func(srv *http.Server) { srv.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) })
		body := make(blockingBody)
		resp, err := f.http2Client().Post(f.url("/"), "", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		f.server.Close()
		testnet.Receive(t, "the body's end", body)
	})
}
