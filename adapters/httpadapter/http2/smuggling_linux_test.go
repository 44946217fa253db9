//go:build !percore_net

package http2

import (
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
)

const stale = "HTTP/1.1 200 OK\r\nX-Stale: 1\r\nContent-Length: 5\r\n\r\nstale"

// TestStaleBytes: bytes that come after an answer never become another. The server sends them
// with the answer's last piece, right after it, or once the connection is idle.
func TestStaleBytes(t *testing.T) {
	quiet(t)
	answers := []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	}
	for _, extra := range []string{stale, "\r\n", "x", "\n", "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		for _, answer := range answers {
			for _, when := range []string{"at once", "next", "idle"} {
				testStale(t, false, answer, extra, when)
				testStale(t, true, answer, extra, when)
			}
		}
	}
}

func testStale(t *testing.T, secure bool, answer, extra, when string) {
	server, tr, _ := secured(t, secure)
	idle, sent := make(chan bool), make(chan bool)
	var n atomic.Int64
	h := newHostileOver(t, server, func(c net.Conn, _ string) bool {
		if n.Add(1) > 1 {
			_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		switch when {
		case "at once":
			_, _ = io.WriteString(c, answer+extra)
		case "next":
			_, _ = io.WriteString(c, answer)
			_, _ = io.WriteString(c, extra)
		case "idle":
			_, _ = io.WriteString(c, answer)
			<-idle
			_, _ = io.WriteString(c, extra)
		}
		close(sent)
		return true
	})
	if got := result(tr, "GET", h.url()); strings.HasPrefix(got, "error") || strings.Contains(got, "stale") {
		t.Errorf("TLS %t, %s: %q, then %q: got %s", secure, when, answer, extra, got)
	}
	close(idle)
	<-sent
	if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "201 Created") {
		t.Errorf("TLS %t, %s: %q, then %q: the second request got %s", secure, when, answer, extra, got)
	}
	tr.CloseIdleConnections()
	h.End()
}

// TestStaleBytesAfterTrailer: bytes that come with the end of a trailer are noticed, even if that fills
// the buffer.
func TestStaleBytesAfterTrailer(t *testing.T) {
	quiet(t)
	const begin, size = 100, 4 << 10 // the trailer's beginning comes with the body
	trailer := "A: " + strings.Repeat("b", size-len("A: \r\n\r\n")) + "\r\n\r\n"
	more := make(chan bool)
	var n atomic.Int64
	h := newHostile(t, func(c net.Conn, request string) bool {
		if n.Add(1) > 1 {
			return answerHello(c, request)
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"+trailer[:begin])
		<-more
		_, _ = io.WriteString(c, trailer[begin:]+stale)
		return true
	})
	tr := newTestTransport(t)
	resp, err := tr.RoundTrip(newGet(t, h.url()))
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	testnet.GoBlocked(t, "the read of the trailer", func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	})
	more <- true
	if err := testnet.Receive(t, "the end of the body", read); err != nil || resp.Trailer.Get("A") == "" {
		t.Errorf("got %v, and the trailers %q", err, resp.Trailer)
	}
	if got := result(tr, "GET", h.url()); !strings.Contains(got, "hello") || h.Accepted() != 2 {
		t.Errorf("the next request got %s over one of %d connections, want 2", got, h.Accepted())
	}
}

// TestLeftBody: what is missing of an answer whose body was closed, or is wrong, is not taken for the
// next one.
func TestLeftBody(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for _, begin := range []string{"Content-Length: 1000\r\n\r\nhello", chunked + "99\r\nhello", chunked + "5\r\nhelloxx"} {
		left := make(chan bool)
		h := newHostile(t, func(c net.Conn, request string) bool {
			if strings.Contains(request, "/next") {
				return answerHello(c, request)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+begin)
			<-left
			_, _ = io.WriteString(c, stale)
			return true
		})
		t.Cleanup(func() { close(left) })
		tr := newTestTransport(t)
		resp, err := tr.RoundTrip(newGet(t, h.url()))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(resp.Body, make([]byte, 5)); n != 5 || err != nil {
			t.Errorf("got %d bytes, %v", n, err)
		}
		if strings.HasSuffix(begin, "xx") {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		resp.Body.Close()
		if got := testnet.Receive(t, "the next answer", inBackground(tr, h.url()+"next")); !strings.Contains(got, `body "hello"`) || h.Accepted() != 2 {
			t.Errorf("%q: got %s over one of %d connections", begin, got, h.Accepted())
		}
	}
}

// TestStaleBytesForWaiter: a call that waits doesn't get a connection on which bytes have come since its
// answer was read, which would be taken for the answer to it.
func TestStaleBytesForWaiter(t *testing.T) {
	quiet(t)
	sends := make(chan bool)
	var n atomic.Int64
	h := newHostile(t, func(c net.Conn, request string) bool {
		if !answerHello(c, request) || n.Add(1) > 1 {
			return true
		}
		<-sends
		_, err := io.WriteString(c, stale)
		return err == nil
	})
	tr := New(&http.Transport{MaxConnsPerHost: 1})
	defer tr.CloseIdleConnections()
	var conn net.Conn
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
	})
	resp, err := tr.RoundTrip(newGet(t, h.url()).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	b := resp.Body
	if n, err := io.ReadFull(b, make([]byte, 4)); n != 4 || err != nil {
		t.Fatal(n, err) // the rest is in the buffer: the answer was sent at once
	}
	second := make(chan string, 1)
	go func() { second <- result(tr, "GET", h.url()) }()
	awaitWaiting(t, tr, 1)
	sends <- true
	testnet.Eventually(t, "the bytes come", func() bool { return seam.HasUnread(conn) })
	if got, err := io.ReadAll(b); string(got) != "o" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got := <-second; !strings.Contains(got, "hello") || h.Accepted() != 2 {
		t.Errorf("the call that waited got %s over one of %d connections", got, h.Accepted())
	}
}
