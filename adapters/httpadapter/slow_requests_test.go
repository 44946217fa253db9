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

// slowParts are requests that never end. begin is sent at once, then drip, over and over; without it the
// client waits. Lines are sent as a whole: what net/http answers to a part of one is left to chance.
var slowParts = []struct{ name, begin, drip string }{
	{"the first line", "POST /", "x"},
	{"a header", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX: ", "x"},
	{"lines of a header", "POST / HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n", "a:\r\n"},
	{"a header behind an odd request", inChunks("0\r\n\r\n") + "GET / HTTP/1.1\r\nHost: h\r\nExpect: ", "x"},
	{"nothing behind an odd request", inChunks("0\r\n\r\n"), ""},
	{"nothing behind HTTP/1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ""},
	{"a body", posted("Upgrade: x", "Content-Length: 100000"), "b"},
	{"a body that is not read", strings.Replace(posted("Content-Length: 100000"), "Do: a\r\n", "", 1), "b"},
	{"a body that may come", posted("Expect: 100-continue", "Content-Length: 100000"), ""},
	{"a body that may come and is not read", strings.Replace(posted("Expect: 100-continue", "Content-Length: 100000"), "Do: a\r\n", "", 1), "b"},
	{"no chunk", inChunks(""), ""},
	{"a chunk's size", inChunks("1\r\nb\r\n1"), ""},
	{"a chunk's extension", inChunks("1;"), "x"},
	{"a chunk", inChunks("fffff\r\n"), "b"},
	{"chunks", inChunks(""), "1\r\nb\r\n"},
	{"chunks that are not read", strings.Replace(inChunks(""), "Do: a\r\n", "", 1), "1\r\nb\r\n"},
	{"a trailer", inChunks("0\r\nX: "), "x"},
	{"trailers", inChunks("0\r\n"), "a:\r\n"},
}

// TestSlowRequests: a client that sends an odd request byte by byte, or none, gets what net/http gives
// it at each timeout, and its connection ends.
func TestSlowRequests(t *testing.T) {
	needParking(t)
	testnet.NoLeaks(t)
	const timeout = 300 * time.Millisecond
	var all sync.WaitGroup
	for _, limits := range []struct{ header, request, idle time.Duration }{
		{header: timeout, request: 3 * timeout, idle: timeout},
		{request: timeout},
	} {
		for _, slow := range slowParts {
			pair := newPair(t, withAdapter, func(srv *http.Server) {
				srv.ReadHeaderTimeout, srv.ReadTimeout, srv.IdleTimeout = limits.header, limits.request, limits.idle
			})
			all.Go(func() {
				got, want := "", ""
				for range 3 { // a machine that is slower than the timeouts may cut a request off earlier
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
	for answers.goesOn(5 * time.Millisecond) {
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
