package h2

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// pinged is a handler that ends connections with too many PINGs.
type pinged struct {
	HandlerFunc
	left int
}

func (p *pinged) Ping(c *Conn, answered bool) {
	if p.left--; p.left < 0 && !answered {
		c.Abort(EnhanceYourCalm, "too_many_pings")
	}
}

// TestPings: a handler that limits PINGs is told of each one, and whether something was sent since
// the last one. It may end the connection with a text. Streams that are open end.
func TestPings(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		ended := make(chan error, 1)
		f := start(&pinged{left: 2, HandlerFunc: func(s *Stream, r *Request) {
			if r.End {
				_ = s.Send(Message{Status: 204, End: true})
				return
			}
			_ = s.Send(Message{Status: 200})
			_, err := s.Read(make([]byte, 1))
			ended <- err
		}}, Config{})
		p := f.peer()
		p.Request(1, false).Flush().Want("headers 1 :status=200")
		for range 2 {
			p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush().Want("pong 3132333435363738")
		}
		p.Request(3, true).Flush().Want("headers 3 :status=204 end")
		p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush().Want("pong 3132333435363738")
		p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush()
		p.Want("pong 3132333435363738", `goaway 3 ENHANCE_YOUR_CALM "too_many_pings"`, "end")
		want := "h2: the connection has ended: too_many_pings"
		if err := testnet.Receive(t, "the stream's end", ended); err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	})
}

// careless is a handler whose hooks panic.
type careless struct{ HandlerFunc }

func (h *careless) Accept(c *Conn, r *Request) StreamHandler {
	if r.Path == "/accept" {
		panic("in Accept")
	}
	return &carelessStream{h.HandlerFunc.Accept(c, r)}
}

func (h *careless) Ping(*Conn, bool)           { panic("in Ping") }
func (h *careless) ConnState(*Conn, ConnState) { panic("in ConnState") }

type carelessStream struct{ StreamHandler }

func (s *carelessStream) Cancelled(error) { panic("in Cancelled") }

// TestHooksPanic: a panic of a hook goes to the log, and costs a stream at most.
func TestHooksPanic(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		var log testnet.Log
		f := start(&careless{func(s *Stream, r *Request) {
			_, _ = io.Copy(io.Discard, s)
			hello(s, r)
		}}, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		p := f.peer()
		p.Headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/accept").Flush().Want("reset 1 REFUSED_STREAM")
		p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush().Want("pong 3132333435363738")
		p.Request(3, false).Reset(3, Cancel).Flush()
		testnet.Eventually(t, "a panic of Cancelled", func() bool { return log.Has("in Cancelled") })
		p.Request(5, true).Flush().Want(helloTo(5)...)
		for _, hook := range []string{"in Accept", "in Ping", "in ConnState"} {
			if !log.Has(hook) {
				t.Errorf("got the log %q, want %q in it", log.String(), hook)
			}
		}
	})
}

// TestAgesDiffer: connections of the same age don't end together, and none lives much longer.
func TestAgesDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := maxAge(time.Hour)
		if seen[d] = true; d < 54*time.Minute || d > 66*time.Minute {
			t.Errorf("got an age of %v for a limit of an hour", d)
		}
	}
	if len(seen) < 50 {
		t.Errorf("got %d ages for 100 connections", len(seen))
	}
	if d := maxAge(1); d < 0 || d > 2 {
		t.Errorf("got %v for a limit of a nanosecond", d)
	}
}

// TestPeersLimit: the handler sees how long a header the client takes.
func TestPeersLimit(t *testing.T) {
	f := serve(t, HandlerFunc(func(s *Stream, _ *Request) {
		_ = s.Send(Message{Status: 200 + s.Conn().HeaderBytesMax(), End: true})
	}), Config{})
	f.peer().Request(1, true).Flush().Want("headers 1 :status=200 end")
	f.peer(6, 34).Request(1, true).Flush().Want("headers 1 :status=234 end")
}

// crash is a server whose handler panics, in a process of its own.
func crash() {
	l, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	server := New(HandlerFunc(func(*Stream, *Request) { panic("the handler's own words") }), Config{Crash: true})
	_ = server.Serve(l)
}

// TestCrash: with Crash a panic of a handler ends the program, and names the handler.
func TestCrash(t *testing.T) {
	child := testnet.StartChild(t, "crash")
	var addr string
	if _, err := fmt.Fscan(child.Stdout, &addr); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	frames.NewPeer(t, nc).Request(1, true).Flush()
	if err := child.Wait(); err == nil {
		t.Error("the program has ended well")
	}
	if out := child.Stderr(); !strings.Contains(out, "the handler's own words") || !strings.Contains(out, "h2.crash.func1") {
		t.Errorf("got the last words %q", out)
	}
}

// TestSize: a connection is in the allocator's class of 512 bytes. From the next byte on the allocator
// needs 8 itself, and the class is that of 576.
func TestSize(t *testing.T) {
	const most = 512
	if got := unsafe.Sizeof(Conn{}); unsafe.Sizeof(uintptr(0)) == 8 && got > most {
		t.Errorf("a connection takes %d bytes, want %d at most", got, most)
	}
}

// TestPongMemory: a connection that has had the answer to its PING, and has nothing to send, holds no
// memory for it.
func TestPongMemory(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(hello), Config{})
		p := f.peer().Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
		for line := p.Next(); !strings.HasPrefix(line, "pong"); line = p.Next() {
		}
		c := f.server.conns()[0]
		c.mu.Lock()
		c.pingLocked(alivePing)
		c.flushSoonLocked()
		c.unlock()
		var ping [9 + 8]byte // Next would wait for another frame behind it
		if _, err := io.ReadFull(p.Conn, ping[:]); err != nil || ping[3] != frames.Ping {
			t.Fatalf("got %x, %v, want a PING", ping, err)
		}
		p.Frame(frames.Ping, frames.Ack, 0, ping[9:]).Flush()
		testnet.Eventually(t, "the answer, and no memory", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.clock.pingedAt == 0 && !c.output.lent
		})
	})
}

// idler closes connections that become idle, as httptest.Server.Close does.
type idler struct{ HandlerFunc }

func (idler) ConnState(c *Conn, s ConnState) {
	if s == Idle {
		_ = c.NetConn().Close()
	}
}

// TestResetsGoFirst: a reset that waits goes out before the connection ends, whatever ends it.
func TestResetsGoFirst(t *testing.T) {
	conns := make(chan *Conn, 1)
	early := HandlerFunc(func(s *Stream, _ *Request) {
		conns <- s.Conn()
		_ = s.Send(Message{Status: 401, End: true, Hold: true})
	})
	const reset = "reset 1 NO_ERROR"
	for _, test := range []struct {
		name string
		h    Handler
		end  func(f *fixture, c *Conn, p *frames.Peer)
		want []string
	}{
		{"Close", early, func(_ *fixture, c *Conn, _ *frames.Peer) { _ = c.Close() }, []string{reset, "end"}},
		{"Server.Close", early, func(f *fixture, _ *Conn, _ *frames.Peer) { _ = f.server.Close() }, []string{reset, "end"}},
		{"Abort", early, func(_ *fixture, c *Conn, _ *frames.Peer) { c.Abort(InternalError, "x") },
			[]string{`goaway 1 INTERNAL_ERROR "x"`, reset, "end"}},
		{"breach", early, func(_ *fixture, _ *Conn, p *frames.Peer) { p.Frame(frames.Data, 0, 0, nil).Flush() },
			[]string{"goaway 1 PROTOCOL_ERROR", reset, "end"}},
		{"GoAway", early, func(_ *fixture, c *Conn, _ *frames.Peer) { c.GoAway() },
			[]string{"goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", reset, "end"}},
		{"hook", idler{early}, func(*fixture, *Conn, *frames.Peer) {}, []string{reset, "end"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
				f := start(test.h, Config{})
				p := f.peer()
				p.Request(1, false).Flush().Want("headers 1 :status=401 end")
				c := testnet.Receive(t, "the connection", conns)
				testnet.Eventually(t, "the handler's return", func() bool { return f.server.Stats().Active == 0 })
				test.end(f, c, p)
				p.Want(test.want...)
			})
		})
	}
}
