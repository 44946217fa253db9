//go:build !percore_net

package httpadapter

import (
	"bufio"
	"context"
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

// roomClient is a client of a server whose MaxConns is small.
type roomClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// roomServer serves with so many connections at most. /wait is answered when release is closed.
type roomServer struct {
	t       *testing.T
	addr    string
	mux     *http.ServeMux
	server  *Server
	client  *tls.Config // nil: plain
	release chan struct{}
	waiting atomic.Int32
}

func newRoomServer(t *testing.T, max int, srv *http.Server, overTLS bool, opts ...Option) *roomServer {
	t.Helper()
	testnet.NoLeaks(t)
	r := &roomServer{t: t, release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
		r.waiting.Add(1)
		<-r.release
	})
	srv.Handler, r.mux = mux, mux
	listen := &percore.ListenConfig{MaxConns: max}
	ln, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server = ln.Addr().String(), Wrap(srv, opts...)
	served := make(chan error, 1)
	go func() {
		if !overTLS {
			served <- r.server.Serve(ln)
			return
		}
		served <- r.server.ServeTLS(ln, "", "")
	}()
	t.Cleanup(func() {
		_ = r.server.Close()
		<-served
	})
	return r
}

// dial opens a connection from an address of 127.0.0.0/8, and returns when the kernel has it.
func (r *roomServer) dial(from string) *roomClient {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.DialContext(r.t.Context(), "tcp4", r.addr)
	if err != nil {
		r.t.Fatalf("dialling: %v", err)
	}
	if r.client != nil {
		nc = tls.Client(nc, r.client)
	}
	r.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return &roomClient{r.t, nc, bufio.NewReader(nc)}
}

func (c *roomClient) send(path string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		c.t.Fatalf("a request: %v", err)
	}
}

func (c *roomClient) receive() error {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// ask makes a request that must be answered.
func (c *roomClient) ask() {
	c.t.Helper()
	c.send("/")
	if err := c.receive(); err != nil {
		c.t.Fatalf("an answer: %v", err)
	}
}

// requireClosed waits for the connection's end, which must come between two answers.
func (c *roomClient) requireClosed() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); err != io.EOF {
		c.t.Errorf("got %q, %v, want a connection that was closed", b, err)
	}
}

// rests waits until n connections wait for a request without net/http, which a Read of its takes part of
// a second for.
func (r *roomServer) rests(n int) {
	r.t.Helper()
	testnet.Eventually(r.t, "connections to be parked", func() bool { return r.server.Stats().Parked == n })
}

// A client that comes when MaxConns are open gets the place of the connection that has waited longest;
// the others are not touched.
func TestMakesRoom(t *testing.T) {
	server, client := testnet.TLS(t)
	client.NextProtos = []string{"http/1.1"}
	for name, idleTimeout := range map[string]time.Duration{"with IdleTimeout": time.Hour, "without": 0} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				const max = 4
				srv := &http.Server{IdleTimeout: idleTimeout, TLSConfig: server.Clone()}
				r := newRoomServer(t, max, srv, overTLS)
				if overTLS {
					r.client = client
				}
				var all []*roomClient
				for i := range max {
					c := r.dial(fmt.Sprintf("127.0.0.%d", i+1)) // so that no peer has more than its share
					c.ask()
					r.rests(i + 1) // in this order
					all = append(all, c)
				}
				all[0].ask() // now 1 has waited longest
				r.rests(max)
				late := r.dial("127.0.0.9")
				late.ask()
				all[1].requireClosed()
				r.rests(max)
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
	server, client := testnet.TLS(t)
	client.NextProtos = []string{"http/1.1"}
	for name, timeout := range map[string]time.Duration{"with ReadHeaderTimeout": time.Hour, "without": 0} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				srv := &http.Server{ReadHeaderTimeout: timeout, TLSConfig: server.Clone()}
				r := newRoomServer(t, 2, srv, overTLS)
				var silent []*roomClient
				for i := range 2 {
					silent = append(silent, r.dial("127.0.0.1"))
					testnet.Eventually(t, "the connection to be accepted", func() bool { return r.server.Stats().Waiting == i+1 })
				}
				if overTLS {
					r.client = client
				}
				late := r.dial("127.0.0.2")
				late.ask()
				silent[0].requireClosed()
				late.ask() // no deadline of the wait is left
			})
		}
	}
}

// A peer that has all places but one loses its own, though the other's connection has waited longer.
func TestMakesRoomByPeer(t *testing.T) {
	const max = 8
	r := newRoomServer(t, max, &http.Server{}, false)
	first := r.dial("127.0.0.2")
	first.ask()
	r.rests(1)
	var greedy []*roomClient
	for i := range max - 1 {
		c := r.dial("127.0.0.3")
		c.ask()
		r.rests(i + 2)
		greedy = append(greedy, c)
	}
	var others []*roomClient
	for i := range 4 {
		c := r.dial(fmt.Sprintf("127.0.1.%d", i+1))
		c.ask()
		greedy[i].requireClosed()
		r.rests(max)
		others = append(others, c)
	}
	for _, c := range append(others, first) {
		c.ask()
	}
}

// Connections with a request under way, or a part of one, are not closed, however old they are.
func TestMakesNoRoomForBusy(t *testing.T) {
	r := newRoomServer(t, 2, &http.Server{}, false)
	busy, begun := r.dial("127.0.0.1"), r.dial("127.0.0.2")
	busy.send("/wait")
	begun.ask()
	r.rests(1)
	if _, err := io.WriteString(begun.conn, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, "a handler", func() bool { return r.waiting.Load() == 1 })
	late := r.dial("127.0.0.3")
	late.send("/")
	// Nothing tells that the server has looked and closed nothing, but this: it waits for room.
	testnet.Eventually(t, "Accept to wait", func() bool { return limitWaits(r.addr) > 0 })
	if _, err := io.WriteString(begun.conn, "Host: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := begun.receive(); err != nil {
		t.Fatalf("the request in two parts: %v", err)
	}
	if err := late.receive(); err != nil { // in begun's place, or busy's
		t.Fatalf("the client that has waited: %v", err)
	}
	close(r.release)
	if err := busy.receive(); err != nil {
		t.Errorf("the request under way: %v", err)
	}
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
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	r := newRoomServer(t, 1, &http.Server{Protocols: protocols}, false)
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: only}, Timeout: testnet.HangTimeout}
	defer client.CloseIdleConnections()
	get := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
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
		c := r.dial("127.0.0.2")
		c.ask()
	}
}

// roomStreams are the answers to /events, which are detached.
type roomStreams struct {
	*roomServer
	streams chan *Stream
	ends    chan error
	all     []*Stream
}

// detaches makes the server detach its answers to /events, up to max.
func (r *roomServer) detaches(max int) *roomStreams {
	e := &roomStreams{roomServer: r, streams: make(chan *Stream, max), ends: make(chan error, max)}
	r.mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Stream) { e.streams <- s })
	})
	return e
}

// await waits until one more answer is detached.
func (e *roomStreams) await() {
	e.t.Helper()
	s := testnet.Receive(e.t, "a Stream", e.streams)
	s.OnEnd(func(err error) { e.ends <- err })
	e.all = append(e.all, s)
	testnet.Eventually(e.t, "it waits", func() bool { return e.server.Stats().Detached == len(e.all) })
}

// TestMakesRoomOfDetached: a peer whose detached answers have more than its share of the places loses
// some of them to new clients, and no other answer is cut.
func TestMakesRoomOfDetached(t *testing.T) {
	const max, share = 16, 2
	server, client := testnet.TLS(t)
	client.NextProtos = []string{"http/1.1"}
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			r := newRoomServer(t, max, &http.Server{TLSConfig: server.Clone()}, overTLS)
			if overTLS {
				r.client = client
			}
			events := r.detaches(max)
			watch := func(from string) *roomClient {
				c := r.dial(from)
				c.send("/events")
				events.await()
				return c
			}
			var others []*roomClient
			for i := range max / 2 {
				others = append(others, watch(fmt.Sprintf("127.0.1.%d", i/share+1)))
			}
			for range max / 2 {
				watch("127.0.0.3")
			}
			var late []*roomClient
			for i := range max/2 - share {
				c := r.dial(fmt.Sprintf("127.0.2.%d", i+1))
				c.ask()
				late = append(late, c)
				r.rests(i + 1) // in this order
				if err := testnet.Receive(t, "the end of an answer", events.ends); err != errShare {
					t.Errorf("an answer has ended with %v", err)
				}
			}
			r.dial("127.0.0.9").ask() // no peer has too many answers: a connection makes room
			late[0].requireClosed()
			if n := r.server.Stats().Detached; n != max/2+share {
				t.Errorf("%d answers are left, want %d", n, max/2+share)
			}
			for _, s := range events.all {
				s.Close()
			}
			for _, c := range others {
				if err := c.receive(); err != nil {
					t.Errorf("another peer's answer: %v", err)
				}
			}
		})
	}
}

// TestMakesRoomOfDetachedHTTP2 is TestMakesRoomOfDetached for connections of both protocols. Those over
// HTTP/2 leave slowly, so a client may make more than one leave.
func TestMakesRoomOfDetachedHTTP2(t *testing.T) {
	const max, share = 16, 2
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	r := newRoomServer(t, max, &http.Server{Protocols: protocols}, false)
	events := r.detaches(max)
	watchHTTP2 := func(from string) *frames.Peer {
		c := r.dial(from)
		p := frames.NewPeer(t, c.conn)
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
		c := r.dial("127.0.0.3")
		c.send("/events")
		events.await()
	}
	for i := range max/2 - share {
		r.dial(fmt.Sprintf("127.0.2.%d", i+1)).ask()
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
