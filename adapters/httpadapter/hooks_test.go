package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// allStates are the states that may be reported to ConnState, and one that may not.
var allStates = []http.ConnState{
	http.StateNew, http.StateActive, http.StateIdle, http.StateHijacked, http.StateClosed, 99,
}

// heardBy returns the states of c that were reported to ConnState.
func (f *fixture) heardBy(c net.Conn) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.states[c])
}

// tellAll reports all states of c to the http.Server's ConnState, twice, and checks that the user's
// hook gets each of them.
func (f *fixture) tellAll(c net.Conn, states ...http.ConnState) {
	f.Helper()
	for _, state := range states {
		for range 2 {
			before := len(f.heardBy(c))
			f.srv.ConnState(c, state)
			if heard := f.heardBy(c); len(heard) == before || !slices.Contains(heard[before:], state.String()) {
				f.Errorf("the hook hears %v after %d states, want %q", heard, before, state)
			}
		}
	}
}

// TestToldByTheUser: if a program calls srv.ConnState, its own hook is called. Nothing else
// happens, in any state of the connection.
func TestToldByTheUser(t *testing.T) {
	needParking(t)
	type serving struct {
		f       *fixture
		conn    net.Conn // the server's end
		client  *client
		release chan struct{} // lets the handler of /wait continue
	}
	for _, tt := range []struct {
		name  string
		reach func(s *serving) // brings the connection into a state
		after func(s *serving) // shows that everything works
	}{
		{"waiting", func(s *serving) { s.f.awaitWaiting(1) }, nil},
		{"parked", func(s *serving) {
			s.client.get("/")
			s.f.awaitParked(1)
		}, nil},
		{"active", func(s *serving) {
			s.client.send(request("/wait"))
			testnet.Eventually(s.f, "the request being active", func() bool {
				return slices.Contains(s.f.heardBy(s.conn), "active")
			})
		}, func(s *serving) {
			close(s.release)
			if got := s.client.answer(); got != "/wait" {
				s.f.Errorf("got %q, want %q", got, "/wait")
			}
		}},
		{"closed", func(s *serving) {
			s.client.get("/")
			s.f.awaitParked(1)
			s.conn.Close()
			s.client.awaitEOF()
			testnet.Eventually(s.f, "the end being told", func() bool {
				return slices.Contains(s.f.heardBy(s.conn), "closed")
			})
		}, func(*serving) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &serving{release: make(chan struct{})}
			conns := make(chan net.Conn, 1)
			handler := func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					<-s.release
				}
				io.WriteString(rw, r.URL.Path)
			}
			configure := func(f *fixture) {
				f.srv.ConnState = func(c net.Conn, state http.ConnState) {
					f.connState(c, state)
					select {
					case conns <- c:
					default:
					}
				}
			}
			s.f = start(t, handler, configure)
			s.client = s.f.dial()
			s.conn = testnet.Receive(t, "the connection", conns)
			tt.reach(s)
			told := allStates
			if tt.name == "active" {
				// net/http may report StateHijacked now: see TestToldHijacked.
				told = slices.DeleteFunc(slices.Clone(told), func(st http.ConnState) bool { return st == http.StateHijacked })
			}
			s.f.tellAll(s.conn, told...)
			if tt.after != nil {
				tt.after(s)
			}
			if tt.name != "closed" {
				if got := s.client.get("/"); got != "/" {
					t.Errorf("got %q, want %q", got, "/")
				}
				s.f.awaitParked(1)
				if got := s.f.server.Stats(); got.Conns != 1 || got.Hijacked != 0 {
					t.Errorf("got %+v, want one connection that isn't hijacked", got)
				}
			}
			s.f.shutdown()
			testnet.Eventually(t, "the connection being given up", func() bool { return s.f.server.Stats().Conns == 0 })
			s.f.tellAll(s.conn, allStates...) // after the end
		})
	}
}

// TestToldHijacked: net/http gives a connection away once, however often the user reports it,
// before and after.
func TestToldHijacked(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
		}
		hijacked <- c
	}, nil)
	c := f.dial()
	c.send(request("/"))
	conn := testnet.Receive(t, "the hijacked connection", hijacked)
	f.tellAll(conn, allStates...)
	if canPark {
		if got := f.server.Stats(); got.Conns != 0 || got.Hijacked != 1 {
			t.Errorf("got %+v, want one connection, hijacked once", got)
		}
	}
	io.WriteString(conn, "hello")
	conn.Close()
	if got, _ := io.ReadAll(c.br); string(got) != "hello" {
		t.Errorf("got %q, want %q", got, "hello")
	}
	f.tellAll(conn, allStates...) // as httptest.Server does with StateClosed
}

// TestToldOfStrangers: connections that don't belong to the server are left to the user.
func TestToldOfStrangers(t *testing.T) {
	f := start(t, echoPath, nil)
	f.dial().get("/") // until then ConnState is the user's own
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, c := range []net.Conn{a, tls.Server(b, &tls.Config{}), (*tls.Conn)(nil), nil} {
		f.tellAll(c, allStates...)
	}
}

// listenOnLoops listens with n loops, for n accept loops.
func (f *fixture) listenOnLoops(n int) {
	f.Helper()
	group, err := loop.NewGroup(loop.Config{Loops: n})
	if err != nil {
		f.Fatal(err)
	}
	defer group.Close() // the listener holds it
	f.ln.Close()
	f.ln, err = (&percore.ListenConfig{Group: group}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
}

// TestHooksOneAtATime: ConnContext and StateNew of one Serve never overlap, and a connection's
// calls follow each other. So a counter of connections in these hooks needs no lock.
func TestHooksOneAtATime(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen func(f *fixture)
	}{
		{"percore's connections", func(f *fixture) { f.listenOnLoops(4) }},
		{"wrapped", func(f *fixture) { f.ln = wrapping{f.ln} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const conns = 60
			type key struct{}
			var inside atomic.Int32
			next := 0 // the variables that the hooks change without a lock
			introduced := make(map[net.Conn]int)
			enter := func(what string) (leave func()) {
				if n := inside.Add(1); n > 1 {
					t.Errorf("%s runs beside %d other calls", what, n-1)
				}
				time.Sleep(50 * time.Microsecond)
				return func() { inside.Add(-1) }
			}
			f := start(t, func(rw http.ResponseWriter, r *http.Request) {
				fmt.Fprint(rw, r.Context().Value(key{}))
			}, func(f *fixture) {
				tt.listen(f)
				f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
					defer enter("ConnContext")()
					next++
					introduced[c] = next
					return context.WithValue(ctx, key{}, next)
				}
				f.srv.ConnState = func(c net.Conn, state http.ConnState) {
					if state != http.StateNew {
						return
					}
					defer enter("StateNew")()
					if introduced[c] != next {
						t.Errorf("StateNew of connection %d follows ConnContext of connection %d", introduced[c], next)
					}
				}
			})
			var wg sync.WaitGroup
			answers := make(chan string, conns)
			for range conns {
				c := f.dial()
				wg.Go(func() {
					if _, err := io.WriteString(c.Conn, request("/")); err != nil {
						t.Error(err)
						return
					}
					resp, err := http.ReadResponse(c.br, nil)
					if err != nil {
						t.Error(err)
						return
					}
					body, _ := io.ReadAll(resp.Body)
					answers <- string(body)
				})
			}
			testnet.Within(t, "the clients", wg.Wait)
			close(answers)
			seen := make(map[string]bool)
			for a := range answers {
				if seen[a] {
					t.Errorf("two connections have the number %s", a)
				}
				seen[a] = true
			}
		})
	}
}

// TestHookBlocks: while a hook blocks, no other hook of the same Serve is called. Hooks of another
// Serve are called, and requests in progress continue.
func TestHookBlocks(t *testing.T) {
	entered, release := make(chan net.Conn, 10), make(chan struct{})
	var block atomic.Bool
	f := start(t, echoPath, func(f *fixture) {
		f.listenOnLoops(4)
		f.srv.ConnState = func(c net.Conn, state http.ConnState) {
			f.connState(c, state)
			if state == http.StateNew && block.Load() && c.LocalAddr().String() == f.ln.Addr().String() {
				entered <- c
				<-release
			}
		}
	})
	old := f.dial()
	old.get("/")
	block.Store(true)
	for range 4 {
		f.dial()
	}
	testnet.Receive(t, "the hook", entered)
	if got := old.get("/old"); got != "/old" {
		t.Errorf("a connection of before: got %q, want %q", got, "/old")
	}
	other := testnet.Listen(t, percore.Listen, testnet.TCP4)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(other) }()
	nc := testnet.Dial(t, other)
	defer nc.Close()
	c := &client{nc, t, bufio.NewReader(nc)}
	if got := c.get("/other"); got != "/other" {
		t.Errorf("another Serve: got %q, want %q", got, "/other")
	}
	select {
	case <-entered:
		t.Error("two hooks of one Serve wait at the same time")
	default:
	}
	block.Store(false)
	close(release)
	f.shutdown()
	testnet.Receive(t, "the other Serve", served)
}

// TestHookCallsServer: a hook may call the methods that start and stop the server.
func TestHookCallsServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		call func(s *Server)
	}{
		{"SetKeepAlivesEnabled", func(s *Server) { s.SetKeepAlivesEnabled(false) }},
		{"Shutdown", func(s *Server) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // it would wait for Serve
			_ = s.Shutdown(ctx)
		}},
		{"Close", func(s *Server) { s.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needParking(t) // otherwise Serve waits for the hook, and Close for Serve
			f := start(t, echoPath, func(f *fixture) {
				f.listenOnLoops(2)
				f.srv.ConnState = func(c net.Conn, state http.ConnState) {
					f.connState(c, state)
					if state == http.StateNew {
						tt.call(f.server)
					}
				}
			})
			c := f.dial()
			if tt.name == "SetKeepAlivesEnabled" {
				if got := c.get("/x"); got != "/x" {
					t.Errorf("got %q, want %q", got, "/x")
				}
				return
			}
			c.awaitEOF()
			f.awaitStates("new closed")
		})
	}
}

// TestServeReturnsAfterStateNew: when a listener fails, Serve returns only after every connection
// that it accepted was reported to the user. The hook needs no lock for that.
func TestServeReturnsAfterStateNew(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			testnet.NoLeaks(t)
			const conns = 3
			for range 20 {
				told := 0
				srv := &http.Server{Handler: http.HandlerFunc(echoPath), ErrorLog: log.New(io.Discard, "", 0)}
				srv.ConnState = func(_ net.Conn, state http.ConnState) {
					if state == http.StateNew {
						told++
					}
				}
				l := &listOf{}
				for range conns {
					a, b := net.Pipe()
					b.Close()
					l.conns = append(l.conns, a)
				}
				server := Wrap(srv)
				if overTLS {
					srv.TLSConfig, _ = testnet.TLS(t)
					_ = server.ServeTLS(l, "", "")
				} else {
					_ = server.Serve(l)
				}
				if told != conns {
					t.Fatalf("Serve returns when %d of %d connections were told", told, conns)
				}
			}
		})
	}
}
