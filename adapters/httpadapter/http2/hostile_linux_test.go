//go:build !percore_net

package http2

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// hostile is a server that answers each request as a function says. It keeps the bytes of requests.
type hostile struct {
	*testnet.Server
	overTLS bool

	mu       sync.Mutex
	requests []string
}

func newHostile(t testing.TB, play func(c net.Conn, request string) (keep bool)) *hostile {
	t.Helper()
	return newHostileOver(t, nil, play)
}

// newHostileOver makes a server with TLS, unless config is nil.
func newHostileOver(t testing.TB, config *tls.Config, play func(c net.Conn, request string) (keep bool)) *hostile {
	t.Helper()
	return newHostileOn(t, listen(t), config, play)
}

func newHostileOn(t testing.TB, ln net.Listener, config *tls.Config, play func(c net.Conn, request string) (keep bool)) *hostile {
	t.Helper()
	h := &hostile{overTLS: config != nil}
	h.Server = testnet.Serve(t, ln, func(c net.Conn) {
		if config != nil {
			c = tls.Server(c, config)
			defer c.Close()
		}
		for br := bufio.NewReader(c); ; {
			request, err := readRequest(br)
			if err != nil {
				return
			}
			h.mu.Lock()
			h.requests = append(h.requests, request)
			h.mu.Unlock()
			if !play(c, request) {
				return
			}
		}
	})
	return h
}

// says returns a play in which the server gives each request the same answer, and keeps the connection
// or not.
func says(answer string, keep bool) func(c net.Conn, request string) bool {
	return func(c net.Conn, _ string) bool {
		_, err := io.WriteString(c, answer)
		return keep && err == nil
	}
}

func (h *hostile) url() string { return testnet.URL(h, h.overTLS, "/") }

func listen(t testing.TB) net.Listener {
	t.Helper()
	return testnet.Listen(t, net.Listen, testnet.TCP4)
}

// readRequest returns the bytes of a request, whose body may have a Content-Length, or chunks.
func readRequest(br *bufio.Reader) (string, error) {
	var b strings.Builder
	length := 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		b.WriteString(line)
		_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
		if line == "\r\n" {
			break
		}
	}
	if strings.Contains(b.String(), "Transfer-Encoding: chunked") {
		// The suffix first: each byte of a long body would be a search through all before it.
		for !strings.HasSuffix(b.String(), "\r\n\r\n") || !strings.Contains(b.String(), "\r\n0\r\n") {
			c, err := br.ReadByte()
			if err != nil {
				return "", err
			}
			b.WriteByte(c)
		}
	}
	_, err := io.CopyN(&b, br, int64(length))
	return b.String(), err
}

// result is what a call has come to, as text.
func result(rt http.RoundTripper, method, url string) string {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "error: " + testnet.WithoutPorts(err.Error())
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if same := resp.Request == req; !same {
		return "another request"
	}
	s := fmt.Sprintf("%s %d %s %d.%d %v length %d %v close %t uncompressed %t trailer %v body %q",
		resp.Status, resp.StatusCode, resp.Proto, resp.ProtoMajor, resp.ProtoMinor, resp.Header,
		resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Uncompressed, resp.Trailer, body)
	if err != nil {
		s += " error: " + testnet.WithoutPorts(err.Error())
	}
	return s
}

// quiet discards what is logged during a test.
func quiet(t testing.TB) {
	w := log.Writer()
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(w) })
}

// tries is how often a comparison with http.Transport may go wrong. That has timeouts of its own: on a
// slow computer it doesn't use a connection again if its goroutine that writes is late by 50 ms.
const tries = 10

// equal calls f until it has returned the same text as got and as want, maybe in different calls.
func equal(f func() (got, want string)) (got, want string, ok bool) {
	var all, wanted []string
	for range tries {
		got, want = f()
		all, wanted = append(all, got), append(wanted, want)
		if slices.Contains(all, want) || slices.Contains(wanted, got) {
			return got, want, true
		}
	}
	return got, want, false
}

// played are answers of each framing, and with each oddity.
var played = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\n wo\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nbad\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 199 X\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\n\r\nmore",
	"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
	"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 2x0 OK\r\n\r\n",
	"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
	"garbage",
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n" + hello,
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n19\r\n" + hello + "\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
}

// hello is "hello", compressed.
const hello = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00"

// TestSameResult plays each beginning of each answer, and then closes the connection: the result is
// http.Transport's.
func TestSameResult(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testSameResult(t, false, 1) })
	t.Run("TLS", func(t *testing.T) { testSameResult(t, true, 5) }) // handshakes take time
}

// testSameResult cuts answers at each step-th byte.
func testSameResult(t *testing.T, secure bool, step int) {
	quiet(t)
	server, ours, base := secured(t, secure)
	var answer string
	h := newHostileOver(t, server, says(answer, false))
	for _, p := range played {
		for _, method := range []string{"GET", "HEAD"} {
			for n := len(p); n >= 0; n -= step {
				answer = p[:n]
				ours.CloseIdleConnections()
				base.CloseIdleConnections() // it would take what is left behind this answer for the next one
				got, want := result(ours, method, h.url()), result(base, method, h.url())
				if got != want {
					t.Fatalf("%s, answer %q:\ngot  %s\nwant %s", method, answer, got, want)
				}
			}
		}
	}
}

// FuzzSameResult is TestSameResult with any answer, cut anywhere.
func FuzzSameResult(f *testing.F) { fuzzSameResult(f, false) }

// FuzzSameTLSResult is the same over TLS, where the cut is between two records.
func FuzzSameTLSResult(f *testing.F) { fuzzSameResult(f, true) }

func fuzzSameResult(f *testing.F, secure bool) {
	quiet(f)
	for i, p := range played {
		f.Add(p, i%3 == 0, uint(i))
	}
	var pieces atomic.Pointer[[2]string]
	server, ours, base := secured(f, secure)
	h := newHostileOver(f, server, func(c net.Conn, _ string) bool {
		for _, p := range pieces.Load() {
			_, _ = io.WriteString(c, p)
		}
		return false
	})
	f.Fuzz(func(t *testing.T, p string, isHead bool, at uint) {
		method := "GET"
		if isHead {
			method = "HEAD"
		}
		at %= uint(len(p) + 1)
		pieces.Store(&[2]string{p[:at], p[at:]})
		ours.CloseIdleConnections()
		base.CloseIdleConnections() // it would take what is left behind this answer for the next one
		got, want := result(ours, method, h.url()), result(base, method, h.url())
		if got != want {
			t.Fatalf("%s, answer %q:\ngot  %s\nwant %s", method, p, got, want)
		}
	})
}

// secured returns the configuration of a server, which is nil in clear, and two transports for it.
func secured(t testing.TB, secure bool) (server *tls.Config, ours *Transport, base *http.Transport) {
	t.Helper()
	newBase := func() *http.Transport { return &http.Transport{MaxIdleConnsPerHost: 100} }
	if secure {
		var client *tls.Config
		server, client = testnet.TLS(t)
		client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		newBase = func() *http.Transport {
			return &http.Transport{MaxIdleConnsPerHost: 100, TLSClientConfig: client.Clone()}
		}
	}
	ours, base = New(newBase()), newBase()
	t.Cleanup(ours.CloseIdleConnections)
	t.Cleanup(base.CloseIdleConnections)
	return server, ours, base
}
