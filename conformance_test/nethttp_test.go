package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
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

func TestHTTPExpectContinue(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refuse" {
				rw.WriteHeader(http.StatusExpectationFailed)
				return
			}
			echo(rw, r)
		}))
		w.transport.ExpectContinueTimeout = testnet.HangTimeout
		for _, path := range []string{"/", "/refuse", "/"} {
			var continued atomic.Int32
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued.Add(1) }})
			req, err := http.NewRequestWithContext(ctx, "POST", w.url+path, bytes.NewReader(pattern(100_000)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Expect", "100-continue")
			resp, err := w.client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if path == "/refuse" {
				resp.Body.Close()
				if resp.StatusCode != http.StatusExpectationFailed || continued.Load() != 0 {
					t.Errorf("refused: got %s after %d times 100, want 417 at once", resp.Status, continued.Load())
				}
				continue
			}
			if got := readResponse(t, resp); got != string(pattern(100_000)) || continued.Load() != 1 {
				t.Errorf("got %s after %d times 100, want all bytes after one", digest([]byte(got)), continued.Load())
			}
		}
	})
}

func TestHTTPTrailers(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Trailer", "X-Out")
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("reading the request: %v", err)
			}
			fmt.Fprintf(rw, "%d bytes", len(body))
			rw.Header().Set("X-Out", "re: "+r.Trailer.Get("X-In"))
		}))
		req, err := http.NewRequest("POST", w.url, onlyReader{bytes.NewReader(pattern(50_000))})
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-In": {"over"}}
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := readResponse(t, resp), "50000 bytes"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := resp.Trailer.Get("X-Out"), "re: over"; got != want {
			t.Errorf("got trailer %q, want %q", got, want)
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

// TestHTTPServerSentEvents reads events one by one as they are flushed, then disconnects, which
// must end the handler.
func TestHTTPServerSentEvents(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		next := make(chan int)
		gone := make(chan error, 1)
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for {
				select {
				case i := <-next:
					fmt.Fprintf(rw, "data: %d\n\n", i)
					http.NewResponseController(rw).Flush()
				case <-r.Context().Done():
					gone <- r.Context().Err()
					return
				}
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", w.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { next <- 0 }() // the response starts with the first event
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for i := range 50 {
			if i > 0 {
				next <- i
			}
			want := fmt.Sprintf("data: %d\n\n", i)
			got := make([]byte, len(want))
			testnet.Within(t, fmt.Sprintf("event %d", i), func() {
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					t.Errorf("event %d: got %q, %v, want %q", i, got, err, want)
				}
			})
		}
		cancel()
		if err := testnet.Receive(t, "the handler noticing", gone); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v in the handler, want context.Canceled", err)
		}
	})
}

func TestHTTPClientGone(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		const clients = 20
		arrived, gone := make(chan struct{}, clients), make(chan error, clients)
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-r.Context().Done()
			gone <- r.Context().Err()
		}))
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range clients {
			wg.Go(func() {
				req, err := http.NewRequestWithContext(ctx, "GET", w.url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := w.client.Do(req); err == nil {
					resp.Body.Close()
					t.Errorf("got %s, want the request cut", resp.Status)
				}
			})
		}
		for range clients {
			testnet.Receive(t, "a request", arrived)
		}
		cancel()
		for range clients {
			if err := testnet.Receive(t, "a handler noticing", gone); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v in the handler, want context.Canceled", err)
			}
		}
		testnet.Within(t, "clients ending", wg.Wait)
	})
}

func TestHTTPKeepAliveReuse(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		var remotes sync.Map
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			remotes.Store(r.RemoteAddr, true)
			io.WriteString(rw, r.URL.Path)
		}))
		fresh := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) {
				if !info.Reused {
					fresh++
				}
			},
		})
		const requests = 200
		for i := range requests {
			path := fmt.Sprintf("/%d", i)
			req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client.Do(req)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			if got := readResponse(t, resp); got != path {
				t.Errorf("got %q, want %q", got, path)
			}
		}
		seen := 0
		remotes.Range(func(any, any) bool { seen++; return true })
		// There is nearly always one: see TestDialHTTPTransport.
		if fresh > requests/2 || seen > requests/2 {
			t.Errorf("got %d connections dialed, %d seen by the server, for %d requests, want them used again", fresh, seen, requests)
		}
	})
}

// TestHTTPPipelining writes many requests without waiting for answers, cut at odd places, and
// expects the answers in order.
func TestHTTPPipelining(t *testing.T) {
	const requests = 1000
	onEachWebEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		w := startWeb(t, e, protocol{kind: kind, major: 1}, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.URL.Path+";")
		}))
		c := testnet.Dial(t, w.ln)
		go func() {
			var all strings.Builder
			for i := range requests {
				connection := "keep-alive"
				if i == requests-1 {
					connection = "close"
				}
				fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: test\r\nConnection: %s\r\n\r\n", i, connection)
			}
			for rest := all.String(); rest != ""; {
				n := min(len(rest), 777)
				if _, err := io.WriteString(c, rest[:n]); err != nil {
					t.Errorf("writing: %v", err)
					return
				}
				rest = rest[n:]
			}
		}()
		answers, err := io.ReadAll(c)
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		position := 0
		for i := range requests {
			want := fmt.Sprintf("\r\n\r\n/%d;", i)
			next := strings.Index(string(answers[position:]), want)
			if next < 0 {
				t.Fatalf("answer %d is missing or out of order", i)
			}
			position += next + len(want)
		}
	})
}

func TestHTTPTimeouts(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		t.Run("idle", func(t *testing.T) {
			closed := make(chan struct{}, 10)
			w := startWeb(t, e, p, http.HandlerFunc(echo), func(server *http.Server) {
				server.IdleTimeout = 20 * time.Millisecond
				server.ConnState = func(_ net.Conn, state http.ConnState) {
					if state == http.StateClosed {
						closed <- struct{}{}
					}
				}
			})
			w.get(t, "/")
			testnet.Receive(t, "the idle connection being closed", closed)
			w.get(t, "/")
		})
		t.Run("write", func(t *testing.T) {
			// On a slow machine the time may be up before there is an answer to cut. It may even be
			// up before the handshake is done, because it limits that, too. Then try again with a
			// longer time.
			for timeout, begun := 100*time.Millisecond, false; !begun; timeout *= 4 {
				failed := make(chan error, 1)
				w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					var err error
					for err == nil {
						_, err = rw.Write(pattern(1 << 20))
					}
					failed <- err
				}), func(server *http.Server) { server.WriteTimeout = timeout })
				before := time.Now()
				resp, err := w.client.Get(w.url)
				if begun = err == nil; !begun {
					if time.Since(before) < timeout || timeout > testnet.HangTimeout {
						t.Fatalf("with a timeout of %v, after %v: %v", timeout, time.Since(before), err)
					}
					continue
				}
				defer resp.Body.Close()
				// The client reads, or crypto/tls would wait for five seconds before it closes.
				if n, err := io.Copy(io.Discard, resp.Body); err == nil {
					t.Errorf("got %d bytes and a normal end, want the response cut", n)
				}
				testnet.Receive(t, "the write failing", failed)
			}
		})
	})
}

func TestHTTPShutdown(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		arrived, goOn := make(chan struct{}), make(chan struct{})
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				arrived <- struct{}{}
				<-goOn
			}
			io.WriteString(rw, "done")
		}))
		w.get(t, "/") // leaves an idle connection
		answer := make(chan error, 1)
		go func() {
			resp, err := w.client.Get(w.url + "/slow")
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) != "done" {
					err = errors.Join(err, fmt.Errorf("answer %q", body))
				}
			}
			answer <- err
		}()
		testnet.Receive(t, "the request", arrived)
		shut := make(chan error, 1)
		go func() { shut <- w.server.Shutdown(t.Context()) }()
		testnet.Eventually(t, "the listener being closed", func() bool {
			c, err := net.Dial(w.ln.Addr().Network(), w.ln.Addr().String())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		select {
		case err := <-shut:
			t.Errorf("Shutdown returned %v while a request was active", err)
		case <-time.After(50 * time.Millisecond):
		}
		close(goOn)
		if err := testnet.Receive(t, "the answer", answer); err != nil {
			t.Errorf("the active request: %v", err)
		}
		if err := testnet.Receive(t, "Shutdown", shut); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestHTTPCloseCutsActiveRequests(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		arrived := make(chan struct{}, 10)
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-r.Context().Done()
		}))
		failures := make(chan error, 10)
		for range 10 {
			go func() {
				resp, err := w.client.Get(w.url)
				if err == nil {
					resp.Body.Close()
				}
				failures <- err
			}()
		}
		for range 10 {
			testnet.Receive(t, "a request", arrived)
		}
		w.server.Close()
		for range 10 {
			if err := testnet.Receive(t, "a request's end", failures); err == nil {
				t.Error("got an answer after Close, want an error")
			}
		}
	})
}

// hashing sums the bytes that pass through.
type hashing struct {
	io.Reader
	sum hash.Hash
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

// endless repeats pattern(muchData) for n bytes.
func endless(n int64) io.Reader {
	return io.LimitReader(&repeating{data: pattern(muchData - 1)}, n)
}

type repeating struct {
	data   []byte
	offset int
}

func (r *repeating) Read(p []byte) (int, error) {
	n := copy(p, r.data[r.offset:])
	r.offset = (r.offset + n) % len(r.data)
	return n, nil
}

func TestHTTPBigTransfers(t *testing.T) {
	size := int64(64 << 20)
	if testing.Short() || race.Enabled {
		size = 4 << 20
	}
	sum := sha256.New()
	io.Copy(sum, endless(size))
	want := fmt.Sprintf("%x", sum.Sum(nil))
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		w := startWeb(t, e, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == "GET" {
				io.Copy(rw, endless(size))
				return
			}
			body := &hashing{r.Body, sha256.New()}
			if _, err := io.Copy(io.Discard, body); err != nil {
				t.Errorf("upload: %v", err)
			}
			fmt.Fprintf(rw, "%x", body.sum.Sum(nil))
		}))
		resp, err := w.client.Post(w.url, "application/octet-stream", onlyReader{endless(size)})
		if err != nil {
			t.Fatal(err)
		}
		if got := readResponse(t, resp); got != want {
			t.Errorf("upload: got hash %s, want %s", got, want)
		}
		resp, err = w.client.Get(w.url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := &hashing{resp.Body, sha256.New()}
		n, err := io.Copy(io.Discard, body)
		if got := fmt.Sprintf("%x", body.sum.Sum(nil)); err != nil || n != size || got != want {
			t.Errorf("download: got %d bytes, %v, hash %s, want %d, hash %s", n, err, got, size, want)
		}
	})
}

func TestHTTPManyClientsAtOnce(t *testing.T) {
	const clients, requests = 50, 20
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

func TestHTTPFileServer(t *testing.T) {
	onEachProtocol(t, func(t *testing.T, e engine, p protocol) {
		dir := testnet.ShortTempDir(t)
		for _, size := range []int{0, 1, 4096, 65_537, 3 << 20} {
			if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, size), pattern(size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w := startWeb(t, e, p, http.FileServer(http.Dir(dir)))
		for _, size := range []int{0, 1, 4096, 65_537, 3 << 20} {
			if got := w.get(t, fmt.Sprintf("/%d", size)); got != string(pattern(size)) {
				t.Errorf("file of %d: got %s, want %s", size, digest([]byte(got)), digest(pattern(size)))
			}
		}
		for _, r := range [][2]int{{0, 0}, {100, 65_000}, {1 << 20, 3<<20 - 1}} {
			req, err := http.NewRequest("GET", fmt.Sprintf("%s/%d", w.url, 3<<20), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r[0], r[1]))
			resp, err := w.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := pattern(3 << 20)[r[0] : r[1]+1]; err != nil || !bytes.Equal(got, want) {
				t.Errorf("range %v: got %s, %v, want %s", r, digest(got), err, digest(want))
			}
		}
	})
}

// TestHTTPReverseProxy puts httputil's proxy on the engine in front of a server on the engine. It
// sends plain requests, large bodies, and an upgraded connection, which the proxy copies between
// the two sockets.
func TestHTTPReverseProxy(t *testing.T) {
	onEachWebEngine(t, func(t *testing.T, e engine) {
		plain := protocols[0]
		backend := startWeb(t, e, plain, http.HandlerFunc(digestOrUpgrade))
		front := startWeb(t, e, plain, backend.proxy(t))
		front.tryBodies(t, 0, 10, 2<<20)
		tryUpgrade(t, front)
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
