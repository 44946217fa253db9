//go:build !percore_net

package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// onlyReader hides what a body is.
type onlyReader struct{ io.Reader }

// requests are requests of each kind. TestTransportSameAsNetHTTP draws more methods, targets and fields.
var requests = map[string]func(r *http.Request){
	"plain":          func(r *http.Request) {},
	"no method":      func(r *http.Request) { r.Method = "" },
	"HEAD":           func(r *http.Request) { r.Method = "HEAD" },
	"OPTIONS":        func(r *http.Request) { r.Method = "OPTIONS"; r.URL.Path = "*" },
	"CONNECT":        connect(func(r *http.Request) { r.URL.Path = "" }),
	"CONNECT a host": connect(func(r *http.Request) { r.URL.Path, r.Host = "", "example.com:443" }),
	"CONNECT opaque": connect(func(r *http.Request) { r.URL.Path, r.URL.Opaque = "", "example.com:443" }),
	"CONNECT a path": connect(func(r *http.Request) {}),
	"CONNECT, body":  connect(func(r *http.Request) { setBody(r, strings.NewReader("hello")); r.URL.Path = "" }),
	"forced query":   func(r *http.Request) { r.URL.ForceQuery = true },
	"opaque":         func(r *http.Request) { r.URL.Opaque = "//other/x" },
	"escaped":        func(r *http.Request) { r.URL.Path = "/a b/\x01ü" },
	"raw path":       func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" },
	"host with zone": func(r *http.Request) { r.Host = "[fe80::1%25en0]:80" },
	"idna host":      func(r *http.Request) { r.Host = "bücher.example" },
	"agent without":  func(r *http.Request) { r.Header["User-Agent"] = nil },
	"header": func(r *http.Request) {
		r.Header["X-B"] = []string{"1", " 2 ", ""}
		r.Header["x-a"] = []string{"lower"}
		r.Header["X-A"] = nil
	},
	"many fields": func(r *http.Request) {
		for i := range 60 {
			r.Header.Set(fmt.Sprintf("X-%d", i), strings.Repeat("y", i))
		}
	},
	"value with DEL":       func(r *http.Request) { r.Header.Set("A", "x\x7fy") },
	"empty encoding":       func(r *http.Request) { r.Header.Set("Accept-Encoding", "") },
	"close and connection": func(r *http.Request) { r.Close = true; r.Header.Set("Connection", "Close, x") },
	"no header":            func(r *http.Request) { r.Header = nil },
	"empty body":           func(r *http.Request) { r.Method = "POST"; r.Body = http.NoBody },
	"POST without body":    func(r *http.Request) { r.Method = "POST" },
	"coding without body":  func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
	"chunked":              coded(5, -1, "chunked"),
	"chunked, no length":   coded(5, 0, "chunked"),
	"chunked, length":      coded(5, 5, "chunked"),
	"chunked, long":        coded(100<<10, -1, "chunked"),
	"chunked, no bytes":    coded(0, -1, "chunked"),
	"chunked, GET":         func(r *http.Request) { coded(5, -1, "chunked")(r); r.Method = "GET" },
	"chunked, DELETE":      func(r *http.Request) { coded(0, -1, "chunked")(r); r.Method = "DELETE" },
	"chunked, empty body":  func(r *http.Request) { r.Body, r.TransferEncoding = http.NoBody, []string{"chunked"} },
	"chunked, CONNECT":     connect(func(r *http.Request) { coded(5, -1, "chunked")(r); r.URL.Path = "" }),
	"chunked, trailers":    func(r *http.Request) { coded(5, -1, "chunked")(r); r.Trailer = http.Header{"A": {"b"}} },
	"chunked twice":        coded(5, -1, "chunked", "chunked"),
	"identity":             coded(5, 5, "identity"),
	"identity, no body":    func(r *http.Request) { r.Method, r.TransferEncoding = "PUT", []string{"identity"} },
	"gzip":                 coded(5, 5, "gzip"),
	"scheme":               func(r *http.Request) { r.URL.Scheme = "ftp" },
	"no host":              func(r *http.Request) { r.URL.Host = "" },
	"bytes":                withBody(func() io.Reader { return bytes.NewReader([]byte("hello")) }),
	"buffer":               withBody(func() io.Reader { return bytes.NewBufferString("hello") }),
	"string":               text,
	"empty string":         withBody(func() io.Reader { return strings.NewReader("") }),
	"8 KiB":                withBody(func() io.Reader { return strings.NewReader(strings.Repeat("x", 8<<10)) }),
	"longer bytes":         withBody(func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20)) }),
	"longer buffer":        withBody(func() io.Reader { return bytes.NewBuffer(bytes.Repeat([]byte("x"), 100<<10)) }),
	"longer":               withBody(func() io.Reader { return strings.NewReader(strings.Repeat("x", 100<<10)) }),
	"counted reader":       counted(5, unknown("PUT", "hello", nil)),
	"chunks":               unknown("POST", strings.Repeat("chunks", 20000), nil),
	"one chunk": func(r *http.Request) {
		r.Method = "PATCH"
		r.Body = io.NopCloser(strings.NewReader(strings.Repeat("chunk", 20000)))
		r.ContentLength = -1
	},
	"no chunk":                unknown("POST", "", nil),
	"GET of unknown length":   unknown("GET", "hello", nil),
	"GET of length 0":         unknown("GET", "", nil),
	"GET of one byte":         unknown("GET", "x", nil),
	"GET of 100 KiB":          unknown("GET", strings.Repeat("x", 100<<10), nil),
	"HEAD of unknown length":  unknown("HEAD", "hello", nil),
	"DELETE that fails":       unknown("DELETE", "", errors.New("reading fails")),
	"DELETE that fails later": unknown("DELETE", "x", errors.New("reading fails")),
	"DELETE in memory": func(r *http.Request) {
		r.Method = "DELETE"
		setBody(r, strings.NewReader("hello"))
		r.ContentLength = -1
	},
	"DELETE, trailers":           func(r *http.Request) { unknown("DELETE", "", nil)(r); r.Trailer = http.Header{"A": {"b"}} },
	"DELETE, expecting":          expecting(unknown("DELETE", "hello", nil)),
	"DELETE, expecting, empty":   expecting(unknown("DELETE", "", nil)),
	"own method, unknown length": unknown("X", "hello", nil),
	"counted, 1 MiB":             counted(1<<20, unknown("PUT", strings.Repeat("x", 1<<20), nil)),
	"file": func(r *http.Request) {
		r.Method = "PUT"
		f, _ := os.Open("request_linux_test.go")
		info, _ := f.Stat()
		r.Body, r.ContentLength = f, info.Size()
	},
	"trailers": func(r *http.Request) {
		r.Method = "PUT"
		r.Trailer = http.Header{"X-B": {"1", " 2\t"}, "x-a": nil, "X-Late": nil}
		r.Body = io.NopCloser(&late{Reader: strings.NewReader("hello"), set: func() { r.Trailer["X-Late"] = []string{"late"} }})
	},
	"trailers without chunks": func(r *http.Request) {
		setBody(r, strings.NewReader("hello"))
		r.Method, r.Trailer = "POST", http.Header{"A": {"b"}}
	},
	"trailers without body":     func(r *http.Request) { r.Trailer = http.Header{"A": {"b"}} },
	"expecting":                 expecting(text),
	"expecting, chunks":         expecting(unknown("POST", "hello", nil)),
	"expecting, HTTP/1.0":       expecting(func(r *http.Request) { text(r); r.ProtoMajor, r.ProtoMinor = 1, 0 }),
	"expecting without body":    expecting(func(*http.Request) {}),
	"expecting with empty body": expecting(func(r *http.Request) { r.Body = http.NoBody }),
	"expecting something else":  func(r *http.Request) { setBody(r, strings.NewReader("hello")); r.Header.Set("Expect", "x") },
	"chunks that fail":          unknown("PUT", "hel", errors.New("reading fails")),
	"failing reader":            counted(5, unknown("PUT", "hel", errors.New("reading fails"))),
}

// unknown gives a request a body of unknown length, which fails at its end if err is not nil.
func unknown(method, body string, err error) func(r *http.Request) {
	return func(r *http.Request) {
		from := io.Reader(strings.NewReader(body))
		if err != nil {
			from = io.MultiReader(from, iotest.ErrReader(err))
		}
		r.Method, r.Body = method, io.NopCloser(onlyReader{from})
	}
}

// coded gives a request a body of n bytes, and a TransferEncoding.
func coded(n int, length int64, coding ...string) func(r *http.Request) {
	return func(r *http.Request) {
		r.Method, r.ContentLength, r.TransferEncoding = "POST", length, coding
		r.Body = io.NopCloser(onlyReader{strings.NewReader(strings.Repeat("x", n))})
	}
}

// late sets trailers when it has been read.
type late struct {
	io.Reader
	set func()
}

func (r *late) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		r.set()
	}
	return n, err
}

func expecting(set func(r *http.Request)) func(r *http.Request) {
	return func(r *http.Request) { set(r); r.Header.Set("Expect", "100-continue") }
}

// counted declares the length of the body.
func counted(n int64, set func(r *http.Request)) func(r *http.Request) {
	return func(r *http.Request) { set(r); r.ContentLength = n }
}

var text = withBody(func() io.Reader { return strings.NewReader("hello") })

func withBody(make func() io.Reader) func(r *http.Request) {
	return func(r *http.Request) { r.Method = "POST"; setBody(r, make()) }
}

func setBody(r *http.Request, body io.Reader) {
	with, _ := http.NewRequest("POST", "http://x", body)
	r.Body, r.ContentLength, r.GetBody = with.Body, with.ContentLength, with.GetBody
}

// bases are transports with settings that change requests.
var bases = map[string]func() *http.Transport{
	"zero": func() *http.Transport { return &http.Transport{} },
	"default": func() *http.Transport {
		base := http.DefaultTransport.(*http.Transport).Clone()
		base.ExpectContinueTimeout = time.Millisecond
		return base
	},
	"no keep-alives": func() *http.Transport { return &http.Transport{DisableKeepAlives: true} },
	"no compression": func() *http.Transport { return &http.Transport{DisableCompression: true} },
	"no idle":        func() *http.Transport { return &http.Transport{MaxIdleConnsPerHost: -1} },
	"own dial": func() *http.Transport {
		return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	},
	"wrapped connections": func() *http.Transport { return &http.Transport{DialContext: dialWrapped} },
	"proxy": func() *http.Transport {
		return &http.Transport{Proxy: func(r *http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: r.URL.Host}, nil }}
	},
}

// TestSameRequest: the server gets the bytes that it gets from http.Transport, hooks are called in the
// same order, and errors are the same. Wait100Continue is left out: net/http calls it before or after
// the hooks of an early answer, as it happens.
func TestSameRequest(t *testing.T) {
	quiet(t)
	for baseName, base := range bases {
		for name, change := range requests {
			got, want, ok := equal(func() (got, want string) { return sameRequest(t, base, change) })
			if !ok {
				t.Errorf("%s, %s:\ngot\n%.3000s\nwant\n%.3000s", baseName, name, got, want)
			}
		}
	}
}

// sameRequest makes a request twice with each transport.
func sameRequest(t *testing.T, base func() *http.Transport, change func(r *http.Request)) (got, want string) {
	var texts [2]string
	for i, rt := range []http.RoundTripper{New(base()), base()} {
		h := newHostile(t, func(c net.Conn, request string) bool {
			const header = "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
			_, _ = io.WriteString(c, header)
			if !strings.HasPrefix(request, "HEAD") {
				_, _ = io.WriteString(c, "hello")
			}
			return true
		})
		for range 2 {
			texts[i] += tracedAll(rt, h.url(), change)
		}
		rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		h.End()
		texts[i] = strings.ReplaceAll(texts[i]+strings.Join(h.requests, "|"), h.Addr().String(), "ADDR")
		texts[i] = testnet.WithoutPorts(texts[i])
	}
	return texts[0], texts[1]
}

// traced is tracedAll without what http.Transport's goroutines may say too late.
func traced(rt http.RoundTripper, url string, change func(r *http.Request)) string {
	return lateHooks.ReplaceAllString(tracedAll(rt, url, change), "")
}

var lateHooks = regexp.MustCompile(`(?m)^(PutIdleConn|WroteRequest) .*\n`)

// tracedAll makes a request, and returns what its hooks say and what comes of it.
func tracedAll(rt http.RoundTripper, url string, change func(r *http.Request)) string {
	var mu sync.Mutex
	var events, written []string // http.Transport's two goroutines call hooks
	event := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(format, "Wrote") {
			written = append(written, fmt.Sprintf(format, args...))
			return
		}
		events = append(events, fmt.Sprintf(format, args...))
	}
	trace := &httptrace.ClientTrace{
		GetConn: func(addr string) { event("GetConn %s", addr) },
		GotConn: func(i httptrace.GotConnInfo) {
			event("GotConn %T reused %t, was idle %t, for a while %t", i.Conn, i.Reused, i.WasIdle, i.IdleTime > 0)
		},
		PutIdleConn:          func(err error) { event("PutIdleConn %v", err) },
		GotFirstResponseByte: func() { event("GotFirstResponseByte") },
		Got100Continue:       func() { event("Got100Continue") },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			event("Got1xxResponse %d %v", code, h)
			return nil
		},
		DNSStart:          func(i httptrace.DNSStartInfo) { event("DNSStart %v", i) },
		ConnectStart:      func(network, addr string) { event("ConnectStart %s %s", network, addr) },
		ConnectDone:       func(network, addr string, err error) { event("ConnectDone %s %s %v", network, addr, err) },
		TLSHandshakeStart: func() { event("TLSHandshakeStart") },
		TLSHandshakeDone: func(s tls.ConnectionState, err error) {
			event("TLSHandshakeDone %x %t %q %v", s.Version, s.DidResume, s.NegotiatedProtocol, err)
		},
		WroteHeaderField: func(name string, values []string) { event("WroteHeaderField %s %q", name, values) },
		WroteHeaders:     func() { event("WroteHeaders") },
		WroteRequest:     func(i httptrace.WroteRequestInfo) { event("WroteRequest %v", i) },
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", url, nil)
	if err != nil {
		return err.Error()
	}
	change(req)
	resp, err := rt.RoundTrip(req)
	event("RoundTrip %s %v", describe(err), chain(err))
	if err == nil {
		body, err := io.ReadAll(resp.Body)
		event("%s %s %v %q %v", resp.Proto, resp.Status, resp.Header, body, err)
		resp.Body.Close()
		if s := resp.TLS; s != nil {
			event("TLS %s %t %d", s.ServerName, s.DidResume, len(s.PeerCertificates))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	text := strings.Join(append(events, written...), "\n") + "\n"
	return strings.ReplaceAll(text, "*percore.Conn", "*net.TCPConn")
}

// chain returns the types of an error and those that it wraps, without net/http's own.
func chain(err error) (types []string) {
	for ; err != nil; err = errors.Unwrap(err) {
		if name := fmt.Sprintf("%T", err); !strings.HasPrefix(name, "http.") {
			types = append(types, name)
		}
	}
	return types
}

// connect makes a request a CONNECT. It asks for the end of the connection, which Go 1.26's net/http
// would use again.
func connect(change func(r *http.Request)) func(r *http.Request) {
	return func(r *http.Request) {
		change(r)
		r.Method, r.Close = "CONNECT", true
	}
}

// TestConnectOnce: a connection over which CONNECT went is not used again, whatever the answer was.
func TestConnectOnce(t *testing.T) {
	for _, status := range []string{"200 OK", "403 Forbidden"} {
		h := newHostile(t, func(c net.Conn, _ string) bool {
			_, err := io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 5\r\n\r\nhello")
			return err == nil
		})
		tr := newTestTransport(t)
		for range 2 {
			if got := result(tr, "CONNECT", h.url()); !strings.HasPrefix(got, status) {
				t.Error(got)
			}
		}
		if n := h.Accepted(); n != 2 {
			t.Errorf("%s: got %d connections, want 2", status, n)
		}
	}
}

// TestTunnel: the body of a CONNECT goes to the server as it is, and at once, while the body of the
// answer is what comes back.
func TestTunnel(t *testing.T) {
	for _, header := range []string{"", "Content-Length: 7\r\n"} {
		both(t, plainBase, func(t *testing.T, rt http.RoundTripper) string {
			h := newHostile(t, func(c net.Conn, _ string) bool {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\nfirst ", header)
				_, _ = io.CopyN(c, c, 3)
				return false
			})
			body, sent := io.Pipe()
			defer sent.Close()
			req := newGet(t, h.url())
			req.Method, req.URL.Path, req.Host, req.Body, req.ContentLength = http.MethodConnect, "", "far:1", body, -1
			resp, err := rt.RoundTrip(req)
			if err != nil {
				return describe(err)
			}
			defer resp.Body.Close()
			first := make([]byte, len("first "))
			_, err = io.ReadFull(resp.Body, first)
			_, _ = io.WriteString(sent, "abc")
			rest, endErr := io.ReadAll(resp.Body)
			resp.Body.Close()
			h.End()
			return fmt.Sprintf("%q %v, %q %v, %q", first, err, rest, endErr, h.requests)
		})
	}
}

// TestRetries: a server may end an idle connection while a request is on its way. The request is sent
// again if its body can be, and if it may reach the server twice, unlike a POST.
func TestRetries(t *testing.T) {
	body := strings.Repeat("body", 5000) // another goroutine sends it
	for _, method := range []string{"GET", "PUT", "DELETE", "POST", "OPTIONS"} {
		for _, key := range []string{"Other", "Idempotency-Key", "X-Idempotency-Key"} {
			for _, once := range []bool{false, true} {
				both(t, plainBase, func(t *testing.T, rt http.RoundTripper) string {
					var n atomic.Int64
					h := newHostile(t, func(c net.Conn, request string) bool {
						return n.Add(1)%2 == 1 && answerHello(c, request)
					})
					_ = result(rt, "GET", h.url())
					req, _ := http.NewRequest(method, h.url(), strings.NewReader(body))
					if once {
						req.GetBody = nil
					}
					req.Header.Set(key, "k")
					resp, err := rt.RoundTrip(req)
					if err == nil {
						resp.Body.Close()
					}
					h.End()
					return fmt.Sprint(err == nil, h.requests)
				})
			}
		}
	}
}

// TestPassedOn: requests that net/http has to look at more closely go to it unchanged. It refuses
// these while it writes them, with one of several errors.
func TestPassedOn(t *testing.T) {
	tr := newTestTransport(t)
	for name, change := range map[string]func(r *http.Request){
		"control character":   func(r *http.Request) { r.URL.RawQuery = "a\x7fb" },
		"line break":          func(r *http.Request) { r.URL.RawQuery = "a\r\nb" },
		"length without body": func(r *http.Request) { r.ContentLength = 5 },
		"shorter": func(r *http.Request) {
			setBody(r, strings.NewReader("hello"))
			r.ContentLength = 7
		},
		"longer": func(r *http.Request) {
			setBody(r, strings.NewReader("hello"))
			r.ContentLength = 3
		},
		"bad trailer":     func(r *http.Request) { r.Trailer = http.Header{"content-length": nil} },
		"invalid trailer": func(r *http.Request) { r.Trailer = http.Header{"A": {"\n"}} },
		"upgrade to another protocol over HTTP/2": func(r *http.Request) {
			r.URL.Scheme = "https"
			r.Header.Set("Upgrade", "h2c")
		},
		"CONNECT over HTTP/2": func(r *http.Request) {
			r.URL.Scheme = "https"
			r.Method = "CONNECT"
		},
	} {
		req := newGet(t, "http://127.0.0.1/")
		change(req)
		if new(call).prepare(tr, req) == served {
			t.Errorf("%s: the request is served here", name)
		}
	}
}

// TestEngineOff: without the engine the base serves all requests.
func TestEngineOff(t *testing.T) {
	t.Setenv("PERCOREDEBUG", "engine=net")
	tr := newTestTransport(t)
	h := newHostile(t, says("HTTP/1.1 204 No Content\r\n\r\n", true))
	if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "204") {
		t.Error(got)
	}
	if tr.Stats().Requests != 0 {
		t.Error("the request was served here")
	}
}
