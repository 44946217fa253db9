package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// answers are the seeds of the comparison: what servers send, and what attackers do.
var answers = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\nX: y\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: A, B\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\n\r\nold",
	"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
	"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 20 OK\r\n\r\n",
	"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 2x0 X\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
	"HTTP/1.1 200 OK\r\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA: \x01\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA: \x80\xff\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nset-cookie: b\r\nSet-Cookie: c\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nPragma: no-cache\r\nCache-Control: private\r\npragma: x\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nX-eMPTY:\r\nX-Spaces: \t a \t\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1",
	"HTTP/1.1 500 Internal Server Error\r\nServer: x\r\n\r",
	"HTTP/2.0 200 OK\r\n\r\n",
	"ICY 200 OK\r\n\r\n",
	"",
}

// checkSameAnswer compares Answer with http.ReadResponse for the bytes p.
func checkSameAnswer(t *testing.T, p string, method string) {
	t.Helper()
	req := &http.Request{Method: method}
	var a Answer
	if a.Scan([]byte(p), method == http.MethodHead) != Plain {
		return
	}
	br := bufio.NewReaderSize(strings.NewReader(p), max(16, len(p)))
	want, err := http.ReadResponse(br, req)
	if err != nil {
		t.Fatalf("%q was taken, and net/http says %v", p, err)
	}
	if consumed := len(p) - br.Buffered(); consumed != a.Bytes {
		t.Fatalf("%q: the header ends at %d, net/http's at %d", p, a.Bytes, consumed)
	}
	got := new(http.Response)
	copied := []byte(p)
	a.Response(copied, req, got)
	clear(copied)
	got.Body = want.Body
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %+v, want %+v", p, got, want)
	}
	if isEmpty := want.Body == http.NoBody; isEmpty != (a.Body == Empty) {
		t.Fatalf("%q: got framing %d, and net/http's body is empty: %t", p, a.Body, isEmpty)
	}
	rest := p[a.Bytes:]
	var body []byte
	switch a.Body {
	case Chunked:
		return // not read here
	case Counted:
		body = []byte(rest[:min(len(rest), int(min(a.ContentLength, 1<<30)))])
	case UntilEnd:
		body = []byte(rest)
	}
	if wantBody, _ := io.ReadAll(want.Body); !bytes.Equal(body, wantBody) {
		t.Fatalf("%q: got body %q, want %q", p, body, wantBody)
	}
}

// FuzzSameAnswerHeader: an answer that Scan takes is what net/http makes of the same bytes.
func FuzzSameAnswerHeader(f *testing.F) {
	for _, p := range answers {
		f.Add(p, false)
		f.Add(p, true)
	}
	f.Fuzz(func(t *testing.T, p string, isHead bool) {
		method := http.MethodGet
		if isHead {
			method = http.MethodHead
		}
		checkSameAnswer(t, p, method)
	})
}

// TestAnswerBytes puts each byte at each place of an answer.
func TestAnswerBytes(t *testing.T) {
	const p = "HTTP/1.1 200 OK\r\nA-b: c d\r\nConnection: close\r\nContent-Length: 12\r\n\r\nhello"
	for i := range p {
		for c := range 256 {
			changed := []byte(p)
			changed[i] = byte(c)
			checkSameAnswer(t, string(changed), http.MethodGet)
			checkSameAnswer(t, p[:i]+string([]byte{byte(c)})+p[i:], http.MethodGet)
		}
	}
}

// TestAnswerIsIncomplete: the beginning of an answer that is taken is never taken, nor declined.
func TestAnswerIsIncomplete(t *testing.T) {
	const p = "HTTP/1.1 200 OK\r\nA-b: c d\r\nConnection: close\r\nContent-Length: 12\r\n\r\n"
	var a Answer
	for i := range p {
		if v := a.Scan([]byte(p[:i]), false); v != Incomplete {
			t.Errorf("%q: got %v, want %v", p[:i], v, Incomplete)
		}
	}
	if v := a.Scan([]byte(p), false); v != Plain || a.Bytes != len(p) {
		t.Errorf("got %v and %d bytes, want %v and %d", v, a.Bytes, Plain, len(p))
	}
}
