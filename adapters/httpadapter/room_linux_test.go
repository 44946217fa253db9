//go:build !percore_net

package httpadapter

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// roomServer is a fixture whose listener has a small MaxConns. /wait is answered when release is closed.
type roomServer struct {
	*fixture
	mux     *http.ServeMux
	release chan struct{}
	waiting atomic.Int32
}

// newRoomServer serves with max connections at most. configure may be nil.
func newRoomServer(t *testing.T, max int, overTLS bool, configure func(srv *http.Server)) *roomServer {
	t.Helper()
	r := &roomServer{mux: http.NewServeMux(), release: make(chan struct{})}
	r.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	r.mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
		r.waiting.Add(1)
		<-r.release
	})
	r.fixture = start(t, r.mux.ServeHTTP, func(f *fixture) {
		f.listenWith(percore.ListenConfig{MaxConns: max})
		if overTLS {
			withHTTP1TLS(f)
		}
		if configure != nil {
			configure(f.srv)
		}
	})
	return r
}

// dialFrom opens a connection from an address of 127.0.0.0/8, and returns when the kernel has it.
func (r *roomServer) dialFrom(ip string) *client {
	r.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	nc, err := d.DialContext(r.Context(), "tcp4", r.ln.Addr().String())
	if err != nil {
		r.Fatalf("dialling: %v", err)
	}
	if r.client != nil {
		nc = tls.Client(nc, r.client)
	}
	r.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return &client{nc, r, bufio.NewReader(nc)}
}

// ask makes a request that must be answered.
func (c *client) ask() {
	c.t.Helper()
	c.wantGet("/", "ok")
}

// A client that comes when MaxConns are open gets the place of the connection that has waited longest;
// the others are not touched.
func TestMakesRoom(t *testing.T) {
	for name, idleTimeout := range map[string]time.Duration{"with IdleTimeout": time.Hour, "without": 0} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				const max = 4
				r := newRoomServer(t, max, overTLS, func(srv *http.Server) { srv.IdleTimeout = idleTimeout })
				var all []*client
				for i := range max {
					c := r.dialFrom(fmt.Sprintf("127.0.0.%d", i+1)) // so that no peer has more than its share
					c.ask()
					r.awaitParked(i + 1) // in this order
					all = append(all, c)
				}
				all[0].ask() // now 1 has waited longest
				r.awaitParked(max)
				late := r.dialFrom("127.0.0.9")
				late.ask()
				all[1].awaitEOF()
				r.awaitParked(max)
				for _, i := range []int{0, 2, 3} {
					all[i].ask()
				}
				late.ask()
			})
		}
	}
}

// Connections that have never sent anything make room, too, whatever timeouts there are.
func TestMakesRoomOfSilent(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"with ReadHeaderTimeout": time.Hour, "without": 0} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				r := newRoomServer(t, 2, overTLS, func(srv *http.Server) { srv.ReadHeaderTimeout = timeout })
				config := r.client
				r.client = nil // no handshake
				var silent []*client
				for i := range 2 {
					silent = append(silent, r.dialFrom("127.0.0.1"))
					testnet.Eventually(t, "the connection to be accepted", func() bool { return r.server.Stats().Waiting == i+1 })
				}
				r.client = config
				late := r.dialFrom("127.0.0.2")
				late.ask()
				silent[0].awaitEOF()
				late.ask() // no deadline of the wait is left
			})
		}
	}
}

// A peer that has all places but one loses its own, though the other's connection has waited longer.
func TestMakesRoomByPeer(t *testing.T) {
	const max = 8
	r := newRoomServer(t, max, false, nil)
	first := r.dialFrom("127.0.0.2")
	first.ask()
	r.awaitParked(1)
	var greedy []*client
	for i := range max - 1 {
		c := r.dialFrom("127.0.0.3")
		c.ask()
		r.awaitParked(i + 2)
		greedy = append(greedy, c)
	}
	var others []*client
	for i := range 4 {
		c := r.dialFrom(fmt.Sprintf("127.0.1.%d", i+1))
		c.ask()
		greedy[i].awaitEOF()
		r.awaitParked(max)
		others = append(others, c)
	}
	for _, c := range append(others, first) {
		c.ask()
	}
}

// Connections with a request under way, or a part of one, are not closed, however old they are.
func TestMakesNoRoomForBusy(t *testing.T) {
	r := newRoomServer(t, 2, false, nil)
	busy, begun := r.dialFrom("127.0.0.1"), r.dialFrom("127.0.0.2")
	busy.send(request("/wait"))
	begun.ask()
	r.awaitParked(1)
	if _, err := io.WriteString(begun, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, "a handler", func() bool { return r.waiting.Load() == 1 })
	late := r.dialFrom("127.0.0.3")
	late.send(request("/"))
	// Nothing tells that the server has looked and closed nothing, but this: it waits for room.
	testnet.Eventually(t, "Accept to wait", func() bool { return limitWaits(r.ln.Addr().String()) > 0 })
	if _, err := io.WriteString(begun, "Host: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	begun.answer()
	late.answer() // in begun's place, or busy's
	close(r.release)
	busy.answer()
}

// limitWaits returns how often Accept has begun to wait because of MaxConns.
func limitWaits(addr string) uint64 {
	for _, l := range percore.ReadStats().Listeners {
		if l.Address == addr {
			return l.LimitWaits
		}
	}
	return 0
}

// A connection over HTTP/2 without streams makes room, too: the client is told, and connects again.
func TestMakesRoomHTTP2(t *testing.T) {
	r := newRoomServer(t, 1, false, func(srv *http.Server) { srv.Protocols = clearHTTP2(true) })
	client := testnet.HTTP2Client(t, nil)
	get := func() {
		t.Helper()
		resp, err := client.Get(testnet.URL(r.ln, false, "/"))
		if err != nil {
			t.Fatalf("a request over HTTP/2: %v", err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("got %s, %v", resp.Proto, err)
		}
	}
	for range 3 {
		get()
		c := r.dialFrom("127.0.0.2")
		c.ask()
	}
}

// roomStreams are the answers to /events, which are detached.
type roomStreams struct {
	*roomServer
	streams chan *Answer
	ends    chan error
	all     []*Answer
}

// detaches makes the server detach its answers to /events, up to max.
func (r *roomServer) detaches(max int) *roomStreams {
	e := &roomStreams{roomServer: r, streams: make(chan *Answer, max), ends: make(chan error, max)}
	r.mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Answer) { e.streams <- s })
	})
	return e
}

// await waits until one more answer is detached.
func (e *roomStreams) await() {
	e.Helper()
	s := testnet.Receive(e, "an Answer", e.streams)
	s.OnEnd(func(err error) { e.ends <- err })
	e.all = append(e.all, s)
	testnet.Eventually(e, "it waits", func() bool { return e.server.Stats().Detached == len(e.all) })
}

// TestMakesRoomOfDetached: a peer whose detached answers have more than its share of the places loses
// some of them to new clients, and no other answer is cut.
func TestMakesRoomOfDetached(t *testing.T) {
	const max, share = 16, 2
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			r := newRoomServer(t, max, overTLS, nil)
			events := r.detaches(max)
			watch := func(from string) *client {
				c := r.dialFrom(from)
				c.send(request("/events"))
				events.await()
				return c
			}
			var others []*client
			for i := range max / 2 {
				others = append(others, watch(fmt.Sprintf("127.0.1.%d", i/share+1)))
			}
			for range max / 2 {
				watch("127.0.0.3")
			}
			var late []*client
			for i := range max/2 - share {
				c := r.dialFrom(fmt.Sprintf("127.0.2.%d", i+1))
				c.ask()
				late = append(late, c)
				r.awaitParked(i + 1) // in this order
				if err := testnet.Receive(t, "the end of an answer", events.ends); err != errShare {
					t.Errorf("an answer has ended with %v", err)
				}
			}
			r.dialFrom("127.0.0.9").ask() // no peer has too many answers: a connection makes room
			late[0].awaitEOF()
			if n := r.server.Stats().Detached; n != max/2+share {
				t.Errorf("%d answers are left, want %d", n, max/2+share)
			}
			for _, s := range events.all {
				s.Close()
			}
			for _, c := range others {
				c.answer()
			}
		})
	}
}

// TestMakesRoomOfDetachedHTTP2 is TestMakesRoomOfDetached for connections of both protocols. Those over
// HTTP/2 leave slowly, so a client may make more than one leave.
func TestMakesRoomOfDetachedHTTP2(t *testing.T) {
	const max, share = 16, 2
	r := newRoomServer(t, max, false, func(srv *http.Server) { srv.Protocols = clearHTTP2(true) })
	events := r.detaches(max)
	watchHTTP2 := func(from string) *frames.Peer {
		c := r.dialFrom(from)
		p := frames.NewPeer(t, c)
		p.Headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/events", ":authority", "x").Flush()
		events.await()
		return p
	}
	var others []*frames.Peer
	for i := range max / 2 {
		others = append(others, watchHTTP2(fmt.Sprintf("127.0.1.%d", i/share+1)))
	}
	for range max / 4 {
		watchHTTP2("127.0.0.3")
		c := r.dialFrom("127.0.0.3")
		c.send(request("/events"))
		events.await()
	}
	for i := range max/2 - share {
		r.dialFrom(fmt.Sprintf("127.0.2.%d", i+1)).ask()
	}
	testnet.Eventually(t, "that one peer has its share", func() bool { return r.server.Stats().Detached == max/2+share })
	for range max/2 - share {
		if err := testnet.Receive(t, "the end of an answer", events.ends); err != errShare {
			t.Errorf("an answer has ended with %v", err)
		}
	}
	for _, s := range events.all {
		s.Close()
	}
	for i, p := range others {
		frame := p.Next()
		for strings.HasPrefix(frame, "settings") || strings.HasPrefix(frame, "window") || strings.HasPrefix(frame, "headers") {
			frame = p.Next()
		}
		if frame != `data 1 "" end` {
			t.Errorf("the answer of another peer, number %d, ends with the frame %s", i, frame)
		}
	}
}
