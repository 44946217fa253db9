package h2

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// wantStats waits until the metrics of the server are want. Limits and timeouts that are 0 may be left
// out of it.
func (f *fixture) wantStats(when string, want Stats) {
	f.t.Helper()
	none := make(sums, counterCount).stats()
	want.Add(Stats{Attacks: none.Attacks, Timeouts: none.Timeouts})
	var got Stats
	defer func() {
		if f.t.Failed() {
			f.t.Logf("%s: got %+v, want %+v", when, got, want)
		}
	}()
	testnet.Eventually(f.t, "the metrics "+when, func() bool {
		got = f.server.Stats()
		return reflect.DeepEqual(got, want)
	})
}

// TestStats: each thing that happens is counted once, where it belongs.
func TestStats(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		begun, goOn := make(chan bool, 1), make(chan bool)
		f := start(&refuser{HandlerFunc(func(s *Stream, r *Request) {
			switch r.Path {
			case "/wait":
				begun <- true
				<-goOn
			case "/fail":
				s.Reset(InternalError)
				return
			case "/panic":
				panic(r.Path)
			}
			_ = s.Send(Message{Status: 200, Body: []byte("0123456789"), End: true})
		})}, Config{HeaderFields: 5, Log: slog.New(slog.DiscardHandler)})
		f.wantStats("at the start", Stats{})
		p := f.peer(4, 4).Flush() // SETTINGS_INITIAL_WINDOW_SIZE
		want := Stats{Conns: 1, Opened: 1}
		f.wantStats("of a connection", want)

		p.Headers(1, true, get("/wait")...).Flush()
		want.Active, want.Streams, want.Requests = 1, 1, 1
		f.wantStats("of a stream", want)
		testnet.Receive(t, "the handler's begin", begun)
		goOn <- true
		p.Want("headers 1 :status=200", `data 1 "0123"`)
		want.Stalled, want.StalledConns, want.Stalls = 1, 1, 1
		f.wantStats("of a stream that waits for the window", want)
		p.Window(1, 6).Flush().Want(`data 1 "456789" end`)
		want.Active, want.Streams, want.Served, want.Stalled, want.StalledConns = 0, 0, 1, 0, 0
		f.wantStats("after the stream", want)

		p.Headers(3, true, get("/fail")...).Flush().Want("reset 3 INTERNAL_ERROR")
		p.Headers(5, true, get("/panic")...).Flush().Want("reset 5 INTERNAL_ERROR")
		p.Headers(7, true, get("/wait")...).Flush()
		want.Requests, want.ResetsByServer, want.Active, want.Streams = 4, 2, 1, 1
		f.wantStats("of a third stream, after two resets", want)
		testnet.Receive(t, "the handler's begin", begun) // a stream that is reset before has none
		p.Reset(7, Cancel).Flush()
		want.ResetsByClient = 1
		f.wantStats("of a stream that was reset while its handler runs", want)
		goOn <- true
		want.Active, want.Streams = 0, 0
		f.wantStats("after its handler", want)

		p.Headers(9, true, get("/refuse")...).Flush().Want("reset 9 REFUSED_STREAM")
		p.Request(11, true, "a", "1", "b", "1", "c", "1").Flush().Want("headers 11 :status=431 end")
		want.Refused, want.LargeHeaders, want.Requests, want.Served = 1, 1, 5, 2
		f.wantStats("after a request that was refused, and a long one", want)

		p.Headers(13, true, get("/wait")...).Flush()
		want.Active, want.Streams, want.Requests = 1, 1, 6
		f.wantStats("of the last stream", want)
		testnet.Receive(t, "the handler's begin", begun)
		f.server.Close()
		want.Conns, want.Active = 0, 0
		f.wantStats("of a handler that outlives its connection", want)
		goOn <- true
		want.Streams = 0
		f.wantStats("at the end", want)
	})
}

// get returns the header of a request.
func get(path string) []string {
	return []string{":method", "GET", ":scheme", "http", ":path", path, ":authority", "a"}
}

// refuser refuses the path /refuse.
type refuser struct{ HandlerFunc }

func (h *refuser) Accept(c *Conn, r *Request) StreamHandler {
	if r.Path == "/refuse" {
		return nil
	}
	return h.HandlerFunc.Accept(c, r)
}

// TestStatsOfEnds: connections that end because of the client are counted by the reason.
func TestStatsOfEnds(t *testing.T) {
	hello := HandlerFunc(func(s *Stream, r *Request) {
		_ = s.Send(Message{Status: 200, Body: make([]byte, 1<<20), End: true})
	})
	attack := func(limit string) Stats { return Stats{Opened: 1, Attacks: map[string]uint64{limit: 1}} }
	slow := func(kind string) Stats { return Stats{Opened: 1, Timeouts: map[string]uint64{kind: 1}} }
	for _, c := range []struct {
		name   string
		config Config
		play   func(p *frames.Peer)
		want   Stats
	}{
		{"breach", Config{}, func(p *frames.Peer) {
			p.Frame(frames.Data, 0, 0, nil).Flush().Want("goaway 0 PROTOCOL_ERROR", "end").Conn.Close()
		}, Stats{Opened: 1, Breaches: 1}},
		{"header block", Config{}, func(p *frames.Peer) {
			p.Frame(frames.Headers, 0, 1, []byte{0x82})
			for range 200 {
				p.Frame(9, 0, 1, nil) // CONTINUATION
			}
			p.Flush().Want("goaway 0 ENHANCE_YOUR_CALM", "end").Conn.Close()
		}, attack("header_block")},
		{"useless frames", Config{}, func(p *frames.Peer) {
			for range 6000 {
				p.Frame(frames.Priority, 0, 1, make([]byte, 5))
			}
			p.Flush().Want("goaway 0 ENHANCE_YOUR_CALM", "end").Conn.Close()
		}, attack("useless_frames")},
		{"no PING", Config{PingAfter: time.Millisecond, PingTimeout: time.Millisecond}, func(p *frames.Peer) { p.Flush() }, slow("ping")},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := serve(t, hello, c.config)
			c.play(f.peer())
			f.wantStats("after the end", c.want)
		})
	}
	t.Run("no SETTINGS", func(t *testing.T) {
		f := serve(t, hello, Config{BeginTimeout: time.Millisecond})
		f.dial()
		f.wantStats("after the end", slow("begin"))
	})
	t.Run("a client that does not read", func(t *testing.T) {
		f := serve(t, hello, Config{WriteTimeout: time.Millisecond})
		p := f.peer(4, 1<<30)
		p.Window(0, 1<<30)
		for id := uint32(1); id < 100; id += 2 {
			p.Request(id, true)
		}
		p.Flush()
		testnet.Eventually(t, "the end", func() bool { return f.server.Stats().Timeouts["read"] == 1 })
	})
	t.Run("draining", func(t *testing.T) {
		goOn := make(chan bool)
		f := serve(t, HandlerFunc(func(s *Stream, _ *Request) { <-goOn }), Config{})
		p := f.peer()
		p.Request(1, true).Flush()
		want := Stats{Opened: 1, Requests: 1, Conns: 1, Active: 1, Streams: 1}
		f.wantStats("before", want)
		for _, c := range f.server.conns() {
			c.GoAway()
		}
		want.Draining = 1
		f.wantStats("of a connection that drains", want)
		p.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		goOn <- true
		p.Want("reset 1 INTERNAL_ERROR", "end").Conn.Close()
		f.wantStats("after", Stats{Opened: 1, Requests: 1, ResetsByServer: 1})
	})
}

// TestMetrics: the metrics of the process are those of the servers.
func TestMetrics(t *testing.T) {
	read := func() map[string]float64 {
		all := make(map[string]float64)
		for _, f := range readMetrics() {
			all[strings.TrimSpace(f.Name+" "+f.Of)] = f.Value
		}
		return all
	}
	var before map[string]float64
	testnet.Eventually(t, "the end of what other tests have left", func() bool {
		before = read()
		return before["connections idle"] == 0 && before["connections active"] == 0 && before["open_streams"] == 0
	})
	f := serve(t, HandlerFunc(func(s *Stream, _ *Request) { _ = s.Send(Message{Status: 200, End: true}) }), Config{})
	f.peer().Request(1, true).Flush().Want("headers 1 :status=200 end")
	f.wantStats("after a request", Stats{Conns: 1, Opened: 1, Requests: 1, Served: 1})
	after := read()
	for name, more := range map[string]float64{"connections idle": 1, "opened_connections_total": 1, "streams_total": 1, "served_streams_total": 1} {
		if after[name] != before[name]+more {
			t.Errorf("%s: got %v after %v, want %v more", name, after[name], before[name], more)
		}
	}
}
