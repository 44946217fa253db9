package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// slowParts are requests that never end. begin is sent at once, then drip, over and over; without it
// the client waits. Lines are sent as a whole: what net/http answers to a part of one is left to
// chance. in says what the server waits for: idle, a first byte or another request; header; or body,
// perhaps with the handler's own deadline.
var slowParts = []struct{ in, name, begin, drip string }{
	{"idle", "nothing", "", ""},
	{"idle", "nothing behind a request", request("/"), ""},
	{"idle", "three bytes behind a request", request("/") + "GET", ""},
	{"idle", "nothing behind an odd request", inChunks("0\r\n\r\n"), ""},
	{"idle", "nothing behind HTTP/1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ""},
	{"header", "the first line", "POST /", "x"},
	{"header", "a header", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX: ", "x"},
	{"header", "lines of a header", "POST / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n", "a:\r\n"},
	{"header", "a part of a first line behind a request", request("/") + "GET / HT", ""},
	{"header", "a header behind an odd request", inChunks("0\r\n\r\n") + "GET / HTTP/1.1\r\nHost: h\r\nExpect: ", "x"},
	{"body", "a body", posted("Upgrade: x", "Content-Length: 100000"), "b"},
	{"body", "a plain body behind a request", request("/") + posted("Content-Length: 100000"), "b"},
	{"body", "a body that is not read", doing("", "Content-Length: 100000"), "b"},
	{"body", "a body that may come", posted("Expect: 100-continue", "Content-Length: 100000"), ""},
	{"body", "a body that may come and is not read", doing("", "Expect: 100-continue", "Content-Length: 100000"), "b"},
	{"body", "no chunk", inChunks(""), ""},
	{"body", "a chunk's size", inChunks("1\r\nb\r\n1"), ""},
	{"body", "a chunk's extension", inChunks("1;"), "x"},
	{"body", "a chunk", inChunks("fffff\r\n"), "b"},
	{"body", "chunks", inChunks(""), "1\r\nb\r\n"},
	{"body", "chunks that are not read", doing("", "Transfer-Encoding: chunked"), "1\r\nb\r\n"},
	{"body", "a trailer", inChunks("0\r\nX: "), "x"},
	{"body", "trailers", inChunks("0\r\n"), "a:\r\n"},
	{"own", "a body with the handler's deadline", doing("Na", "Content-Length: 100000"), "b"},
}

// slowTimeout is the timeout that ends a slow request, and the handler's own.
const slowTimeout = 300 * time.Millisecond

// TestSlowRequests: a client that sends a request byte by byte, or none, gets what net/http gives it at
// each timeout, and its connection ends.
func TestSlowRequests(t *testing.T) {
	needParking(t)
	testnet.NoLeaks(t)
	var all sync.WaitGroup
	for _, limits := range []struct {
		header, request, idle time.Duration
		in                    string // the parts that they end
		overTLS               bool
	}{
		{slowTimeout, 3 * slowTimeout, slowTimeout, "idle header body", false},
		{slowTimeout, 3 * slowTimeout, slowTimeout, "idle header body", true},
		{0, slowTimeout, 0, "idle header body", false},
		{0, slowTimeout, time.Hour, "header body", false},
		{time.Hour, 0, slowTimeout, "idle", true},
		{time.Hour, slowTimeout, 0, "body", false},
		{-1, slowTimeout, 0, "body", false},
		{0, time.Hour, 0, "own", false},
	} {
		for _, slow := range slowParts {
			if !strings.Contains(limits.in, slow.in) || slow.name == "nothing" && limits.header == time.Hour {
				continue // no byte of the first request comes in the time for its header
			}
			all.Go(func() {
				got, want := "", ""
				for factor := time.Duration(1); factor <= 16; factor *= 4 { // on a busy machine a short time may be over earlier
					pair := newPair(t, withAdapter, func(srv *http.Server) {
						srv.ReadHeaderTimeout, srv.ReadTimeout, srv.IdleTimeout = factor*limits.header, factor*limits.request, factor*limits.idle
						if limits.overTLS {
							srv.TLSConfig, _ = testnet.TLS(t)
						}
					})
					var other sync.WaitGroup
					other.Go(func() { got = pair.percore.playSlowly(slow.begin, slow.drip) })
					want = pair.net.playSlowly(slow.begin, slow.drip)
					other.Wait()
					if sameResult(got, want) {
						return
					}
				}
				t.Errorf("%s, %+v: got\n%s\nwant, as on package net,\n%s", slow.name, limits, got, want)
			})
		}
	}
	all.Wait()
}

// playSlowly sends bytes until the server ends the connection, and returns all that can be seen of it.
func (s *side) playSlowly(begin, drip string) string {
	from := s.clear()
	c := s.dial()
	defer c.Close()
	answers := receive(c)
	io.WriteString(c, begin)
	for answers.goesOn(15 * time.Millisecond) {
		io.WriteString(c, drip)
	}
	text := answers.all()
	c.Close()
	seen := testnet.WithoutPorts(s.outcome(text, from))
	return bytesPattern.ReplaceAllString(seen, `read "..."`)
}

// TestFloods: a request with as much of something as there can be costs no more memory than with
// net/http, counting all that is allocated while it is served.
func TestFloods(t *testing.T) {
	needParking(t)
	if testing.Short() || race.Enabled {
		t.Skip("takes a while, and the race detector allocates, too")
	}
	mib := func(text string) string { return strings.Repeat(text, (1<<20)/len(text)) }
	for _, flood := range []struct{ name, text string }{
		{"chunks", inChunks(strings.Repeat("1\r\nb\r\n", 20000) + "0\r\n\r\n")},
		{"extensions", inChunks(strings.Repeat("1000;"+strings.Repeat("x", 4000)+"\r\n"+strings.Repeat("b", 4096)+"\r\n", 250) + "0\r\n\r\n")},
		{"an endless extension", inChunks("1;" + mib("x"))},
		{"a long trailer", inChunks("0\r\nX: " + mib("x") + "\r\n\r\n")},
		{"many trailers", inChunks("0\r\n" + mib("a:\r\n") + "\r\n")},
		{"announced trailers", posted("Transfer-Encoding: chunked", "Trailer: "+mib("x,")[:1<<19]+"x") + "0\r\n\r\n"},
		{"commas", posted("Upgrade: "+mib(",")[:1<<19]+mib(",")[:1<<18]) + ""},
		{"options of Connection", posted("Connection: "+mib("x,")[:1<<19]+"x") + ""},
		{"short lines", "GET / HTTP/1.0\r\n" + mib("a:\r\n")[:1<<19] + "\r\n"},
		{"different short lines", "GET / HTTP/1.0\r\n" + differentLines(50000) + "\r\n"},
		{"a line without an end", "GET / HTTP/1.0\r\nX: " + mib("x") + mib("x") + "\r\n\r\n"},
		{"a first line without an end", "GET /" + mib("x") + mib("x") + " HTTP/1.0\r\n\r\n"},
		{"encodings", posted("Transfer-Encoding: "+mib("chunked,")[:1<<19]+"chunked") + "0\r\n\r\n"},
	} {
		t.Run(flood.name, func(t *testing.T) {
			pair := newPair(t, withAdapter, func(srv *http.Server) { srv.MaxHeaderBytes = 1 << 20 })
			script := &connectionScript{pieces: []piece{{text: flood.text}}, end: halfCloses}
			allocated := func(s *side) (bytes uint64) {
				for range 2 { // the first time has more to prepare
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					s.playScript(script)
					runtime.ReadMemStats(&after)
					if n := after.TotalAlloc - before.TotalAlloc; bytes == 0 || n < bytes {
						bytes = n
					}
				}
				return bytes
			}
			const factor, room = 1.25, 256 << 10
			got, net := allocated(pair.percore), allocated(pair.net)
			t.Logf("%d bytes, on package net %d", got, net)
			if float64(got) > factor*float64(net)+room {
				t.Errorf("got %d bytes allocated, want %d or a little more, as on package net", got, net)
			}
		})
	}
}

// bytesPattern matches what a handler has read: how much that is depends on when the timeout comes.
var bytesPattern = regexp.MustCompile(`read "[^"]*"`)

func differentLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X%d:\r\n", i)
	}
	return b.String()
}
