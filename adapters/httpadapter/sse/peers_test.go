package sse

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestPeersLeave: clients that leave at any point of a request or of the events, that ask with HEAD, and
// that never read, in clear and over TLS, with HTTP/1.1 and HTTP/2, on our server and on net/http's. The
// hub forgets them, and a client that stays gets all events.
func TestPeersLeave(t *testing.T) {
	for _, isNet := range []bool{false, true} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("net/http %t, TLS %t", isNet, overTLS), func(t *testing.T) { testPeersLeave(t, isNet, overTLS) })
		}
	}
}

func testPeersLeave(t *testing.T, isNet, overTLS bool) {
	testnet.NoLeaks(t)
	h := NewHub(Config{Limit: 1 << 20})
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	config, clientConfig := testnet.TLS(t)
	srv.TLSConfig = config
	var server testnet.WebServer = httpadapter.Wrap(srv)
	listen := testnet.ListenFunc(percore.Listen)
	if isNet {
		server, listen = srv, net.Listen
	}
	ln := testnet.Listen(t, listen, testnet.TCP4)
	served := make(chan error, 1)
	go func() {
		if overTLS {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		testnet.Receive(t, "Serve", served)
	})
	connect := func(protocol string) (raw, c net.Conn) {
		raw = testnet.Dial(t, ln)
		_ = raw.SetDeadline(time.Now().Add(testnet.HangTimeout))
		if !overTLS {
			return raw, raw
		}
		config := clientConfig.Clone()
		config.NextProtos = []string{protocol}
		return raw, tls.Client(raw, config)
	}
	_, stays := connect("http/1.1")
	io.WriteString(stays, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(stays), nil)
	if err != nil {
		t.Fatal(err)
	}
	events := &reader{t, resp.Body, bufio.NewReader(resp.Body)}
	events.event() // retry
	hasClients := func(n int) {
		t.Helper()
		testnet.Eventually(t, fmt.Sprintf("%d clients", n), func() bool { return h.Len() == n })
	}
	hasClients(1)
	send := func(data string) {
		t.Helper()
		if err := h.Broadcast(Event{Data: data}); err != nil {
			t.Fatal(err)
		}
		if got := events.event(); got != "data: "+data {
			t.Fatalf("got %.40q, want %.40q", got, data)
		}
	}
	request := func(method string) []string {
		return []string{":method", method, ":scheme", "http", ":authority", "a", ":path", "/"}
	}
	for _, peer := range []struct {
		name, http1 string
		http2       func(p *frames.Peer)
		joins       bool
	}{
		{"at once", "", nil, false},
		{"in the request", "GET / HTTP/1.1\r\nHo", nil, false},
		{"among the events", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", nil, true},
		{"among the events, HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", nil, true},
		{"among the events, of POST", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", nil, true},
		{"behind HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", nil, false},
		{"behind SETTINGS", "", func(*frames.Peer) {}, false},
		{"in HEADERS", "", func(p *frames.Peer) { p.Frame(frames.Headers, 0, 1, []byte{0x82}) }, false},
		{"among the events, HTTP/2", "", func(p *frames.Peer) { p.Headers(1, true, request("GET")...) }, true},
		{"among the events, before the end of the request", "", func(p *frames.Peer) { p.Headers(1, false, request("POST")...) }, true},
		{"behind HEAD, HTTP/2", "", func(p *frames.Peer) { p.Headers(1, true, request("HEAD")...) }, false},
	} {
		for _, leaves := range []func(raw *net.TCPConn){
			func(raw *net.TCPConn) { raw.Close() },
			func(raw *net.TCPConn) { _ = raw.SetLinger(0); raw.Close() },
		} {
			protocol := "http/1.1"
			if peer.http2 != nil {
				protocol = "h2"
			}
			raw, c := connect(protocol)
			p := frames.NewPeer(t, c)
			if peer.http2 != nil {
				peer.http2(p)
				p.Flush()
			} else if peer.http1 != "" {
				io.WriteString(c, peer.http1)
			}
			if strings.HasPrefix(peer.name, "behind HEAD") {
				testHEAD(p, peer.http2 != nil)
			}
			if peer.joins {
				hasClients(2)
				send("for both")
			}
			leaves(raw.(*net.TCPConn))
			send("for one")
			hasClients(1)
		}
	}
	if !isNet || !overTLS { // there crypto/tls takes 5 s to close a connection that takes nothing
		_, deaf := connect("http/1.1")
		io.WriteString(deaf, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		hasClients(2)
		for i := 0; i < 1000 && h.Len() > 1; i++ {
			send(strings.Repeat("x", 60<<10))
		}
		hasClients(1)
	}
	h.Close()
	if got := events.event(); got != "EOF" {
		t.Errorf("got %q, want the end", got)
	}
	hasClients(0)
}

// testHEAD reads the answer to a HEAD request, which has an end though events have none.
func testHEAD(p *frames.Peer, isHTTP2 bool) {
	if isHTTP2 {
		for line := p.Next(); !strings.HasSuffix(line, " end"); line = p.Next() {
			if line == "end" || strings.HasPrefix(line, "error") {
				p.T.Fatalf("got %s, want the answer to HEAD", line)
			}
		}
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(p.Conn), &http.Request{Method: "HEAD"})
	if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
		p.T.Errorf("got %v, %v, want the header of an event stream", resp, err)
	}
}
