package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A protocol is how net/http's client talks to an http.Server.
type protocol struct {
	name  string
	kind  testnet.Kind
	major int // of HTTP
	tls   bool
}

var protocols = []protocol{
	{"HTTP1", testnet.TCP4, 1, false},
	{"HTTP1 over unix", testnet.Unix, 1, false},
	{"HTTP1 over TLS", testnet.TCP4, 1, true},
	{"HTTP2 over TLS", testnet.TCP4, 2, true},
	{"HTTP2 in clear", testnet.TCP4, 2, false},
}

// enabled returns the protocols that both sides speak.
func (p protocol) enabled() *http.Protocols {
	var enabled http.Protocols
	enabled.SetHTTP1(p.major == 1)
	enabled.SetHTTP2(p.major == 2 && p.tls)
	enabled.SetUnencryptedHTTP2(p.major == 2 && !p.tls)
	return &enabled
}

// A web is an http.Server with a client for it.
type web struct {
	ln        net.Listener
	client    *http.Client
	transport *http.Transport
	url       string
}

// startWeb serves handler until the test ends.
func startWeb(t *testing.T, e engine, p protocol, handler http.Handler) *web {
	t.Helper()
	server := &http.Server{Handler: handler, Protocols: p.enabled(), ErrorLog: log.New(io.Discard, "", 0)}
	w := &web{
		ln:        testnet.Listen(t, e.listen, p.kind),
		transport: &http.Transport{Protocols: p.enabled(), DisableCompression: true},
	}
	w.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if e.dial != nil {
			return e.dial(w.ln.Addr().Network(), w.ln.Addr().String())
		}
		return new(net.Dialer).DialContext(ctx, w.ln.Addr().Network(), w.ln.Addr().String())
	}
	w.client = &http.Client{Transport: w.transport}
	w.url = "http://localhost"
	if p.tls {
		server.TLSConfig, w.transport.TLSClientConfig = testnet.TLS(t)
		w.url = "https://localhost"
	}
	testnet.ServeWeb(t, e.wrap(server), w.ln, p.tls)
	t.Cleanup(w.transport.CloseIdleConnections)
	return w
}

// onEachProtocol runs test for each engine and protocol, also with httpadapter, and with percore's
// dialer at the client.
func onEachProtocol(t *testing.T, test func(t *testing.T, e engine, p protocol)) {
	for _, e := range append(slices.Clone(engines), adapterEngine(), dialedByPercore()) {
		for _, p := range protocols {
			t.Run(e.name+"/"+p.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				test(t, e, p)
			})
		}
	}
}

// echo answers with the body it received. It reads all of it first, because net/http's server does
// not promise to read on once it has begun to answer.
func echo(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if r.ContentLength >= 0 {
		rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	rw.Write(body)
}

// TestHTTP sends bodies of all sizes from many clients at once, with and without their length, on
// connections that are used again. The handler checks what net/http learns from a connection: the
// protocol, the TLS state, and the listener's address.
func TestHTTP(t *testing.T) {
	const clients = 8
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		var w *web
		w = startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if (r.TLS != nil) != p.tls || r.ProtoMajor != p.major {
				t.Errorf("got %s, TLS %t, want HTTP/%d, TLS %t", r.Proto, r.TLS != nil, p.major, p.tls)
			}
			if r.TLS != nil && (!r.TLS.HandshakeComplete || r.TLS.Version != tls.VersionTLS13) {
				t.Errorf("got TLS state %+v, want a complete handshake", r.TLS)
			}
			if got := r.Context().Value(http.LocalAddrContextKey); fmt.Sprint(got) != w.ln.Addr().String() {
				t.Errorf("got local address %v in the request's context, want %v", got, w.ln.Addr())
			}
			echo(rw, r)
		}))
		w.transport.MaxIdleConnsPerHost = clients
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				for _, size := range []int{0, 1, 1000 + client, 4096, 70_000, 1 << 20} {
					for _, body := range []io.Reader{bytes.NewReader(pattern(size)), onlyReader{bytes.NewReader(pattern(size))}} {
						resp, err := w.client.Post(w.url, "application/octet-stream", body)
						if err != nil {
							t.Errorf("client %d, %T of %d: %v", client, body, size, err)
							return
						}
						got, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, pattern(size)) {
							t.Errorf("client %d, %T: got %s, %s, %v, want %s", client, body, resp.Status, digest(got), err, digest(pattern(size)))
						}
					}
				}
			})
		}
		testnet.Within(t, "the clients", wg.Wait)
	})
}

// proxy returns httputil's proxy for the server.
func (w *web) proxy(t testing.TB) http.Handler {
	t.Helper()
	target, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: w.transport,
		ErrorLog:  log.New(io.Discard, "", 0),
	}
}
