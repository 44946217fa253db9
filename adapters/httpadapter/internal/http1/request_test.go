package http1

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// limitBytes is the limit of the tests, small enough for a fuzzer to reach.
const limitBytes = 1 << 10

// requests are headers with the verdict that they must get. The later ones are the attacks of the
// literature on request smuggling: two readers of the same bytes that disagree on their end.
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

	{"nothing", "", Incomplete},
	{"part of a method", "GE", Incomplete},
	{"part of a target", "GET /abc", Incomplete},
	{"part of a version", "GET / HTTP/1", Incomplete},
	{"part of a field", "GET / HTTP/1.1\r\nHost: h", Incomplete},
	{"no empty line", "GET / HTTP/1.1\r\nHost: h\r\n", Incomplete},
	{"half an empty line", "GET / HTTP/1.1\r\nHost: h\r\n\r", Incomplete},

	{"long", "GET /" + strings.Repeat("x", limitBytes) + " HTTP/1.1\r\nHost: h\r\n\r\n", TooLong},
	{"many fields", "GET / HTTP/1.1\r\nHost: h\r\n" + strings.Repeat("A: b\r\n", fieldsMax) + "\r\n", Fields},
	{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", Version},
	{"HTTP/1.10", "GET / HTTP/1.10\r\nHost: h\r\n\r\n", LineEnd},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Method},
	{"lower-case version", "GET / http/1.1\r\nHost: h\r\n\r\n", Version},
	{"no version", "GET /\r\nHost: h\r\n\r\n", Target},
	{"two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", Version},
	{"tab in the target", "GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"NUL in the target", "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"absolute form", "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"authority form", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", Method},
	{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", Target},
	{"empty line first", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", LineEnd},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00", Method},
	{"no host", "GET / HTTP/1.1\r\n\r\n", Host},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", Host},
	{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", Host},
	{"list of hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", Host},
	{"user in the host", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", Host},
	{"host without a port", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", Host},
	{"Expect", "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", Expect},
	{"Upgrade", "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Upgrade},
	{"Connection: Upgrade", "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\n\r\n", Option},
	{"h2c", "GET / HTTP/1.1\r\nHost: h\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", Upgrade},
	{"Pragma", "GET / HTTP/1.1\r\nHost: h\r\nPragma: no-cache\r\n\r\n", Pragma},
	{"Trailer", "GET / HTTP/1.1\r\nHost: h\r\nTrailer: A\r\n\r\n", Coding},

	{"CL.TE", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", Coding},
	{"TE.CL", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nZ\r\n0\r\n\r\n", Coding},
	{"TE.TE", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: x\r\n\r\n", Coding},
	{"chunk extension", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\r\n\"\r\nx\r\n0\r\n\r\n", Coding},
	{"TE in a hidden line", "POST / HTTP/1.1\r\nHost: h\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n", LineEnd},
	{"TE behind a vertical tab", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\x0bchunked\r\n\r\n", FieldByte},
	{"TE with a space", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", FieldName},
	{"CL.CL", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Length},
	{"equal lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", Length},
	{"list of lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na", Length},
	{"sign", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na", Length},
	{"minus", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\na", Length},
	{"underscore in a number", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1_0\r\n\r\na", Length},
	{"hexadecimal length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na", Length},
	{"empty length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", Length},
	{"length beyond 64 bits", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\na", Length},
	{"digits of another script", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \xd9\xa1\r\n\r\na", Length},
	{"bare LF", "GET / HTTP/1.1\nHost: h\n\n", LineEnd},
	{"bare LF at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", LineEnd},
	{"bare CR in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n", FieldByte},
	{"two CRs", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n\r\n", FieldByte},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: \x00\r\n\r\n", FieldByte},
	{"NUL in a name", "GET / HTTP/1.1\r\nHost: h\r\nA\x00: b\r\n\r\n", FieldName},
	{"folded line", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", FieldName},
	{"folded first line", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", FieldName},
	{"space before a colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", FieldName},
	{"no colon", "GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", FieldName},
	{"no name", "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", FieldName},
	{"name beyond ASCII", "GET / HTTP/1.1\r\nHost: h\r\n\xc3\xa4: b\r\n\r\n", FieldName},
}

// TestVerdicts: each header is taken, or handed over for the reason that it has.
func TestVerdicts(t *testing.T) {
	for _, r := range requests {
		var h Head
		if got := h.Scan([]byte(r.head), limitBytes); got != r.want {
			t.Errorf("%s: got %v, want %v: %q", r.name, got, r.want, r.head)
		}
	}
}

// TestByteByByte: the beginning of a header is incomplete at every length, or has the verdict of the
// whole already; and never is a beginning plain.
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

// asNetHTTP reads a request as net/http's server does, up to the call of the handler, and returns how
// many bytes it takes. net/http does the last steps itself in TestServer.
func asNetHTTP(p []byte) (*http.Request, int, error) {
	rest := bytes.NewReader(p)
	buf := bufio.NewReader(rest)
	r, err := http.ReadRequest(buf)
	if err != nil {
		return nil, 0, err
	}
	r.Header.Del("Host")
	return r, len(p) - rest.Len() - buf.Buffered(), nil
}

// asHere reads the request that h was scanned from.
func asHere(t *testing.T, h *Head, p []byte) *http.Request {
	t.Helper()
	scanned := bytes.Clone(p)
	r, ok := h.Request(context.Background(), scanned, new(Message))
	if !ok {
		return nil
	}
	for i := range scanned {
		scanned[i] = 'X' // a request that kept the memory shows it
	}
	return r
}

// describe renders all fields of a request that a parser sets.
func describe(r *http.Request) string {
	body := "no body"
	if r.ContentLength != 0 {
		body = "body"
	}
	return fmt.Sprintf("%q %#v %q %d.%d %#v %s %d %v %v %q %#v %q", r.Method, *r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor,
		r.Header, body, r.ContentLength, r.TransferEncoding, r.Close, r.Host, r.Trailer, r.RequestURI)
}

// wantSame checks that the two parsers agree about p, if this one takes it.
func wantSame(t *testing.T, p []byte) {
	t.Helper()
	var h Head
	if h.Scan(p, limitBytes) != Plain {
		return
	}
	got := asHere(t, &h, p)
	want, wantBytes, err := asNetHTTP(p)
	switch {
	case err != nil && got == nil:
	case err != nil:
		t.Errorf("%q: taken, and net/http refuses it: %v", p, err)
	case got == nil:
		t.Errorf("%q: no request, and net/http makes one: %s", p, describe(want))
	case describe(got) != describe(want):
		t.Errorf("%q:\n got %s\nwant %s", p, describe(got), describe(want))
	case h.Bytes != wantBytes:
		t.Errorf("%q: got %d bytes, want net/http's %d", p, h.Bytes, wantBytes)
	}
}

func TestSameRequest(t *testing.T) {
	for _, r := range requests {
		wantSame(t, []byte(r.head))
	}
}

// FuzzSameRequest: a request that is taken is net/http's, field by field and byte by byte.
func FuzzSameRequest(f *testing.F) {
	for _, r := range requests {
		f.Add([]byte(r.head))
	}
	f.Fuzz(wantSame)
}

// FuzzSameFields builds requests out of parts, since a fuzzer of bytes seldom gets a whole one.
func FuzzSameFields(f *testing.F) {
	f.Add("GET", "/a?b", "h:80", "Content-Length", "5", "X-Y", "z")
	f.Add("POST", "/%2f", "[::1]", "connection", "close", "Connection", "keep-alive")
	f.Add("HEAD", "/é\"<>", "a_b", "Transfer-Encoding", "chunked", "content-length", "007")
	f.Fuzz(func(t *testing.T, method, target, host, name1, value1, name2, value2 string) {
		wantSame(t, fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n%s: %s\r\n\r\nrest", method, target, host, name1, value1, name2, value2))
	})
}

// TestServer: a handler of net/http's server sees the same request.
func TestServer(t *testing.T) {
	for _, r := range requests {
		var h Head
		if h.Scan([]byte(r.head), limitBytes) != Plain {
			continue
		}
		got := asHere(t, &h, []byte(r.head))
		if want := served(t, r.head); describe(got) != describe(want) {
			t.Errorf("%s:\n got %s\nwant %s", r.name, describe(got), describe(want))
		}
	}
}

// served has net/http's server serve the bytes, and returns the request that its handler gets.
func served(t *testing.T, head string) *http.Request {
	t.Helper()
	requests := make(chan *http.Request, 16)
	client, server := net.Pipe()
	defer client.Close()
	listener := &oneConn{conn: server, closed: make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Clone(context.Background())
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(listener)
	}()
	defer func() {
		_ = srv.Close()
		<-ended
	}()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	go func() { _, _ = io.WriteString(client, head) }()
	select {
	case r := <-requests:
		return r
	case <-time.After(10 * time.Second):
		t.Fatalf("net/http does not serve %q", head)
		return nil
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func (l *oneConn) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// TestValuesApart: an append to one field's values does not reach another's.
func TestValuesApart(t *testing.T) {
	head := []byte("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n")
	var h Head
	if v := h.Scan(head, limitBytes); v != Plain {
		t.Fatalf("Scan: got %v, want plain", v)
	}
	r, _ := h.Request(context.Background(), head, new(Message))
	r.Header.Add("A", "more")
	want := http.Header{"A": {"1", "more"}, "B": {"2"}, "C": {"3"}}
	if !reflect.DeepEqual(r.Header, want) {
		t.Errorf("Header: got %v, want %v", r.Header, want)
	}
}

// TestVerdictNames: each verdict has a name of its own.
func TestVerdictNames(t *testing.T) {
	seen := make(map[string]Verdict)
	for v := range Verdicts {
		if other, ok := seen[v.String()]; ok || v.String() == "" {
			t.Errorf("verdicts %d and %d: got the same name %q", other, v, v)
		}
		seen[v.String()] = v
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, i := range []int{0, 1, 2} {
		head := []byte(requests[i].head)
		b.Run(requests[i].name, func(b *testing.B) {
			b.ReportAllocs()
			var h Head
			for b.Loop() {
				if h.Scan(head, 4<<10) != Plain {
					b.Fatal("not taken")
				}
				h.Request(context.Background(), head, new(Message))
			}
		})
	}
}
