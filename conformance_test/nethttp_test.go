package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
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
	server    testnet.WebServer
	client    *http.Client
	transport *http.Transport
	url       string
	served    chan error
}

// startWeb serves handler until the test ends. The server can be configured
// before it starts.
func startWeb(t *testing.T, e engine, p protocol, handler http.Handler, configure ...func(*http.Server)) *web {
	t.Helper()
	server := &http.Server{Handler: handler, Protocols: p.enabled(), ErrorLog: log.New(io.Discard, "", 0)}
	w := &web{
		ln:        testnet.Listen(t, e.listen, p.kind),
		server:    e.wrap(server),
		transport: &http.Transport{Protocols: p.enabled(), DisableCompression: true},
		served:    make(chan error, 1),
	}
	w.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, w.ln.Addr().Network(), w.ln.Addr().String())
	}
	w.client = &http.Client{Transport: w.transport}
	w.url = "http://localhost"
	if p.tls {
		server.TLSConfig, w.transport.TLSClientConfig = testnet.TLS(t)
		w.url = "https://localhost"
	}
	for _, f := range configure {
		f(server)
	}
	go w.serve(p.tls)
	t.Cleanup(func() {
		w.transport.CloseIdleConnections()
		w.server.Close()
		if err := testnet.Receive(t, "Serve ending", w.served); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: got %v, want http.ErrServerClosed", err)
		}
	})
	return w
}

func (w *web) serve(overTLS bool) {
	if overTLS {
		w.served <- w.server.ServeTLS(w.ln, "", "")
		return
	}
	w.served <- w.server.Serve(w.ln)
}

// get fetches a path and returns the body.
func (w *web) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := w.client.Get(w.url + path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return readResponse(t, resp)
}

// readResponse reads and closes the body of a response that must be a success.
func readResponse(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got status %s, %d bytes, %v, want 200 and all of the body", resp.Status, len(body), err)
	}
	return string(body)
}

// onEachProtocol runs test for each engine and protocol.
func onEachProtocol(t *testing.T, test func(t *testing.T, e engine, p protocol)) {
	onEachWebEngine(t, func(t *testing.T, e engine) {
		for _, p := range protocols {
			t.Run(p.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				test(t, e, p)
			})
		}
	})
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

// digestOrPattern answers a POST with the digest of its body, and a GET with as many bytes as the
// path says.
func digestOrPattern(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		size, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		rw.Write(pattern(size))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	io.WriteString(rw, digest(body))
}

// tryBodies sends bodies to digestOrPattern through one of httputil's proxies, and receives some.
// It does one at a time. If a long answer begins before the proxy's transport has seen the end of
// the request's body, net/http's server may close that body. The proxy then hangs up on the server
// behind it, in the middle of the answer. Package net behaves the same.
func (w *web) tryBodies(t *testing.T, sizes ...int) {
	t.Helper()
	for _, size := range sizes {
		resp, err := w.client.Post(w.url+"/", "application/octet-stream", bytes.NewReader(pattern(size)))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := readResponse(t, resp), digest(pattern(size)); got != want {
			t.Errorf("sent: the server got %s, want %s", got, want)
		}
		if got, want := w.get(t, "/"+strconv.Itoa(size)), string(pattern(size)); got != want {
			t.Errorf("received: got %s, want %s", digest([]byte(got)), digest([]byte(want)))
		}
	}
}

func TestHTTPBodies(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(echo))
		for _, size := range []int{0, 1, 1000, 4096, 70_000, 1 << 20} {
			for _, framing := range []string{"fixed", "chunked"} {
				var body io.Reader = bytes.NewReader(pattern(size))
				if framing == "chunked" {
					body = onlyReader{body}
				}
				resp, err := w.client.Post(w.url, "application/octet-stream", body)
				if err != nil {
					t.Fatalf("%s body of %d: %v", framing, size, err)
				}
				if resp.ProtoMajor != p.major {
					t.Fatalf("got %s, want HTTP/%d", resp.Proto, p.major)
				}
				if got := readResponse(t, resp); got != string(pattern(size)) {
					t.Errorf("%s body: got %s, want %s", framing, digest([]byte(got)), digest(pattern(size)))
				}
			}
		}
	})
}

// upgradeToEcho answers an Upgrade and echoes all bytes until the end.
func upgradeToEcho(rw http.ResponseWriter, r *http.Request) {
	switchProtocols(rw, func(conn net.Conn, buffered *bufio.ReadWriter) { io.Copy(conn, buffered) })
}

// switchProtocols answers an Upgrade and passes the connection to serve.
func switchProtocols(rw http.ResponseWriter, serve func(conn net.Conn, buffered *bufio.ReadWriter)) {
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	serve(conn, buffered)
}

// tryUpgrade upgrades a connection through w and exchanges messages over it.
func tryUpgrade(t *testing.T, w *web) {
	t.Helper()
	stream := upgrade(t, w)
	for _, size := range []int{1, 10, 5000, 200_000} {
		go stream.Write(pattern(size))
		got := make([]byte, size)
		if _, err := io.ReadFull(stream, got); err != nil || !bytes.Equal(got, pattern(size)) {
			t.Errorf("message of %d: got %s, %v, want it back", size, digest(got), err)
		}
	}
}

func TestHTTPUpgrade(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		if p.major == 2 {
			t.Skip("HTTP/2 has no Upgrade")
		}
		tryUpgrade(t, startWeb(t, e, p, http.HandlerFunc(upgradeToEcho)))
	})
}

func TestHTTPManyClientsAtOnce(t *testing.T) {
	const clients, requests = 20, 20
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(echo))
		w.transport.MaxIdleConnsPerHost = clients
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				for i := range requests {
					size := (client*requests + i) * 7 % 9000
					resp, err := w.client.Post(w.url, "application/octet-stream", bytes.NewReader(pattern(size)))
					if err != nil {
						t.Errorf("client %d, request %d: %v", client, i, err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || !bytes.Equal(body, pattern(size)) {
						t.Errorf("client %d, request %d: got %s, %v, want %s", client, i, digest(body), err, digest(pattern(size)))
					}
				}
			})
		}
		testnet.Within(t, "the clients", wg.Wait)
	})
}

// digestOrUpgrade is upgradeToEcho for an Upgrade, and digestOrPattern for everything else.
func digestOrUpgrade(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		upgradeToEcho(rw, r)
		return
	}
	digestOrPattern(rw, r)
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

// TestHTTPTLSState checks what net/http learns from its connections: the TLS state, the negotiated
// protocol, and the listener's address.
func TestHTTPTLSState(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if (r.TLS != nil) != p.tls || r.ProtoMajor != p.major {
				t.Errorf("got %s, TLS %t, want HTTP/%d, TLS %t", r.Proto, r.TLS != nil, p.major, p.tls)
			}
			if r.TLS != nil && (!r.TLS.HandshakeComplete || r.TLS.Version != tls.VersionTLS13) {
				t.Errorf("got TLS state %+v, want a complete handshake", r.TLS)
			}
			fmt.Fprint(rw, r.Context().Value(http.LocalAddrContextKey))
		}))
		if got, want := w.get(t, "/"), w.ln.Addr().String(); got != want {
			t.Errorf("got local address %s in the request's context, want %s", got, want)
		}
	})
}
