//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestServedTLS: requests are served here if http.Transport would send them over HTTP/1.1, or over
// HTTP/2 with its own code.
func TestServedTLS(t *testing.T) {
	server, client := testnet.TLS(t)
	server.NextProtos = []string{"h2", "http/1.1"}
	protocols := func(set ...func(*http.Protocols, bool)) *http.Protocols {
		p := new(http.Protocols)
		for _, f := range set {
			f(p, true)
		}
		return p
	}
	http1, http2 := (*http.Protocols).SetHTTP1, (*http.Protocols).SetHTTP2
	type next = map[string]func(string, *tls.Conn) http.RoundTripper
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(tls.Dialer).DialContext(ctx, network, addr)
	}
	for name, test := range map[string]struct {
		base    *http.Transport
		upgrade bool
		served  bool
	}{
		"zero":                  {&http.Transport{}, false, true},
		"zero, WebSocket":       {&http.Transport{}, true, true},
		"default":               {http.DefaultTransport.(*http.Transport).Clone(), false, true},
		"config":                {&http.Transport{TLSClientConfig: client.Clone()}, false, true},
		"dialer":                {&http.Transport{DialContext: new(net.Dialer).DialContext}, false, true},
		"config, forced":        {&http.Transport{TLSClientConfig: client.Clone(), ForceAttemptHTTP2: true}, false, true},
		"no next protocols":     {&http.Transport{TLSNextProto: next{}}, false, true},
		"a next protocol":       {&http.Transport{TLSNextProto: next{"x": nil}}, false, false},
		"HTTP/1":                {&http.Transport{Protocols: protocols(http1)}, false, true},
		"HTTP/1 and HTTP/2":     {&http.Transport{Protocols: protocols(http1, http2)}, false, true},
		"HTTP/2":                {&http.Transport{Protocols: protocols(http2)}, false, true},
		"HTTP/2, WebSocket":     {&http.Transport{Protocols: protocols(http2)}, true, true},
		"an HTTP/2 of others":   {&http.Transport{TLSNextProto: next{"h2": nil}}, false, false},
		"counts errors":         {&http.Transport{HTTP2: &http.HTTP2Config{CountError: func(string) {}}}, false, false},
		"own dialer of TLS":     {&http.Transport{DialTLSContext: dial}, false, true},
		"own one, WebSocket":    {&http.Transport{DialTLSContext: dial}, true, true},
		"own one, forced":       {&http.Transport{DialTLSContext: dial, ForceAttemptHTTP2: true}, false, true},
		"own one, both":         {&http.Transport{DialTLSContext: dial, ForceAttemptHTTP2: true}, true, false},
		"own one, HTTP/2":       {&http.Transport{DialTLSContext: dial, Protocols: protocols(http2)}, false, false},
		"offers HTTP/2 without": {&http.Transport{TLSClientConfig: &tls.Config{NextProtos: []string{"http/1.1"}}}, false, true},
	} {
		req := newGet(t, "https://127.0.0.1/")
		if test.upgrade {
			req.Header.Set("Connection", "keep-alive, Upgrade")
			req.Header.Set("Upgrade", "WebSocket")
		}
		if got := new(call).prepare(New(test.base), req) == served; got != test.served {
			t.Errorf("%s: served here %t, want %t", name, got, test.served)
		}
	}
}

// TestChosenProtocol: a base that doesn't speak HTTP/2 may have it in NextProtos, as a config has that
// another Transport has used. A server that chooses it gets what http.Transport sends it.
func TestChosenProtocol(t *testing.T) {
	type next = map[string]func(string, *tls.Conn) http.RoundTripper
	for name, change := range map[string]func(*http.Transport){
		"a config":          func(*http.Transport) {},
		"forced":            func(base *http.Transport) { base.ForceAttemptHTTP2 = true },
		"no next protocols": func(base *http.Transport) { base.TLSNextProto = next{} },
		"HTTP/1": func(base *http.Transport) {
			base.Protocols = new(http.Protocols)
			base.Protocols.SetHTTP1(true)
		},
		"HTTP/2": func(base *http.Transport) {
			base.Protocols = new(http.Protocols)
			base.Protocols.SetHTTP2(true)
		},
		"clear HTTP/2": func(base *http.Transport) {
			base.Protocols = new(http.Protocols)
			base.Protocols.SetHTTP1(true)
			base.Protocols.SetUnencryptedHTTP2(true)
		},
	} {
		for _, chosen := range [][]string{{"h2"}, {"http/1.1"}, {"h2", "http/1.1"}, {"x"}} {
			t.Run(fmt.Sprint(name, chosen), func(t *testing.T) {
				srv := httptest.NewUnstartedServer(http.NotFoundHandler())
				defer srv.Close()
				config, client := testnet.TLS(t)
				config.NextProtos, client.NextProtos = chosen, []string{"x", "h2", "http/1.1"}
				srv.TLS, srv.EnableHTTP2, srv.Config.ErrorLog = config, true, log.New(io.Discard, "", 0)
				srv.StartTLS()
				both(t, func() *http.Transport {
					base := &http.Transport{TLSClientConfig: client.Clone()}
					change(base)
					return base
				}, func(t *testing.T, rt http.RoundTripper) (got string) {
					// A server of HTTP/2 that reads a request of HTTP/1 may hang up before its SETTINGS go out. A
					// connection may end before the request or behind it.
					for range 20 {
						got = strings.ReplaceAll(result(rt, "GET", srv.URL), "http: server closed idle connection", "EOF")
						if !strings.HasSuffix(got, "error: EOF") {
							break
						}
					}
					return got
				})
			})
		}
	}
}

// TestHandshakes: handshakes that fail do so with http.Transport's errors, and those that don't say the
// same.
func TestHandshakes(t *testing.T) {
	for name, change := range map[string]func(server, client *tls.Config, base *http.Transport){
		"good":       func(_, _ *tls.Config, _ *http.Transport) {},
		"with time":  func(_, _ *tls.Config, base *http.Transport) { base.TLSHandshakeTimeout = time.Hour },
		"1.2":        func(server, _ *tls.Config, _ *http.Transport) { server.MaxVersion = tls.VersionTLS12 },
		"untrusted":  func(_, client *tls.Config, _ *http.Transport) { client.RootCAs = x509.NewCertPool() },
		"wrong name": func(_, client *tls.Config, _ *http.Transport) { client.ServerName = "example.org" },
		"no name":    func(_, client *tls.Config, _ *http.Transport) { client.ServerName = "" },
		"no version": func(server, client *tls.Config, _ *http.Transport) {
			server.MinVersion, client.MaxVersion = tls.VersionTLS13, tls.VersionTLS12
		},
		"no protocol": func(server, client *tls.Config, _ *http.Transport) {
			server.NextProtos, client.NextProtos = []string{"a"}, []string{"b"}
		},
		"protocol": func(server, client *tls.Config, _ *http.Transport) {
			server.NextProtos, client.NextProtos = []string{"a"}, []string{"b", "a"}
		},
		"client's certificate": func(server, _ *tls.Config, _ *http.Transport) {
			server.ClientAuth, server.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		},
		"verified": func(_, client *tls.Config, _ *http.Transport) {
			client.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not verified") }
		},
		"no keep-alives, resumed": func(_, client *tls.Config, base *http.Transport) {
			client.ClientSessionCache, base.DisableKeepAlives = tls.NewLRUClientSessionCache(1), true
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := func() *http.Transport { return new(http.Transport) }
			both(t, base, func(t *testing.T, rt http.RoundTripper) string {
				server, client := testnet.TLS(t)
				base := rt2base(rt)
				change(server, client, base)
				base.TLSClientConfig = client
				h := newHostileOver(t, server, answerHello)
				plain := func(*http.Request) {}
				return traced(rt, h.url(), plain) + traced(rt, h.url(), plain)
			})
		})
	}
}

// rt2base returns the http.Transport that rt is, or has.
func rt2base(rt http.RoundTripper) *http.Transport {
	if tr, ok := rt.(*Transport); ok {
		return tr.base
	}
	return rt.(*http.Transport)
}

// TestTicketsWhileIdle: session tickets that come on a connection that no call has used yet don't end
// it; the server's farewell, and the end of the stream, do.
func TestTicketsWhileIdle(t *testing.T) {
	server, client := testnet.TLS(t)
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	dialing, dialed, idle := make(chan bool, 9), make(chan bool), make(chan bool)
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		dialing <- true
		<-dialed
		return nil, nil
	}
	server.VerifyConnection = func(tls.ConnectionState) error { // when the client is done, before the tickets are sent
		<-idle
		return nil
	}
	ended := make(chan string, 9)
	h := newHostileOver(t, server, func(c net.Conn, request string) bool {
		answerHello(c, request)
		return !strings.Contains(request, "/bye")
	})
	tr := New(&http.Transport{TLSClientConfig: client})
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := tr.RoundTrip(newGet(t, h.url()).WithContext(ctx))
		ended <- fmt.Sprint(err)
	}()
	<-dialing
	cancel()
	if got := <-ended; got != "context canceled" {
		t.Error(got)
	}
	close(dialed)
	awaitIdle(t, tr)
	close(idle)
	testnet.Eventually(t, "a ticket comes", func() bool {
		_, ok := client.ClientSessionCache.Get("localhost")
		return ok
	})
	for range 2 {
		if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") || h.Accepted() != 1 {
			t.Errorf("got %s over one of %d connections", got, h.Accepted())
		}
	}
	_ = result(tr, "GET", h.url()+"bye")
	awaitEmpty(t, tr)
}

// rawConn lets a test write to the connection below TLS in pieces.
type rawConn struct {
	net.Conn
	mu   sync.Mutex
	hold bool // keep what is written
	kept []byte
}

func (c *rawConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestPartOfRecord: if the first bytes of a record have come on an idle connection, the rest doesn't
// become the next answer.
func TestPartOfRecord(t *testing.T) {
	quiet(t)
	server, client := testnet.TLS(t)
	for cut := 1; cut < 60; cut += 7 {
		first, asked := make(chan bool), make(chan bool)
		var conns atomic.Int32
		srv := testnet.Serve(t, listen(t), func(nc net.Conn) {
			raw := &rawConn{Conn: nc}
			c := tls.Server(raw, server)
			answerHello(c, "")
			if conns.Add(1) > 1 {
				_, _ = io.Copy(io.Discard, c)
				return
			}
			raw.hold = true
			_, _ = io.WriteString(c, stale)
			<-first
			_, _ = nc.Write(raw.kept[:cut])
			asked <- true
			_, _ = nc.Read(make([]byte, 1)) // the next request, or the end
			_, _ = nc.Write(raw.kept[cut:])
			_, _ = io.Copy(io.Discard, nc)
		})
		tr := New(&http.Transport{TLSClientConfig: client})
		for i := range 2 {
			got := result(tr, "GET", testnet.URL(srv, true, ""))
			if !strings.HasPrefix(got, "200 OK") || strings.Contains(got, "tale") {
				t.Errorf("cut at %d, call %d: got %s", cut, i, got)
			}
			if i == 0 {
				first <- true
				<-asked
			}
		}
		tr.CloseIdleConnections()
	}
}

// TestPartOfRecordForWaiter: a call that waits doesn't get a connection on which the first bytes of a
// record have come, and doesn't wait for the rest either: that connection makes room for another.
func TestPartOfRecordForWaiter(t *testing.T) {
	server, client := testnet.TLS(t)
	answer := make(chan bool)
	var conns atomic.Int32
	srv := testnet.Serve(t, listen(t), func(nc net.Conn) {
		raw := &rawConn{Conn: nc}
		c := tls.Server(raw, server)
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		if conns.Add(1) > 1 {
			answerHello(c, "")
		} else {
			<-answer
			raw.hold = true
			answerHello(c, "")
			whole := len(raw.kept)
			_, _ = io.WriteString(c, "x")
			_, _ = nc.Write(raw.kept[:whole+3])
			raw.hold = false
		}
		_, _ = io.Copy(io.Discard, nc)
	})
	tr := New(&http.Transport{TLSClientConfig: client, MaxConnsPerHost: 1})
	defer tr.CloseIdleConnections()
	results := make(chan string, 2)
	call := func() { results <- result(tr, "GET", testnet.URL(srv, true, "")) }
	go call()
	testnet.Eventually(t, "a connection is made", func() bool { return tr.Stats().Conns == 1 })
	go call()
	awaitWaiting(t, tr, 1)
	answer <- true
	for range 2 {
		if got := testnet.Receive(t, "an answer", results); !strings.Contains(got, "hello") {
			t.Error(got)
		}
	}
}
