package reactor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// silent is a log that is thrown away.
var silent = Config{Log: slog.New(slog.DiscardHandler)}

// counted is a handler that calls do in the named callback, and checks the order of the calls.
type counted struct {
	t    *testing.T
	at   string
	do   func(c *Conn)
	ends chan error
}

// life is a connection's context: which callbacks came.
type life struct{ opened, hijacked, closed atomic.Bool }

func (h *counted) Open(c *Conn) {
	c.SetUser(new(life))
	h.step(c, "Open").opened.Store(true)
	switch h.at {
	case "AfterFunc":
		c.AfterFunc(time.Millisecond, func() { h.do(c) })
	case "Go":
		c.Go(func() { h.do(c) })
	case "Submit":
		c.Loop().Submit(func() { h.do(c) })
	case "goroutine":
		go h.do(c)
	}
	h.reach(c, "Open")
}

func (h *counted) Data(c *Conn, p []byte) int {
	h.step(c, "Data")
	c.Write(p)
	h.reach(c, "Data")
	return len(p)
}

func (h *counted) End(c *Conn, unused []byte) {
	h.step(c, "End")
	if len(unused) != 0 {
		h.t.Errorf("End: got %d unused bytes, want none", len(unused))
	}
	h.reach(c, "End")
	c.Close()
}

func (h *counted) Close(c *Conn, err error) {
	l := h.step(c, "Close")
	l.closed.Store(true)
	h.ends <- err
	h.reach(c, "Close")
}

// step notes a callback, which must come after Open and before Close.
func (h *counted) step(c *Conn, call string) *life {
	l := c.User().(*life)
	if l.closed.Load() || l.hijacked.Load() || l.opened.Load() == (call == "Open") {
		h.t.Errorf("%s is called: opened %t, hijacked %t, closed %t", call, l.opened.Load(), l.hijacked.Load(), l.closed.Load())
	}
	return l
}

func (h *counted) reach(c *Conn, at string) {
	if h.at == at {
		h.do(c)
	}
}

// Each thing that can be done to a connection is done in each callback, and by goroutines. The
// handler's Close comes once, unless it was hijacked, and other connections go on.
func TestActionsInCallbacks(t *testing.T) {
	testnet.NoLeaks(t)
	onLoop := []string{"Open", "Data", "End", "Close", "AfterFunc", "Submit"}
	anywhere := append([]string{"Go", "goroutine"}, onLoop...)
	for _, action := range []struct {
		name   string
		places []string
		do     func(c *Conn)
	}{
		{"nothing", anywhere, func(c *Conn) {}},
		{"Abort", anywhere, func(c *Conn) { c.Abort() }},
		{"Abort twice", anywhere, func(c *Conn) { c.Abort(); c.Abort() }},
		{"Write and Abort", anywhere, func(c *Conn) { c.Write([]byte("x")); c.Abort() }},
		{"Write and Close", anywhere, func(c *Conn) { c.Write([]byte("x")); c.Close() }},
		{"CloseWrite", anywhere, func(c *Conn) { c.Write([]byte("x")); c.CloseWrite() }},
		{"CloseWrite, then Close", anywhere, func(c *Conn) { c.CloseWrite(); c.Close() }},
		{"Go that closes", anywhere, func(c *Conn) { c.Go(func() { c.Abort() }) }},
		{"AfterFunc that closes", anywhere, func(c *Conn) { c.AfterFunc(0, func() { c.Abort() }) }},
		{"Each that closes", anywhere, func(c *Conn) { c.Loop().server.Each(func(c *Conn) { c.Abort() }) }},
		{"panic", []string{"Open", "Data", "End", "Close", "AfterFunc", "Submit", "Go"}, func(c *Conn) { panic("a test") }},
		{"Goexit", []string{"Open", "Data", "End", "Close", "AfterFunc", "Submit", "Go"}, func(c *Conn) { runtime.Goexit() }},
		{"Hijack", onLoop, func(c *Conn) {
			conn, _, err := c.Hijack()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			c.User().(*life).hijacked.Store(true)
			conn.Close()
		}},
	} {
		for _, place := range action.places {
			t.Run(action.name+" in "+place, func(t *testing.T) {
				var done atomic.Bool
				h := &counted{t: t, at: place, ends: make(chan error, 100)}
				var lives sync.Map
				h.do = func(c *Conn) {
					lives.Store(c, c.User())
					if done.CompareAndSwap(false, true) {
						action.do(c)
					}
				}
				s, dial := serve(t, h, silent)
				first := dial()
				if slices.Contains([]string{"AfterFunc", "Submit", "Go", "goroutine"}, place) {
					testnet.Eventually(t, "the place is reached", done.Load)
				}
				talk(first, "first")
				talk(dial(), "second")
				testnet.Eventually(t, "all connections are gone", func() bool { return s.Stats().Conns == 0 })
				if !done.Load() { // by now: a client sees the end before Close is called
					t.Error("the place was never reached")
				}
				want := 2
				for _, l := range lives.Range {
					if l.(*life).hijacked.Load() {
						want--
					}
				}
				if got := len(h.ends); got != want {
					t.Errorf("got %d calls of Close, want %d", got, want)
				}
			})
		}
	}
}

// talk plays a client that doesn't mind when it is cut off.
func talk(c net.Conn, text string) {
	io.WriteString(c, text)
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
	c.Close()
}

// However a connection has ended, in the handler's Close and afterwards all calls fail that could do
// something.
func TestCallsAfterEnd(t *testing.T) {
	testnet.NoLeaks(t)
	b := pool.Get(1)
	defer b.Release()
	for name, end := range map[string]func(c *Conn, peer *net.TCPConn){
		"the peer's end": func(_ *Conn, peer *net.TCPConn) { peer.CloseWrite() },
		"Close":          func(c *Conn, peer *net.TCPConn) { c.Close(); peer.CloseWrite() },
		"Abort":          func(c *Conn, _ *net.TCPConn) { c.Abort() },
	} {
		calls := func(c *Conn) {
			_, write := c.Write([]byte("x"))
			_, buffers := c.WriteBuffers([]byte("x"))
			for i, err := range []error{write, buffers, c.WriteShared(b), c.CloseWrite(), c.Close(), c.Abort(),
				c.Go(func() {}), c.GoContext(func(context.Context) {})} {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("%s: call %d: got %v, want %v", name, i, err, net.ErrClosed)
				}
			}
		}
		conns, ended := make(chan *Conn, 1), make(chan error, 1)
		s, dial := serve(t, &handler{open: func(c *Conn) { conns <- c }, close: func(c *Conn, err error) {
			calls(c)
			ended <- err
		}})
		peer := dial().(*net.TCPConn)
		c := testnet.Receive(t, "Open", conns)
		end(c, peer)
		testnet.Receive(t, "Close", ended)
		testnet.Eventually(t, "the connection's end", func() bool { return s.Stats().Conns == 0 })
		calls(c)
	}
}

// A panic is reported with its stack and ends its connection with a PanicError.
func TestPanic(t *testing.T) {
	testnet.NoLeaks(t)
	var log testnet.Log
	end, ended := closes()
	_, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
		if p[0] == 'u' {
			return len(p) + 1
		}
		panic("oh")
	}}, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, text := range []string{"p", "u"} {
		talk(dial(), text)
		var p *PanicError
		if err := testnet.Receive(t, "Close", ended); !errors.As(err, &p) {
			t.Errorf("%s: got %v, want a PanicError", text, err)
		}
	}
	for _, want := range []string{"oh", "callbacks_test.go", "*reactor.handler", "used 2 of 1"} {
		if !log.Has(want) {
			t.Errorf("the log has no %q: %s", want, &log)
		}
	}
}

// A callback that takes long is reported, and shows in Stats. With SlowCallback each call of Data is
// timed, also of those for the bytes of one read.
func TestSlowCallbacks(t *testing.T) {
	testnet.NoLeaks(t)
	var log testnet.Log
	end, ended := closes()
	s, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
		time.Sleep(2 * time.Millisecond)
		return 1
	}}, Config{SlowCallback: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	talk(dial(), "abc")
	testnet.Receive(t, "Close", ended)
	if n := log.Count("handler=*reactor.handler call=Data"); n != 3 {
		t.Errorf("got %d slow calls of Data in the log, want 3: %s", n, &log)
	}
	if loops := s.Stats().Loops; len(loops) != 1 || loops[0].Longest < 2*time.Millisecond {
		t.Errorf("got %v, want a callback of 2ms at least", loops)
	}
}

// Connections that can't be served are refused with a reason.
func TestRefused(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	defer ln.Close()
	if err := Serve(ln, &handler{}, Config{}); err == nil || errors.Is(err, ErrServerClosed) {
		t.Errorf("a listener of package net: got %v, want an error", err)
	}
	if _, err := New(&handler{}, Config{WriteHardLimit: 1}); err == nil {
		t.Error("a hard limit below the high-water mark: got no error")
	}

	s, _ := serve(t, &handler{})
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	if _, err := s.Attach(server, nil, nil); err == nil {
		t.Error("a pipe: got no error")
	}
	c, _ := testnet.Pair(t, percore.Listen, testnet.TCP4)
	a, err := s.Attach(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Attach(c, nil, nil); err == nil && !onGoroutines {
		t.Error("a connection that is attached: got no error")
	}
	a.Abort()
	testnet.Eventually(t, "the connection is gone", func() bool { return s.Stats().Conns == 0 })
	s.Close()
	if _, err := s.Attach(c, nil, nil); err != ErrServerClosed {
		t.Errorf("a closed server: got %v, want %v", err, ErrServerClosed)
	}
}
