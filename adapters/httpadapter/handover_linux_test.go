//go:build !percore_net

package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// mustHandOver moves all connections.
func (f *fixture) mustHandOver(give func([]percore.WaitingConn) error) {
	f.Helper()
	if err := f.handOver(give); err != nil {
		f.Fatalf("HandOver: %v", err)
	}
	if got := f.server.Stats(); got.Conns != 0 || got.Waiting != 0 || got.Parked != 0 {
		f.Errorf("got %+v, want no connection", got)
	}
}

// successor is another process's server, which adopts copies of connections.
type successor struct {
	*fixture
	given, calls atomic.Int64
}

func startSuccessor(t *testing.T, handler http.HandlerFunc) *successor {
	return &successor{fixture: startBeside(t, handler, nil)}
}

// give takes copies of connections.
func (s *successor) give(conns []percore.WaitingConn) error {
	if n := len(conns); n == 0 || n > 253 {
		s.Errorf("got %d connections at once, want 1 to 253", n)
	}
	s.calls.Add(1)
	s.given.Add(int64(len(conns)))
	return adopt(s.ln, conns)
}

// adopt makes ln accept copies of connections.
func adopt(ln net.Listener, conns []percore.WaitingConn) error {
	to := seam.ListenerOf(ln)
	for _, c := range conns {
		fd, err := copyOf(c)
		if err != nil {
			return err
		}
		info := seam.ConnInfoOf(c.Conn)
		info.Served = c.Served
		if err := to.Adopt(fd, info); err != nil {
			return err
		}
	}
	return nil
}

// copyOf duplicates the descriptor of a connection.
func copyOf(c percore.WaitingConn) (fd int, err error) {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(own uintptr) {
		if fd, err = syscall.Dup(int(own)); err == nil {
			syscall.CloseOnExec(fd)
		}
	})
	return fd, errors.Join(controlErr, err)
}

// named answers with a name and the request's path.
func named(name string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, name+r.URL.Path) }
}

// TestHandOver moves connections that wait for their first byte or for another request.
func TestHandOver(t *testing.T) {
	needParking(t)
	f := start(t, named("first"), nil)
	next := startSuccessor(t, named("second"))
	var all []*client
	const fresh, served = 150, 300
	for i := range fresh + served {
		c := f.dial()
		if i < served {
			c.wantGet("/1", "first/1")
		}
		all = append(all, c)
	}
	f.awaitWaiting(fresh)
	var began atomic.Int64
	f.mustHandOver(func(conns []percore.WaitingConn) error {
		for _, c := range conns {
			if c.Served {
				began.Add(1)
			}
		}
		return next.give(conns)
	})
	if n := next.given.Load(); n != fresh+served {
		t.Errorf("got %d connections, want %d", n, fresh+served)
	}
	if n := began.Load(); n != served {
		t.Errorf("got %d connections that have been served, want %d", n, served)
	}
	if got := f.server.Stats().HandedOver; got != fresh+served {
		t.Errorf("Stats.HandedOver: got %d, want %d", got, fresh+served)
	}
	for _, c := range all {
		c.wantGet("/2", "second/2")
	}
	f.wantClosedOnce()
	f.dial().wantGet("/3", "first/3") // the Server goes on
}

// startWaiting starts a server. Its answer to /wait signals begun and then waits for end.
func startWaiting(t *testing.T) (f *fixture, begun, end chan bool) {
	begun, end = make(chan bool, 2), make(chan bool)
	f = start(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			begun <- true
			<-end
		}
		named("first")(rw, r)
	}, nil)
	return f, begun, end
}

// TestHandOverListeners: the connections of one listener move. Connections of the Server's other
// listeners stay and continue, or move elsewhere at the same time. A listener added during this
// keeps its own.
func TestHandOverListeners(t *testing.T) {
	needParking(t)
	f, begun, end := startWaiting(t)
	serve := func() (ln net.Listener, dial func() *client) {
		ln = testnet.Listen(t, percore.Listen, testnet.TCP4)
		served := make(chan error, 1)
		go func() { served <- f.server.Serve(ln) }()
		t.Cleanup(func() {
			ln.Close()
			testnet.Receive(t, "Serve", served)
		})
		return ln, func() *client { return f.dialTo(ln) }
	}
	_, dialStaying := serve()
	other, dialOther := serve()
	one, two := startSuccessor(t, named("one")), startSuccessor(t, named("two"))

	idle, busy, idleOther, busyOther, stays := f.dial(), f.dial(), dialOther(), dialOther(), dialStaying()
	for _, c := range []*client{idle, idleOther, stays} {
		c.wantGet("/1", "first/1")
	}
	busy.send(request("/wait"))
	busyOther.send(request("/wait"))
	for range 2 {
		testnet.Receive(t, "a handler's begin", begun)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	moved := make(chan error, 2)
	go func() { moved <- f.server.HandOver(ctx, f.ln, one.give) }()
	go func() { moved <- f.server.HandOver(ctx, other, two.give) }()
	testnet.Eventually(t, "both HandOvers", func() bool { return one.given.Load() == 1 && two.given.Load() == 1 })
	for _, l := range []net.Listener{f.ln, other} {
		if err := f.server.HandOver(ctx, l, giveNever); err != errHandOver {
			t.Errorf("a second HandOver of a listener: got %v, want %v", err, errHandOver)
		}
	}
	idle.wantGet("/2", "one/2")
	idleOther.wantGet("/2", "two/2")
	stays.wantGet("/2", "first/2")
	_, dialLate := serve()
	late := dialLate()
	late.wantGet("/2", "first/2")
	close(end)
	for range 2 {
		if err := testnet.Receive(t, "HandOver", moved); err != nil {
			t.Errorf("HandOver: %v", err)
		}
	}
	for c, want := range map[*client]string{busy: "one/3", busyOther: "two/3", stays: "first/3", late: "first/3"} {
		if c == busy || c == busyOther {
			if got := c.answer(); got != "first/wait" {
				t.Errorf("got %q, want first/wait", got)
			}
		}
		c.wantGet("/3", want)
	}
	if got := f.server.Stats(); got.HandedOver != 4 || got.Conns != 2 {
		t.Errorf("got %d connections handed over and %d here, want 4 and 2", got.HandedOver, got.Conns)
	}
}

// incomparable is a listener that Go can't compare, because it is passed by value.
type incomparable struct {
	net.Listener
	_ []int
}

// TestHandOverIncomparable: connections of a listener that can't be recognized stay.
func TestHandOverIncomparable(t *testing.T) {
	f := start(t, echoPath, func(f *fixture) { f.ln = incomparable{Listener: f.ln} })
	c := f.dial()
	c.wantGet("/1", "/1")
	if err := f.handOver(giveNever); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	c.wantGet("/2", "/2")
}

// TestHandOverPanics: a panic in give counts as a failure, and continues to the caller.
func TestHandOverPanics(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil)
	c := f.dial()
	c.wantGet("/1", "/1")
	func() {
		defer func() {
			if got := recover(); got != "give" {
				t.Errorf("got the panic %v, want give's", got)
			}
		}()
		f.handOver(func([]percore.WaitingConn) error { panic("give") })
	}()
	c.wantGet("/2", "/2")
	f.mustHandOver(startSuccessor(t, echoPath).give)
	c.wantGet("/3", "/3")
}

// TestHandOverDeadline: a connection's IdleTimeout keeps running while give has it, and ends the
// connection if it is given back.
func TestHandOverDeadline(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, func(f *fixture) { f.srv.IdleTimeout = 200 * time.Millisecond })
	c := f.dial()
	c.wantGet("/1", "/1")
	_ = f.handOver(func([]percore.WaitingConn) error {
		time.Sleep(300 * time.Millisecond)
		return errors.New("late")
	})
	c.awaitEOF()
	f.awaitStates("new active idle closed")
}

// TestHandOverBusy: a connection with a request in progress moves after its answer, which is the
// usual one. If part of a header has arrived, the connection waits for the rest.
func TestHandOverBusy(t *testing.T) {
	needParking(t)
	f, begun, end := startWaiting(t)
	next := startSuccessor(t, named("second"))
	busy, part := f.dial(), f.dial()
	busy.send(request("/wait"))
	testnet.Receive(t, "the handler's begin", begun)
	part.wantGet("/1", "first/1")
	f.awaitParked(1)
	part.send(request("/2")[:20])
	testnet.Eventually(t, "the part of a header being read", func() bool { return f.hasPartOf(part) })

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := f.server.HandOver(ctx, f.ln, next.give); err != context.DeadlineExceeded {
		t.Errorf("HandOver: got %v, want the context's error", err)
	}
	moved := make(chan error, 1)
	go func() { moved <- f.handOver(next.give) }()
	testnet.Eventually(t, "HandOver", func() bool { return f.server.isLeaving() })
	if err := f.handOver(next.give); err != errHandOver {
		t.Errorf("a second HandOver: got %v, want %v", err, errHandOver)
	}
	part.send(request("/2")[20:])
	if got := part.answer(); got != "first/2" {
		t.Errorf("got %q, want first/2", got)
	}
	// net/http may have read a byte of the next request by the end of the answer.
	testnet.Eventually(t, "the move", func() bool { return part.get("/3") == "second/3" })
	close(end)
	resp, err := http.ReadResponse(busy.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "first/wait" || err != nil || resp.Close {
		t.Errorf("got %q, %v, close %t, want the answer of a connection that goes on", body, err, resp.Close)
	}
	if err := testnet.Receive(t, "HandOver", moved); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	busy.wantGet("/4", "second/4")
}

// hasPartOf reports whether the server has read the beginning of a request from c.
func (f *fixture) hasPartOf(c *client) bool {
	for nc := range f.snapshot() {
		if sc := h1.ConnOf(nc); sc.RemoteAddr().String() == c.LocalAddr().String() {
			return isIn(sc.Sight(), "parked") && sc.Sight().HasPart
		}
	}
	return false
}

// isLeaving reports whether a HandOver is in progress.
func (s *Server) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.handovers) > 0
}

// TestHandOverClosedLoop moves connections that never wait for longer than a client takes to send
// its next request. The slow hook makes sure that the request is there before the connection waits.
func TestHandOverClosedLoop(t *testing.T) {
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprintf("slow hook %t", slow), func(t *testing.T) {
			needParking(t)
			f := start(t, named("first"), func(f *fixture) {
				if told := f.srv.ConnState; slow {
					f.srv.ConnState = func(nc net.Conn, state http.ConnState) {
						told(nc, state)
						if state == http.StateIdle {
							time.Sleep(time.Millisecond)
						}
					}
				}
			})
			next := startSuccessor(t, named("second"))
			var moved, clients sync.WaitGroup
			for range 64 {
				c := f.dial()
				moved.Add(1)
				clients.Go(func() {
					defer moved.Done()
					for n := 0; ; n++ {
						c.send(request(fmt.Sprintf("/%d", n)))
						switch got := c.answer(); got {
						case fmt.Sprintf("first/%d", n):
						case fmt.Sprintf("second/%d", n):
							return
						default:
							t.Errorf("got %q to request %d", got, n)
							return
						}
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			f.mustHandOver(next.give)
			moved.Wait()
			clients.Wait()
			t.Logf("%d connections by %d calls", next.given.Load(), next.calls.Load())
		})
	}
}

// TestHandOverSoak makes clients send requests of all kinds while their connections move from one
// Server to another and back, again and again. No request fails, and no client connects twice.
func TestHandOverSoak(t *testing.T) {
	needParking(t)
	servers := [2]*fixture{start(t, serveSoak, nil), startBeside(t, serveSoak, nil)}
	clients, moves := 48, 20
	if testing.Short() {
		clients, moves = 16, 6
	}
	var stop atomic.Bool
	var requests atomic.Int64
	var all sync.WaitGroup
	served := 0
	for i := range clients {
		s := &soaker{client: servers[0].dial(), id: i, rng: rand.New(rand.NewPCG(uint64(i), 1)), patience: testnet.HangTimeout}
		if i%4 == 0 {
			continue // it sends nothing
		}
		served++
		all.Go(func() {
			for !stop.Load() {
				_ = s.SetDeadline(time.Now().Add(s.patience))
				m := s.request([]string{"/", "/", "/large", "/wait"}[s.rng.IntN(4)])
				s.pieces(m.text, 1+s.rng.IntN(3))
				if !s.check(m) {
					return
				}
				requests.Add(1)
				if i%4 == 1 {
					time.Sleep(time.Duration(s.rng.IntN(3000)) * time.Microsecond) // perhaps parked
				}
			}
		})
	}
	testnet.Eventually(t, "all connections", func() bool { return servers[0].server.Stats().Conns == clients })
	for i := range moves {
		from, to := servers[i%2], servers[1-i%2]
		calls := 0
		err := from.handOver(func(conns []percore.WaitingConn) error {
			calls++
			return adopt(to.ln, conns)
		})
		if err != nil {
			t.Errorf("HandOver %d: %v", i, err)
		}
		testnet.Eventually(t, "all connections being adopted", func() bool { return to.server.Stats().Conns == clients })
		if got := from.server.Stats().Conns; got != 0 {
			t.Errorf("got %d connections left after HandOver %d, want none", got, i)
		}
		if i == 0 && calls > 20*clients {
			t.Errorf("got %d calls of give for %d connections", calls, clients)
		}
	}
	stop.Store(true)
	all.Wait()
	t.Logf("%d requests", requests.Load())
	a, b := servers[0].server.Stats(), servers[1].server.Stats()
	if want := uint64(clients * moves / 2); a.HandedOver != want || b.HandedOver != want {
		t.Errorf("got %d and %d connections handed over, want %d each", a.HandedOver, b.HandedOver, want)
	}
	// Clients that send nothing were never served.
	if least := uint64(served * (moves/2 - 1)); a.Adopted < least || b.Adopted < least || b.Adopted > uint64(served*moves/2) {
		t.Errorf("got %d and %d connections adopted, want %d at least", a.Adopted, b.Adopted, least)
	}
}

// TestHandOverClosing: a connection may be closed while give has it. If give fails, the connection
// is closed. If give works, the connection moves.
func TestHandOverClosing(t *testing.T) {
	failure := errors.New("no successor")
	for name, end := range map[string]func(f *fixture, c *h1.Conn){
		"user":       func(_ *fixture, c *h1.Conn) { c.Identity().Close() },
		"close":      func(f *fixture, _ *h1.Conn) { f.server.Close() },
		"keepalives": func(f *fixture, _ *h1.Conn) { f.server.SetKeepAlivesEnabled(false) },
		"shutdown": func(f *fixture, _ *h1.Conn) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = f.server.Shutdown(ctx)
		},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, give fails %t", name, fails), func(t *testing.T) {
				needParking(t)
				f := start(t, named("first"), nil)
				next := startSuccessor(t, named("second"))
				c := f.dial()
				c.wantGet("/1", "first/1")
				f.awaitParked(1)
				err := f.handOver(func(conns []percore.WaitingConn) error {
					end(f, f.conn())
					if fails {
						return failure
					}
					return next.give(conns)
				})
				if fails {
					if err != failure {
						t.Errorf("HandOver: got %v, want give's error", err)
					}
					c.awaitEOF()
				} else {
					if err != nil {
						t.Errorf("HandOver: %v", err)
					}
					c.wantGet("/2", "second/2")
				}
				f.awaitStates("new active idle closed")
				testnet.Eventually(t, "the connection being given up", func() bool { return f.server.Stats().Conns == 0 })
			})
		}
	}
}

// TestHandOverShutdown: Shutdown during HandOver ends both.
func TestHandOverShutdown(t *testing.T) {
	needParking(t)
	begun, end := make(chan bool, 1), make(chan bool)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		begun <- true
		<-end
		named("first")(rw, r)
	}, nil)
	c := f.dial()
	c.send(request("/1"))
	testnet.Receive(t, "the handler's begin", begun)
	moved, over := make(chan error, 1), make(chan bool)
	go func() { moved <- f.handOver(startSuccessor(t, named("second")).give) }()
	testnet.Eventually(t, "HandOver", func() bool { return f.server.isLeaving() })
	go func() {
		defer close(over)
		f.shutdown()
	}()
	testnet.Eventually(t, "Shutdown", f.server.isClosed)
	close(end)
	if got := c.answer(); got != "first/1" {
		t.Errorf("got %q, want first/1", got)
	}
	if err := testnet.Receive(t, "HandOver", moved); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	testnet.Receive(t, "Shutdown", over)
	f.wantClosedOnce()
}

// TestHandOverStays: HandOver does not wait for connections that can't move, and they continue.
func TestHandOverStays(t *testing.T) {
	t.Run("TLS", func(t *testing.T) {
		f := start(t, echoPath, func(f *fixture) {
			f.srv.TLSConfig, f.client = testnet.TLS(t)
			f.overListener = tlsByListener
		})
		c := f.dial()
		c.wantGet("/1", "/1")
		if err := f.handOver(giveNever); err != nil {
			t.Errorf("HandOver: %v", err)
		}
		c.wantGet("/2", "/2")
	})
	t.Run("hijacked", func(t *testing.T) {
		needParking(t)
		f := start(t, func(rw http.ResponseWriter, r *http.Request) {
			nc, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return
			}
			go func() {
				defer nc.Close()
				io.Copy(nc, nc)
			}()
		}, nil)
		c := f.dial()
		c.send(request("/1"))
		testnet.Eventually(t, "Hijack", func() bool { return f.server.Stats().Hijacked == 1 })
		if err := f.handOver(giveNever); err != nil {
			t.Errorf("HandOver: %v", err)
		}
		c.send("echo")
		b := make([]byte, 4)
		if _, err := io.ReadFull(c.br, b); string(b) != "echo" || err != nil {
			t.Errorf("got %q, %v, want the echo", b, err)
		}
		c.closeWrite()
		c.awaitEOF()
	})
}

// leavingServer is a server of HTTP/2 whose connections HandOver drains.
type leavingServer struct {
	*side
	begun, end chan bool // the handler of /wait signals begun, and then waits for end
}

// eachLeaving runs a test in clear and over TLS.
func eachLeaving(t *testing.T, test func(t *testing.T, f *leavingServer)) {
	needParking(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
			f := &leavingServer{begun: make(chan bool, 2), end: make(chan bool)}
			handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					f.begun <- true
					<-f.end
				}
				io.WriteString(rw, r.Proto)
			})
			f.side = startHTTP2(t, withAdapter, secure, func(srv *http.Server) { srv.Handler = handler })
			test(t, f)
		})
	}
}

// TestHandOverTLSListener: with percore's listener HandOver finds the connections of the one that
// tls.NewListener has made of it.
func TestHandOverTLSListener(t *testing.T) {
	tlsByListener = true
	defer func() { tlsByListener = false }()
	t.Run("HTTP2", TestHandOverHTTP2)
	t.Run("BecomesHTTP2", TestHandOverBecomesHTTP2)
	t.Run("Stays", TestHandOverStays)
}

// dial returns a client that has sent nothing.
func (f *leavingServer) dial() *frames.Peer {
	c := testnet.Dial(f.t, f.ln)
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if f.client != nil {
		config := f.client.Clone()
		config.NextProtos = []string{"h2"}
		c = tls.Client(c, config)
	}
	return frames.NewPeer(f.t, c)
}

// handOver is HandOver where no connection can move.
func (f *leavingServer) handOver() error {
	ctx, cancel := context.WithTimeout(f.t.Context(), testnet.HangTimeout)
	defer cancel()
	return f.ours.HandOver(ctx, f.ln, giveNever)
}

// wantAnswer reads the answer to a client's first request. Other frames may come before.
func (f *leavingServer) wantAnswer(p *frames.Peer) {
	f.t.Helper()
	for next := p.Next(); next != `data 1 "HTTP/2.0" end`; next = p.Next() {
		if next == "end" || strings.HasPrefix(next, "error") || strings.HasPrefix(next, "reset") {
			f.t.Fatalf("got %s instead of an answer", next)
		}
	}
}

// wantEnd reads the end of a connection, and perhaps GOAWAY before, after its only answer.
func (f *leavingServer) wantEnd(p *frames.Peer) {
	f.t.Helper()
	for next := p.Next(); next != "end"; next = p.Next() {
		if !strings.HasPrefix(next, "goaway") {
			f.t.Fatalf("got %s after the answer, want the end", next)
		}
	}
	p.Conn.Close()
}

// TestHandOverHTTP2: clients of HTTP/2 are told, their streams are served, and then their connections
// end. A client that is about to send its first request has that answered, too.
func TestHandOverHTTP2(t *testing.T) {
	eachLeaving(t, func(t *testing.T, f *leavingServer) {
		idle, busy, begins := f.dial(), f.dial(), f.dial()
		idle.Request(1, true).Flush()
		f.wantAnswer(idle)
		busy.Headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/wait", ":authority", "a").Flush()
		testnet.Receive(t, "the handler's begin", f.begun)
		later := begins.Out[len(preface):]
		begins.Out = begins.Out[:len(preface)]
		begins.Flush() // its SETTINGS are still to come
		testnet.Eventually(t, "three connections", func() bool { return f.ours.HTTP2Stats().Conns == 3 })

		if err := f.handOver(); err != nil {
			t.Errorf("HandOver: %v", err)
		}
		begins.Out = append(begins.Out, later...)
		begins.Request(1, true).Flush()
		f.wantAnswer(begins)
		idle.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", "end").Conn.Close()
		f.wantEnd(begins)
		busy.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		f.end <- true
		f.wantAnswer(busy)
		busy.Want("end").Conn.Close()
		testnet.Eventually(t, "the connections' ends", func() bool { return f.ours.HTTP2Stats().Conns == 0 })

		late := f.dial() // the Server goes on
		late.Request(1, true).Flush()
		f.wantAnswer(late)
		if got := f.ours.HTTP2Stats(); got.Conns != 1 || got.Draining != 0 {
			t.Errorf("got %+v, want a connection that stays", got)
		}
	})
}

// TestHandOverBecomesHTTP2: a connection that becomes HTTP/2 during HandOver has its request answered,
// and ends. In clear HandOver waits for the rest of the preface, over TLS for the handshake.
func TestHandOverBecomesHTTP2(t *testing.T) {
	eachLeaving(t, func(t *testing.T, f *leavingServer) {
		p := f.dial()
		if f.client == nil {
			const part = len(preface) / 2
			later := p.Out[part:]
			p.Out = p.Out[:part]
			p.Flush().Out = later
			testnet.Eventually(t, "half a preface", func() bool { return f.hasUnread() })
		} else {
			testnet.Eventually(t, "a connection", func() bool { return f.ours.Stats().Waiting == 1 })
		}
		moved := make(chan error, 1)
		go func() { moved <- f.handOver() }()
		testnet.Eventually(t, "HandOver", f.ours.isLeaving)
		p.Request(1, true).Flush()
		f.wantAnswer(p)
		if err := testnet.Receive(t, "HandOver", moved); err != nil {
			t.Errorf("HandOver: %v", err)
		}
		f.wantEnd(p)
	})
}

// hasUnread reports whether a connection waits with a part of its first header.
func (f *leavingServer) hasUnread() (has bool) {
	f.ours.mu.Lock()
	calls := f.ours.callsLocked()
	f.ours.mu.Unlock()
	for _, call := range calls {
		call.http1.Each(func(c *h1.Conn) {
			s := c.Sight()
			has = has || isIn(s, "fresh") && s.HasPart
		})
	}
	return has
}

// dialAdopted is like dialTCP, for a connection that another process has accepted and served.
func (f *fixture) dialAdopted() *client {
	f.Helper()
	served, c := testnet.Pair(f, percore.Listen, testnet.TCP4)
	fd, err := copyOf(percore.WaitingConn{Conn: served})
	if err == nil {
		err = seam.ListenerOf(f.ln).Adopt(fd, seam.ConnInfo{Served: true})
	}
	if err != nil {
		f.Fatal(err)
	}
	served.Close()
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return &client{c, f, bufio.NewReader(c)}
}

// TestAdopted: a connection that has had requests in another process waits for the next one here.
func TestAdopted(t *testing.T) {
	needParking(t)
	wantOfTimeout(t, "an answer", 50*time.Millisecond, func(d time.Duration) string {
		f := start(t, echoPath, func(f *fixture) {
			f.srv.ReadHeaderTimeout = d // does not apply to a connection that waits
			f.srv.IdleTimeout = time.Hour
		})
		c := f.dialAdopted()
		f.awaitStates("new idle")
		f.awaitParked(1)
		time.Sleep(2 * d)
		if err := c.tryGet("/1"); err != nil {
			return err.Error()
		}
		f.awaitStates("new idle active idle")
		f.awaitParked(1)
		if got := f.server.Stats(); got.Adopted != 1 || got.HandedOver != 0 || got.Conns != 1 {
			t.Errorf("got %+v, want one connection, adopted", got)
		}
		f.shutdown()
		c.awaitEOF()
		f.awaitStates("new idle active idle closed")
		return "an answer"
	})
}

// TestAdoptedTimeout: it waits as long as it would after an answer.
func TestAdoptedTimeout(t *testing.T) {
	for name, configure := range map[string]func(srv *http.Server){
		"IdleTimeout": func(srv *http.Server) { srv.IdleTimeout, srv.ReadHeaderTimeout = 50*time.Millisecond, time.Hour },
		"ReadTimeout": func(srv *http.Server) { srv.ReadTimeout, srv.ReadHeaderTimeout = 50*time.Millisecond, time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			needParking(t)
			f := start(t, echoPath, func(f *fixture) { configure(f.srv) })
			f.dialAdopted().awaitEOF()
			f.awaitStates("new idle closed")
		})
	}
}

// TestAdoptedIsIdle: Shutdown, SetKeepAlivesEnabled and the hook close it at once. HandOver moves it on.
func TestAdoptedIsIdle(t *testing.T) {
	for name, end := range map[string]func(f *fixture){
		"shutdown":   func(f *fixture) { f.shutdown() },
		"keepalives": func(f *fixture) { f.server.SetKeepAlivesEnabled(false) },
		"user":       func(f *fixture) { f.conn().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			needParking(t)
			f := start(t, echoPath, nil)
			c := f.dialAdopted()
			f.awaitParked(1)
			end(f)
			c.awaitEOF()
			f.awaitStates("new idle closed")
		})
	}
	t.Run("keepalives before", func(t *testing.T) {
		needParking(t)
		f := start(t, echoPath, nil)
		f.server.SetKeepAlivesEnabled(false)
		f.dialAdopted().awaitEOF()
		f.awaitStates("new idle closed")
	})
	t.Run("hook", func(t *testing.T) {
		needParking(t)
		f := start(t, echoPath, func(f *fixture) {
			told := f.srv.ConnState
			f.srv.ConnState = func(nc net.Conn, state http.ConnState) {
				told(nc, state)
				if state == http.StateIdle {
					nc.Close()
				}
			}
		})
		f.dialAdopted().awaitEOF()
		f.awaitStates("new idle closed")
	})
	t.Run("handover", func(t *testing.T) {
		needParking(t)
		f := start(t, echoPath, nil)
		c := f.dialAdopted()
		f.awaitParked(1)
		f.mustHandOver(func(conns []percore.WaitingConn) error {
			if len(conns) != 1 || !conns[0].Served {
				t.Errorf("got %+v, want the connection, which has been served", conns)
			}
			return startSuccessor(t, named("second")).give(conns)
		})
		c.wantGet("/1", "second/1")
	})
}

// TestAdoptedTLS: a connection comes without TLS state, so it can only be a new one.
func TestAdoptedTLS(t *testing.T) {
	needParking(t)
	var config *tls.Config
	f := start(t, echoPath, func(f *fixture) { f.srv.TLSConfig, config = testnet.TLS(t) })
	c := f.dialAdopted()
	c.Conn = tls.Client(c.Conn, config)
	c.br.Reset(c.Conn)
	c.wantGet("/1", "/1")
	f.awaitStates("new active idle")
	if got := f.server.Stats().Adopted; got != 0 {
		t.Errorf("Stats.Adopted: got %d, want none", got)
	}
}

// TestAdoptedPOST: the last request is not known. An empty line before the next one is skipped.
func TestAdoptedPOST(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil)
	c := f.dialAdopted()
	c.send("\r\n" + request("/1"))
	if got := c.answer(); !strings.HasPrefix(got, "/1") {
		t.Errorf("got %q, want /1", got)
	}
}
