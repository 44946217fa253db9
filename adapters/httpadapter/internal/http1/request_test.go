package http1

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// limitBytes is the limit in the tests, small enough for a fuzzer to reach.
const limitBytes = 1 << 10

// requests are headers with the verdicts they must get. (httpadapter's TestSmuggling has attacks, in
// which two readers of the same bytes disagree on where they end.)
var requests = []struct {
	name, head string
	want       Verdict
}{
	{"least", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"curl", "GET /a/b?q=1 HTTP/1.1\r\nHost: example.org:8080\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n", Plain},
	{"browser", "GET /w/index.html?title=X&x=%20#f HTTP/1.1\r\nHost: www.example.org\r\nConnection: keep-alive\r\n" +
		"sec-ch-ua: \"Chromium\";v=\"156\"\r\nsec-ch-ua-mobile: ?0\r\nUpgrade-Insecure-Requests: 1\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: text/html,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n" +
		"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\nCookie: a=b; c=d\r\n\r\n", Plain},
	{"body", "POST /form HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", Plain},
	{"length of zero", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 000\r\n\r\n", Plain},
	{"close", "GET / HTTP/1.1\r\nHost: h\r\nconnection: CLOSE\r\n\r\n", Plain},
	{"keep-alive and close", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", Plain},
	{"pipelined", "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"repeated field", "GET / HTTP/1.1\r\nHost: h\r\nX-a: 1\r\nx-A: 2\r\nX-A: 3\r\nY: 4\r\n\r\n", Plain},
	{"spaces around a value", "GET / HTTP/1.1\r\nHost: \t h \t\r\nA: \t b  c\t \r\nEmpty:\r\nBlank: \t\r\n\r\n", Plain},
	{"bytes beyond ASCII", "GET / HTTP/1.1\r\nHost: h\r\nA: \xc3\xa4\xff\r\n\r\n", Plain},
	{"own method", "PURGE /x HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"escaped path", "GET /a%2fb/%c3%a4!'()* HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"empty query", "GET /? HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"two question marks", "GET /?? HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"path like an authority", "GET //evil.org/x HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"IPv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", Plain},
	{"underscore in a name", "GET / HTTP/1.1\r\nHost: h\r\nContent_Length: 5\r\n\r\n", Plain},

	{"fragment", "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"parameters of a segment", "GET /a;b=c/d:e@f HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"half an escape", "GET /% HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"wrong escape", "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"escaped NUL", "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"wrong escape in the query", "GET /?%zz HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"dots", "GET /../a/./%2e%2E//b HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"backslash", "GET /\\a HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"asterisk in a path", "GET /* HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"target beyond ASCII", "GET /\xc3\xa4?\xff HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"three slashes", "GET ///a HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"absolute form in a path", "GET /http://a/ HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"lower-case method", "get / HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"method of signs", "!#$%&'*+-.^_`|~ / HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"OPTIONS of a path", "OPTIONS /* HTTP/1.1\r\nHost: h\r\n\r\n", Plain},
	{"length of a GET", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", Plain},
	{"length of a HEAD", "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", Plain},
	{"longest length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999999\r\n\r\n", Plain},
	{"long name", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("n", 300) + "-n: v\r\n\r\n", Plain},
	{"signs in names", "GET / HTTP/1.1\r\nHost: h\r\n!#$%&'*+-.^_`|~: v\r\n-: 1\r\n--a: 2\r\n7a-b7C: 3\r\n\r\n", Plain},
	{"names in any case", "gEt / HTTP/1.1\r\nhOST: h\r\ncontent-LENGTH: 0\r\nx-a: 1\r\nX-a: 2\r\netag: 3\r\nwww-authenticate: 4\r\n\r\n", Plain},
	{"names that share a bit", "GET / HTTP/1.1\r\nAb: 1\r\nHost: h\r\nAb: 2\r\nBa: 3\r\nXx: 4\r\nAb: 5\r\n\r\n", Plain},
	{"many plain fields", "GET / HTTP/1.1\r\n" + manyFields(fieldsMax-1) + "Host: h\r\n\r\n", Plain},
	{"tab in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: 1234567\t90123456\t\r\n\r\n", Plain},
	{"cookies", "GET / HTTP/1.1\r\nHost: h\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n", Plain},
	{"TE", "GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n", Plain},
	{"Keep-Alive", "GET / HTTP/1.1\r\nHost: h\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n\r\n", Plain},
	{"underscore in a host", "GET / HTTP/1.1\r\nHost: a_b.c-d:0\r\n\r\n", Plain},
	{"coding with an underscore", "GET / HTTP/1.1\r\nHost: h\r\nTransfer_Encoding: chunked\r\n\r\n", Plain},
	{"Pragma", "GET / HTTP/1.1\r\nHost: h\r\npragma:  no-cache \r\n\r\n", Plain},
	{"Pragma and Cache-Control", "GET / HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\ncache-control: max-age=1\r\n\r\n", Plain},
	{"another Pragma first", "GET / HTTP/1.1\r\nHost: h\r\nPragma: No-Cache\r\nPragma: no-cache\r\n\r\n", Plain},
	{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", Plain},
	{"HTTP/1.0 kept", "POST / HTTP/1.0\r\nHost: h\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na", Plain},
	{"HTTP/1.0 kept and closed", "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", Plain},
	{"HTTP/1.0 that expects", "POST / HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", Plain},
	{"Expect", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n", Plain},
	{"Expect without a body", "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", Plain},
	{"chunks", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", Plain},
	{"chunks of a GET", "GET / HTTP/1.1\r\nA: b\r\ntransfer-encoding: chunked\r\nHost: h\r\nConnection: close\r\n\r\n0\r\n\r\n", Plain},
	{"chunk extension", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\r\n\"\r\nx\r\n0\r\n\r\n", Plain},

	{"nothing", "", Incomplete},
	{"part of a method", "GE", Incomplete},
	{"part of a target", "GET /abc", Incomplete},
	{"part of a version", "GET / HTTP/1", Incomplete},
	{"part of a field", "GET / HTTP/1.1\r\nHost: h", Incomplete},
	{"no empty line", "GET / HTTP/1.1\r\nHost: h\r\n", Incomplete},
	{"half an empty line", "GET / HTTP/1.1\r\nHost: h\r\n\r", Incomplete},

	{"long", "GET /" + strings.Repeat("x", limitBytes) + " HTTP/1.1\r\nHost: h\r\n\r\n", TooLong},
	{"many fields", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", fieldsMax) + "\r\n", Fields},
	{"HTTP/1.00", "GET / HTTP/1.00\r\nHost: h\r\n\r\n", LineEnd},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Method},
	{"no version", "GET /\r\nHost: h\r\n\r\n", Target},
	{"tab in the target", "GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"absolute form", "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"authority form", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"empty line first", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", LineEnd},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00", Method},
	{"no host", "GET / HTTP/1.1\r\n\r\n", Host},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", Host},
	{"list of hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", Host},
	{"host without a port", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", Host},
	{"two expectations", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", Expect},
	{"list of expectations", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue, x\r\nContent-Length: 5\r\n\r\n", Expect},
	{"HTTP/1.0 without a host", "GET / HTTP/1.0\r\n\r\n", Host},
	{"chunks over HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Coding},
	{"chunks with a trailer", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\n\r\n", Coding},
	{"Upgrade", "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Upgrade},
	{"Connection: Upgrade", "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n\r\n", Option},
	{"h2c", "GET / HTTP/1.1\r\nHost: h\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", Upgrade},
	{"Trailer", "GET / HTTP/1.1\r\nHost: h\r\nTrailer: A\r\n\r\n", Coding},

	{"CL.TE", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", Coding},
	{"CL.CL", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Length},
	{"bare LF", "GET / HTTP/1.1\nHost: h\n\n", LineEnd},
	{"bare LF at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", LineEnd},
	{"folded line", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", FieldName},
	{"space before a colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", FieldName},
	{"DEL in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: 12345\x7f789\r\n\r\n", FieldByte},
	{"escape in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: 1234567890\x1b\r\n\r\n", FieldByte},
	{"tab before a colon", "GET / HTTP/1.1\r\nHost: h\r\nA\t: b\r\n\r\n", FieldName},
	{"space first", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"method beyond ASCII", "G\xc3\x8bT / HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"method with a slash", "GET/ / HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"tab before the version", "GET /\tHTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"two spaces before the version", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n", Version},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", Version},
	{"HTTP/01.1", "GET / HTTP/01.1\r\nHost: h\r\n\r\n", Version},
	{"DEL in the target", "GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"CR in the target", "GET /\ra HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"query only", "GET ?a HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"fragment only", "GET #a HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"absolute form of another host", "GET http://a@b:80/ HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"CONNECT of a path", "CONNECT /_goRPC_ HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"host beyond ASCII", "GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", Host},
	{"host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Host},
	{"port of letters", "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", Host},
	{"two ports", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", Host},
	{"open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Host},
	{"zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n", Host},
	{"escape in the host", "GET / HTTP/1.1\r\nHost: a%2eb\r\n\r\n", Host},
	{"empty host and another", "GET / HTTP/1.1\r\nHost:\r\nHost: a\r\n\r\n", Host},
	{"one digit too many", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0000000000000001\r\n\r\na", Length},
	{"empty option", "GET / HTTP/1.1\r\nHost: h\r\nConnection:\r\n\r\n", Option},
	{"close among options", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, TE\r\n\r\n", Option},
	{"other expectation", "GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", Expect},
	{"empty expectation", "GET / HTTP/1.1\r\nHost: h\r\nExpect:\r\n\r\n", Expect},
}

// TestVerdicts: each header is taken, or declined for the right reason.
func TestVerdicts(t *testing.T) {
	for _, r := range requests {
		var h Head
		if got := h.Scan([]byte(r.head), limitBytes); got != r.want {
			t.Errorf("%s: got %v, want %v: %q", r.name, got, r.want, r.head)
		}
	}
}

// TestByteByByte: the beginning of a header is incomplete at every length, or already has the
// verdict of the whole header. A beginning is never plain.
func TestByteByByte(t *testing.T) {
	for _, r := range requests {
		var h Head
		end := len(r.head)
		if h.Scan([]byte(r.head), limitBytes) == Plain {
			end = h.Bytes
		}
		for n := range end {
			got := h.Scan([]byte(r.head[:n]), limitBytes)
			if got != Incomplete && (got == Plain || got != r.want) {
				t.Errorf("%s: after %d bytes of %q: got %v, want incomplete or %v", r.name, n, r.head, got, r.want)
				break
			}
		}
	}
}

// manyFields returns n lines, each with a different name.
func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X%d: %d\r\n", i, i)
	}
	return b.String()
}

// asHere reads the request that h was scanned from, or returns nil if there is no request.
func asHere(h *Head, p []byte) *http.Request {
	scanned := bytes.Clone(p)
	r := new(http.Request)
	if !h.Request(context.Background(), scanned, r) {
		return nil
	}
	for i := range scanned {
		scanned[i] = 'X' // a request that kept the memory would show it
	}
	return r
}

// describe renders all fields of a request that the parser decides on. For the body, it shows only
// whether there is one.
func describe(r *http.Request) string {
	var b strings.Builder
	v := reflect.ValueOf(*r)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported() || f.Name == "RemoteAddr":
		case f.Name == "Body":
			fmt.Fprintf(&b, " none=%v", r.Body == http.NoBody)
		case f.Name == "URL":
			fmt.Fprintf(&b, " %#v", *r.URL)
		default:
			fmt.Fprintf(&b, " %s=%#v", f.Name, v.Field(i).Interface())
		}
	}
	return b.String()
}

// netHTTP is a net/http server that reports which requests its handler gets.
type netHTTP struct {
	conns pipes
	srv   *http.Server
	ended sync.WaitGroup
	limit int // of the headers that the test compares, in bytes
}

// requestKey is the context key of the channel that receives a connection's requests.
type requestKey struct{}

// servedConn is a connection to netHTTP.
type servedConn struct {
	net.Conn
	requests chan *http.Request
}

// startNetHTTP starts a server, after set has changed its settings.
func startNetHTTP(t testing.TB, set ...func(*http.Server)) *netHTTP {
	s := &netHTTP{conns: make(pipes), limit: limitBytes}
	s.srv = &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, requestKey{}, c.(servedConn).requests)
		},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case r.Context().Value(requestKey{}).(chan *http.Request) <- r:
			default: // not the first one
			}
			panic(http.ErrAbortHandler)
		}),
	}
	for _, set := range set {
		set(s.srv)
	}
	s.ended.Go(func() { _ = s.srv.Serve(s.conns) })
	t.Cleanup(func() {
		_ = s.srv.Close()
		s.ended.Wait()
	})
	return s
}

// serve makes the server serve the bytes, and returns the first request that its handler gets, or
// nil if it refuses them.
func (s *netHTTP) serve(t testing.TB, p []byte) *http.Request {
	t.Helper()
	client, server := net.Pipe()
	conn := servedConn{server, make(chan *http.Request, 1)}
	s.conns <- conn
	var ended sync.WaitGroup
	closed := make(chan struct{})
	ended.Go(func() { _, _ = client.Write(p) })
	ended.Go(func() {
		_, _ = io.Copy(io.Discard, client)
		close(closed)
	})
	defer ended.Wait()
	defer client.Close()
	var r *http.Request
	select {
	case r = <-conn.requests:
	case <-closed:
		select {
		case r = <-conn.requests:
		default:
		}
	case <-time.After(time.Minute):
		t.Fatalf("net/http neither serves nor refuses %q", p)
	}
	return r
}

// consumed returns how many bytes net/http reads of a header.
func consumed(p []byte) int {
	rest := bytes.NewReader(p)
	buf := bufio.NewReader(rest)
	if _, err := http.ReadRequest(buf); err != nil {
		return -1
	}
	return len(p) - rest.Len() - buf.Buffered()
}

// wantSame checks that a handler gets the same request here as with net/http, if this package takes it.
func (s *netHTTP) wantSame(t *testing.T, p []byte) {
	t.Helper()
	var h Head
	if h.Scan(p, s.limit) != Plain {
		return
	}
	got, want := asHere(&h, p), s.serve(t, p)
	switch {
	case got == nil && want == nil:
	case want == nil:
		t.Errorf("%q: taken, and net/http refuses it", p)
	case got == nil:
		t.Errorf("%q: no request, and net/http makes one: %s", p, describe(want))
	case describe(got) != describe(want):
		t.Errorf("%q:\n got %s\nwant %s", p, describe(got), describe(want))
	case h.Bytes != consumed(p):
		t.Errorf("%q: got %d bytes, want net/http's %d", p, h.Bytes, consumed(p))
	}
}

func TestSameRequest(t *testing.T) {
	s := startNetHTTP(t)
	for _, r := range requests {
		s.wantSame(t, []byte(r.head))
	}
}

// TestSameLong: headers that take several chunks, where a chunk ends at each position of a field.
func TestSameLong(t *testing.T) {
	s := startNetHTTP(t)
	s.limit = 8 * chunkBytes
	const step = 97
	for bulk := 0; bulk < 2*chunkBytes; bulk += step {
		fill := strings.Repeat("f", bulk)
		for _, format := range []string{
			"GET /%s?q HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n",
			"GET /a%%2fb/%s?q HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n",
			"GET /p?%s HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n",
			"%sx / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n",
			"GET / HTTP/1.1\r\nx-fill: %s\r\nhost: h\r\na-b: c\r\n" + manyFields(20) + "x-fill: again\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nx%s-y: z\r\na-b: c\r\n" + manyFields(20) + "\r\n",
		} {
			s.wantSame(t, fmt.Appendf(nil, format, fill))
			s.wantSame(t, fmt.Appendf(nil, strings.Replace(format, "A: b", "a: "+strings.Repeat("g", 3*chunkBytes/4), 1), fill))
		}
	}
}

// TestSameBytes: each byte at each kind of place in a header, alone and among other bytes.
func TestSameBytes(t *testing.T) {
	s := startNetHTTP(t)
	for _, format := range []string{
		"%s / HTTP/1.1\r\nHost: h\r\n\r\n", "G%sT / HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET %s HTTP/1.1\r\nHost: h\r\n\r\n", "GET /%s HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /a%sb/c HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?%s HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /?a%sb HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.%s\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1%s\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: %s\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a%sb\r\n\r\n", "GET / HTTP/1.1\r\nHost: a:%s\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [%s]\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n%s: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nA%sa: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA: %s\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nA: b%sc\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA: 123%s5678\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nA: b\r%s\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1%s\r\n\r\nx",
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: close%s\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r%s\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: %schunked\r\n\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue%s\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked%s\r\n\r\n0\r\n\r\n", "GET / HTTP/1.0%s\r\nHost: h\r\n\r\n",
	} {
		for c := range 256 {
			s.wantSame(t, fmt.Appendf(nil, format, string([]byte{byte(c)})))
		}
	}
}

// FuzzSameRequest: a request that is taken equals net/http's, field by field and byte by byte.
func FuzzSameRequest(f *testing.F) {
	for _, r := range requests {
		f.Add([]byte(r.head))
	}
	s := startNetHTTP(f)
	f.Fuzz(func(t *testing.T, p []byte) { s.wantSame(t, p) })
}

// FuzzSameFields builds requests from parts, since a fuzzer of bytes seldom produces a complete one.
func FuzzSameFields(f *testing.F) {
	f.Add("GET", "/a?b", "h:80", "Content-Length", "5", "X-Y", "z")
	f.Add("POST", "/%2f", "[::1]", "connection", "close", "Connection", "keep-alive")
	f.Add("HEAD", "/é\"<>", "a_b", "Transfer-Encoding", "chunked", "content-length", "007")
	f.Add("CONNECT", "//a:b@c/;d#e", "a:0", "expect", "", "Pragma", "no-cache")
	f.Add("PUT", "/", "h", "Expect", "100-continue", "transfer-encoding", "Chunked")
	s := startNetHTTP(f)
	f.Fuzz(func(t *testing.T, method, target, host, name1, value1, name2, value2 string) {
		for _, version := range []string{"1", "0"} {
			s.wantSame(t, fmt.Appendf(nil, "%s %s HTTP/1.%s\r\nHost: %s\r\n%s: %s\r\n%s: %s\r\n\r\nrest", method, target, version, host, name1, value1, name2, value2))
		}
	})
}

// TestLimit: a header exactly as long as the limit is taken, and a longer one is not.
func TestLimit(t *testing.T) {
	head := []byte("GET /" + strings.Repeat("x", 500) + " HTTP/1.1\r\nHost: h\r\n\r\nbody")
	whole := len(head) - len("body")
	s := startNetHTTP(t, func(srv *http.Server) { srv.MaxHeaderBytes = whole })
	if s.serve(t, head) == nil {
		t.Errorf("net/http refuses a header of %d bytes, its limit", whole)
	}
	for limit, want := range map[int]Verdict{
		whole - 1: TooLong, whole: Plain, whole + 1: Plain, 10: TooLong, 0: TooLong,
	} {
		var h Head
		if got := h.Scan(head, limit); got != want {
			t.Errorf("limit of %d bytes, header of %d: got %v, want %v", limit, whole, got, want)
		}
	}
}

// TestFieldCount: from Go 1.27 on, net/http counts fields as Head.Fields does.
func TestFieldCount(t *testing.T) {
	const most = 4
	s := startNetHTTP(t, func(srv *http.Server) {
		limit := reflect.ValueOf(srv).Elem().FieldByName("MaxHeaderValueCount")
		if !limit.IsValid() {
			t.Skip("this version of Go has no limit")
		}
		limit.SetInt(most)
	})
	for n := range 8 {
		p := []byte("GET / HTTP/1.1\r\n" + strings.Repeat("A: b, c\r\n", n) + "Host: h\r\n\r\n")
		var h Head
		if v := h.Scan(p, limitBytes); v != Plain {
			t.Fatalf("%d fields: got %v, want plain", n, v)
		}
		if got, want := h.Fields <= most, s.serve(t, p) != nil; got != want {
			t.Errorf("%d fields: got %d, and net/http takes %d; it takes them: %v", n, h.Fields, most, want)
		}
	}
}

// TestValuesApart: appending to one field's values does not change another's.
func TestValuesApart(t *testing.T) {
	for _, fields := range []int{0, 1, fieldsFew - 2, fieldsFew - 1, fieldsFew, fieldsMany - 2, fieldsMany - 1, fieldsMany, fieldsMax - 3} {
		for _, length := range []int{1, chunkBytes} {
			head := []byte("GET / HTTP/1.1\r\nA: 1\r\nHost: h\r\n" + manyFields(fields) +
				"B: " + strings.Repeat("2", length) + "\r\n\r\n")
			var h Head
			if v := h.Scan(head, 2*chunkBytes); v != Plain {
				t.Fatalf("Scan: got %v, want plain", v)
			}
			var r http.Request
			h.Request(context.Background(), head, &r)
			want := r.Header.Clone()
			want["A"] = append(want["A"], "more")
			r.Header.Add("A", "more")
			if !reflect.DeepEqual(r.Header, want) {
				t.Errorf("Header of %d fields: got %v, want %v", fields, r.Header, want)
			}
		}
	}
}

// TestKept: a part of a request that a handler keeps holds little memory beyond itself, no matter
// how long the header is and where most of its bytes are.
func TestKept(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	const (
		n         = 50
		longBytes = 60_000
	)
	long := strings.Repeat("f", longBytes)
	for _, head := range []struct{ name, text string }{
		{"short", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"a chunk", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\nX-Fill: " +
			long[:chunkBytes-200] + "\r\n\r\n"},
		{"long field", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nX-Fill: " + long + "\r\nCookie: session=s\r\n\r\n"},
		{"long field first", "PURGE /p/q?x=1 HTTP/1.1\r\nx-fill: " + long + "\r\nhost: h.example\r\nx-key: k\r\ncookie: session=s\r\n\r\n"},
		{"long name", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\n" + long + ": k\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"many fields", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n" +
			strings.Repeat("X-Fill: "+long[:longBytes/40]+"\r\n", 40) + "\r\n"},
		{"many short fields", "PURGE /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n" +
			strings.Repeat("X-Fill: "+long[:500]+"\r\n", 40) + "\r\n"},
		{"long query", "PURGE /p/q?" + long + " HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"long path", "PURGE /" + long + "?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"long escaped path", "PURGE /%2f" + long + "?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"escaped path and long query", "PURGE /%c3%a4?" + long + " HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
		{"long method", long + " /p/q?x=1 HTTP/1.1\r\nHost: h.example\r\nX-Key: k\r\nCookie: session=s\r\n\r\n"},
	} {
		var h Head
		if v := h.Scan([]byte(head.text), 2*longBytes); v != Plain {
			t.Fatalf("%s: got %v, want plain", head.name, v)
		}
		for _, kept := range []struct {
			name string
			of   func(r *http.Request) string
		}{
			{"method", func(r *http.Request) string { return r.Method }},
			{"RequestURI", func(r *http.Request) string { return r.RequestURI }},
			{"path", func(r *http.Request) string { return r.URL.Path }},
			{"raw path", func(r *http.Request) string { return r.URL.RawPath }},
			{"query", func(r *http.Request) string { return r.URL.RawQuery }},
			{"host", func(r *http.Request) string { return r.Host }},
			{"value", func(r *http.Request) string { return r.Header["X-Key"][0] }},
			{"last name", func(r *http.Request) (last string) {
				for name := range r.Header {
					last = max(last, name)
				}
				return last
			}},
			{"cookie", func(r *http.Request) string {
				c, _ := r.Cookie("session")
				return c.Value
			}},
		} {
			var keep [n]string
			before := testnet.HeapBytes()
			for i := range keep {
				r := new(http.Request)
				h.Request(context.Background(), []byte(head.text), r)
				keep[i] = kept.of(r)
			}
			got := (testnet.HeapBytes() - before) / n
			self := len(keep[0])
			if most := self + self/4 + chunkBytes + 200; got > most { // the allocator rounds up
				t.Errorf("%s: a kept %s of %d bytes holds %d, want at most %d", head.name, kept.name, self, got, most)
			}
			runtime.KeepAlive(&keep)
		}
		var keep [n]*url.URL
		before := testnet.HeapBytes()
		for i := range keep {
			r := new(http.Request)
			h.Request(context.Background(), []byte(head.text), r)
			keep[i] = r.URL
		}
		self := 2*len(keep[0].RequestURI()) + int(unsafe.Sizeof(url.URL{}))
		if got, most := (testnet.HeapBytes()-before)/n, self+self/4+chunkBytes+400; got > most {
			t.Errorf("%s: a kept URL of %d bytes holds %d, want at most %d", head.name, self, got, most)
		}
		runtime.KeepAlive(&keep)
	}
}

// TestVerdictNames: each verdict has its own name.
func TestVerdictNames(t *testing.T) {
	seen := make(map[string]Verdict)
	for v := range Verdicts {
		if other, ok := seen[v.String()]; ok || v.String() == "" {
			t.Errorf("verdicts %d and %d: got the same name %q", other, v, v)
		}
		seen[v.String()] = v
	}
}
