package reactor

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// TestGoInBubble: a function runs in the bubble of the goroutine that calls Go, and the pool's
// goroutines stay outside.
func TestGoInBubble(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	c, _ := attach(t, s)
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Bool
		if err := c.Go(func() { ran.Store(true) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !ran.Load() {
			t.Error("the function did not run in the bubble")
		}
	})
	for range 2 {
		ran := make(chan bool, 1)
		if err := c.Go(func() { ran <- true }); err != nil {
			t.Fatal(err)
		}
		testnet.Receive(t, "a function outside", ran)
	}
}

// A connection that calls Go without end has its own share of what may wait: the functions of others run
// as long as a worker is free.
func TestGoShare(t *testing.T) {
	testnet.NoLeaks(t)
	goOn := make(chan bool)
	conns := make(chan *Conn, 1)
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		if p[0] == 'f' {
			select {
			case conns <- c:
			default:
			}
			c.Go(func() { <-goOn })
			return 1
		}
		c.Go(func() { c.Write([]byte("answer")) })
		return 1
	}}, Config{Workers: 2, WaitingMax: 8})
	flooder := dial()
	flood := make([]byte, 1<<20)
	for i := range flood {
		flood[i] = 'f'
	}
	flooded := make(chan bool)
	go func() { flooder.Write(flood); close(flooded) }()
	f := testnet.Receive(t, "the flood", conns)
	testnet.Eventually(t, "the flooder is held up", func() bool { return f.asked.Load()&askWork != 0 })
	others := []net.Conn{dial(), dial(), dial()}
	for range 20 {
		for _, c := range others {
			io.WriteString(c, "x")
			if _, err := io.ReadFull(c, make([]byte, len("answer"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	flooder.Close()
	close(goOn)
	testnet.Receive(t, "the flooder's end", flooded)
}

// Go is bounded, by default, too: a peer that sends requests faster than they are worked off is held up,
// and in the end each has been worked off.
func TestGoBound(t *testing.T) {
	testnet.NoLeaks(t)
	for most, config := range map[int64]Config{defaultWaitingMax: {}, 10: {Workers: 2, WaitingMax: 10}} {
		const requests = 1000
		var called, ran atomic.Int64
		goOn := make(chan bool)
		conns := make(chan *Conn, 1)
		_, dial := serve(t, &handler{open: func(c *Conn) { conns <- c }, data: func(c *Conn, p []byte) int {
			called.Add(1)
			c.Go(func() { <-goOn; ran.Add(1) })
			return 1
		}}, config)
		dial().Write(make([]byte, requests))
		c := testnet.Receive(t, "Open", conns)
		testnet.Eventually(t, "the peer is held up", func() bool { return c.asked.Load()&askWork != 0 })
		// The first may begin before or after the bound is reached: one more is read then.
		if n := called.Load(); n < most+1 || n > most+2 {
			t.Errorf("got %d functions, want %d, or one more", n, most+1)
		}
		close(goOn)
		testnet.Eventually(t, "all functions have run", func() bool { return ran.Load() == requests })
	}
}

// A function of GoContext is dropped if it has not begun when the connection ends. Its context ends
// then, for the same reason. A function of Go runs, unless the server is closed.
func TestGoContext(t *testing.T) {
	testnet.NoLeaks(t)
	for _, tt := range []struct {
		name  string
		end   func(s *Server, c *Conn, peer *net.TCPConn)
		ends  bool // whether the context ends
		runs  bool // whether Go's function runs
		cause error
	}{
		{"Abort", func(s *Server, c *Conn, _ *net.TCPConn) { c.Abort() }, true, true, context.Canceled},
		{"Close", func(s *Server, c *Conn, _ *net.TCPConn) { c.Close() }, true, true, context.Canceled},
		{"the peer's end", func(s *Server, c *Conn, peer *net.TCPConn) { peer.CloseWrite() }, true, true, io.EOF},
		{"a reset", func(s *Server, c *Conn, peer *net.TCPConn) { peer.SetLinger(0); peer.Close() }, true, true, nil},
		{"Server.Close", func(s *Server, c *Conn, _ *net.TCPConn) { s.Close() }, true, false, ErrServerClosed},
		{"Shutdown", func(s *Server, c *Conn, _ *net.TCPConn) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s.Shutdown(ctx)
		}, false, true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			end, ended := closes()
			began, goOn := make(chan bool), make(chan bool)
			causes, contexts := make(chan error, 1), make(chan context.Context, 1)
			var second, third atomic.Int64
			conns := make(chan *Conn, 1)
			s, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
				c.GoContext(func(ctx context.Context) {
					began <- true
					if tt.ends {
						<-ctx.Done()
					}
					<-goOn
					causes <- context.Cause(ctx)
					contexts <- ctx // which others may still wait for
				})
				c.GoContext(func(ctx context.Context) { second.Add(1) })
				c.Go(func() { third.Add(1) })
				conns <- c
				return len(p)
			}})
			peer := dial().(*net.TCPConn)
			peer.Write([]byte("x"))
			c := testnet.Receive(t, "Data", conns)
			testnet.Receive(t, "the first function", began)
			tt.end(s, c, peer)
			if tt.ends {
				testnet.Eventually(t, "GoContext fails", func() bool {
					return errors.Is(c.GoContext(func(context.Context) {}), net.ErrClosed) // the first ones are dropped
				})
			}
			close(goOn)
			cause := testnet.Receive(t, "the first function's end", causes)
			if tt.cause != nil && cause != tt.cause || (cause != nil) != tt.ends {
				t.Errorf("got cause %v, want %v", cause, tt.cause)
			}
			err := testnet.Receive(t, "Close", ended)
			if tt.ends && err != cause && !(err == nil && cause == context.Canceled) {
				t.Errorf("Close: got %v, want the context's cause, %v", err, cause)
			}
			testnet.Receive(t, "the context's end", testnet.Receive(t, "the context", contexts).Done())
			if got := second.Load() == 1; got == tt.ends {
				t.Errorf("the function of GoContext that waited: ran %t, want %t", got, !tt.ends)
			}
			if got := third.Load() == 1; got != tt.runs {
				t.Errorf("the function of Go that waited: ran %t, want %t", got, tt.runs)
			}
			if err := c.GoContext(func(context.Context) {}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("GoContext after Close: got %v, want %v", err, net.ErrClosed)
			}
		})
	}
}

// The peer's end is not the end of an EndHandler's connection.
func TestGoContextAfterEnd(t *testing.T) {
	testnet.NoLeaks(t)
	h := &ender{}
	h.end = func(c *Conn, unused []byte) {
		if err := c.GoContext(func(ctx context.Context) {
			if ctx.Err() != nil {
				t.Errorf("got %v, want a context that has not ended", ctx.Err())
			}
			c.Write([]byte("answer"))
			c.Close()
		}); err != nil {
			t.Errorf("got %v", err)
		}
	}
	_, dial := serve(t, h)
	c := dial().(*net.TCPConn)
	c.CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "answer" || err != nil {
		t.Errorf("got %q, %v, want the answer", got, err)
	}
}

// A server that is closed waits for functions that run, and for no other, also for those of connections
// that had been closed before.
func TestCloseDropsFunctions(t *testing.T) {
	testnet.NoLeaks(t)
	for _, workers := range []Config{{WaitingMax: 1000}, {Workers: 1, WaitingMax: 1000}} {
		goOn, began := make(chan bool), make(chan bool, 10)
		var ran atomic.Int64
		s, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
			for range 500 {
				c.Go(func() {
					ran.Add(1)
					began <- true
					<-goOn
				})
			}
			if p[0] == 'c' {
				c.Abort()
			}
			return len(p)
		}}, workers)
		dial().Write([]byte("c"))
		testnet.Receive(t, "a function", began)
		before := dial()
		before.Write([]byte("x"))
		testnet.Eventually(t, "both are open", func() bool { return s.Stats().Conns == 2 })
		s.Close()
		testnet.Eventually(t, "no function waits", func() bool { return figuresNow()["waiting_functions"] == 0 })
		close(goOn)
		end(t, s)
		if n := ran.Load(); n > 2 {
			t.Errorf("got %d functions that ran, want one of each connection at most", n)
		}
	}
}

// A callback, or a function of Go, may close the server.
func TestCloseServerAnywhere(t *testing.T) {
	testnet.NoLeaks(t)
	for _, place := range []string{"Open", "Data", "End", "Close", "AfterFunc", "Submit", "Go", "goroutine"} {
		t.Run(place, func(t *testing.T) {
			h := &counted{t: t, at: place, ends: make(chan error, 10)}
			closed := make(chan bool, 10)
			var s *Server
			h.do = func(c *Conn) { c.loop.server.Close(); closed <- true }
			s, dial := serve(t, h)
			one := dial()
			other, err := net.Dial("tcp4", one.RemoteAddr().String()) // fails if the server is closed by now
			talk(one, "x")
			testnet.Receive(t, "Server.Close", closed)
			if err == nil {
				other.SetDeadline(time.Now().Add(testnet.HangTimeout))
				io.Copy(io.Discard, other)
				other.Close()
			}
			testnet.Within(t, "Shutdown", func() { s.Shutdown(context.Background()) })
			if n := s.Stats().Conns; n != 0 {
				t.Errorf("got %d connections after Shutdown, want none", n)
			}
		})
	}
}

// Submit says that its loop has ended, and runs the function otherwise.
func TestExecuteOnEndedLoop(t *testing.T) {
	if onGoroutines {
		t.Skip("loops don't end off Linux and with the tag percore_net: run it on Linux without")
	}
	_, attachOne := dialing(t)
	old := attachOne().Loop()
	var ran, submitted int64
	var err error
	testnet.Eventually(t, "the loop's end", func() bool {
		done := make(chan bool)
		if err = old.Submit(func() { ran++; close(done) }); err == nil {
			submitted++
			testnet.Receive(t, "the function", done)
		}
		return err != nil
	})
	if !errors.Is(err, net.ErrClosed) || ran != submitted {
		t.Errorf("got %v, and %d of %d functions ran; want %v, and all", err, ran, submitted, net.ErrClosed)
	}
}

// Loops that come one after the other have one number and one handler.
func TestLoopHandlerNumbers(t *testing.T) {
	testnet.NoLeaks(t)
	var made []int
	end, ended := closes()
	s, err := New(nil, Config{LoopHandler: func(i int) Handler {
		made = append(made, i)
		return &handler{close: end}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	for range 20 {
		g, err := loop.NewGroup(loop.Config{Loops: 1})
		if err != nil {
			t.Fatal(err)
		}
		d := percore.Dialer{Group: g}
		pc, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Attach(pc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i := c.Loop().Index(); i >= len(made) || c.Loop().Handler() == nil {
			t.Errorf("got loop %d with handler %v when handlers of %v were made", i, c.Loop().Handler(), made)
		}
		c.Abort()
		testnet.Receive(t, "Close", ended)
		g.Close()
		testnet.Within(t, "the loop's end", func() { <-g.Stopped() })
	}
	if want := runtime.GOMAXPROCS(0); onGoroutines && len(made) > want || !onGoroutines && len(made) != 1 {
		t.Errorf("LoopHandler was called with %v", made)
	}
}
