package httpadapter

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

var (
	differCases = flag.Int("differ", 150, "how many connections TestSameAsNetHTTP plays")
	differSeed  = flag.Uint64("differseed", 1, "what TestSameAsNetHTTP draws them from; 0: chance")
)

// TestSameAsNetHTTP plays connections with random requests, pipelined and cut anywhere. It plays
// them to net/http on package net, and to the adapter. It compares the answers,
// how the connection ends, the states reported to ConnState, the log, and what handlers have seen.
// The connections are the same each time. To try others, use -differ=10000 -differseed=0.
func TestSameAsNetHTTP(t *testing.T) {
	needParking(t)
	seed := testnet.Drawn(t, *differSeed)
	const players = 12 // most of the time they wait for a server that lingers
	var all sync.WaitGroup
	for player := range players {
		r := rand.New(rand.NewPCG(seed, uint64(player)))
		differing := make([]*side, len(sides))
		for i, name := range sides {
			differing[i] = newDiffering(t, name)
		}
		all.Go(func() {
			for range *differCases / players {
				playSame(t, r, differing)
			}
		})
	}
	all.Wait()
}

func newDiffering(t *testing.T, name string) *side {
	return newSide(t, name, &http.Server{MaxHeaderBytes: 8192}, (*side).serveNoted)
}

// serveNoted notes what a handler sees of a request, and answers as the path says.
func (s *side) serveNoted(rw http.ResponseWriter, r *http.Request) {
	s.note("%s %s %s %s %v %d %v %v %v", r.Method, r.RequestURI, r.Proto, r.Host, r.Header, r.ContentLength, r.TransferEncoding, r.Close, r.Trailer)
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch path {
	case "echo":
		b, err := io.ReadAll(r.Body)
		s.note("read %q %v %v", b, err, r.Trailer)
		rw.Write(b)
	case "part":
		b := make([]byte, 3)
		n, err := io.ReadFull(r.Body, b)
		s.note("read %q %v", b[:n], err)
		io.WriteString(rw, "part")
	case "shut":
		s.note("closed %v", r.Body.Close())
		io.WriteString(rw, "shut")
	case "long":
		n, err := rw.Write(make([]byte, 5000))
		s.note("wrote %d %v", n, err)
	case "flush":
		io.WriteString(rw, "fl")
		s.note("flushed %v", http.NewResponseController(rw).Flush())
		io.WriteString(rw, "ush")
	case "bye":
		rw.Header().Set("Connection", "close")
	case "none":
		rw.WriteHeader(http.StatusNoContent)
	case "early":
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Set("Trailer", "X-T")
		io.WriteString(rw, "early")
		rw.Header().Set("X-T", "t")
	}
}

// playSame plays one connection on all sides.
func playSame(t *testing.T, r *rand.Rand, on []*side) {
	text, afterPOST := "", false
	for i := range 1 + r.IntN(6) {
		next := randomRequest(r)
		trimmed := strings.TrimLeft(next, "\r\n")
		if i > 0 && !afterPOST {
			next = trimmed // whether an empty line is skipped depends on the reads: see method
		}
		text, afterPOST = text+next, strings.HasPrefix(trimmed, "POST ")
	}
	halfClose := r.IntN(3) > 0
	if r.IntN(8) == 0 {
		text, halfClose = cutOff(text, r.IntN(len(text))), true
	} else if !halfClose {
		text += "GET /bye HTTP/1.1\r\nHost: h\r\n\r\n" // ends the connection at the latest
	}
	var cuts []int
	for range r.IntN(4) {
		cuts = append(cuts, r.IntN(len(text)+1))
	}
	var results []string
	for i, s := range on {
		got := s.playCut(text, cuts, halfClose)
		results = append(results, got)
		if i > 0 && !sameResult(got, results[0]) {
			t.Errorf("%s, %s, cut at %v, half-closed %t:\n%s\nwant, as on package net:\n%s", sides[i], testnet.Shortened(fmt.Sprintf("%q", text)), cuts, halfClose, testnet.Shortened(got), testnet.Shortened(results[0]))
		}
	}
}

// cutOff returns the first n bytes of text, or fewer: it leaves no header that ends shortly after
// the server's limit of 12 KiB. net/http does not count the part of a header, up to 4 KiB, that it
// has read together with the previous request. How large this part is depends on the reads.
func cutOff(text string, n int) string {
	const most = 6000 // of a field of 20,000
	text = text[:n]
	if long := n - len(strings.TrimRight(text, "l")); long > most {
		text = text[:n-long+most]
	}
	return text
}

// resetMark stands for a reset in a result. The kernel answers bytes after the last request with a
// reset, which may overtake the end of the answers.
const resetMark = "<reset>"

// sameResult compares results. If one of the streams was reset, the other may have more.
func sameResult(got, want string) bool {
	if got == want {
		return true
	}
	a, restA, resetA := strings.Cut(got, resetMark)
	b, restB, resetB := strings.Cut(want, resetMark)
	switch {
	case resetA && resetB:
		return restA == restB && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
	case resetA:
		return strings.HasPrefix(b, a) && strings.HasSuffix(b, restA)
	case resetB:
		return strings.HasPrefix(a, b) && strings.HasSuffix(a, restB)
	}
	return false
}

// playCut plays the client's side.
func (s *side) playCut(text string, cuts []int, halfClose bool) string {
	from := len(s.log.String())
	s.mu.Lock()
	s.seen = nil
	s.mu.Unlock()
	c := s.dial().(*net.TCPConn)
	defer c.Close()
	go func() {
		sent := 0
		for i := range len(text) {
			for _, cut := range cuts {
				if cut == i {
					io.WriteString(c, text[sent:i])
					sent = i
					time.Sleep(time.Millisecond)
				}
			}
		}
		io.WriteString(c, text[sent:])
		if halfClose {
			c.CloseWrite()
		}
	}()
	answers, err := io.ReadAll(c)
	end := ""
	if errors.Is(err, syscall.ECONNRESET) {
		end = resetMark
	} else if err != nil {
		end = err.Error()
	}
	// If a header can be parsed but is refused, StateActive is not reported: see the package's
	// comment.
	states := strings.Replace(s.statesUntilClosed(), "idle active closed", "idle closed", 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%s%s\nstates: %s\nhandler: %q\nlog: %q", undated(string(answers)), end, states, s.seen, testnet.WithoutPorts(s.log.String()[from:]))
}

// randomRequest returns a request that, most of the time, the fast path takes.
func randomRequest(r *rand.Rand) string {
	pick := func(usual string, odd ...string) string {
		if r.IntN(5) > 0 {
			return usual
		}
		return odd[r.IntN(len(odd))]
	}
	eol := pick("\r\n", "\r\n", "\r\n", "\n")
	method := pick("GET", "POST", "POST", "HEAD", "PUT", "OPTIONS", "get", "PRI", "DELETE")
	path := []string{"/echo", "/echo", "/part", "/shut", "/ignore", "/long", "/flush", "/bye", "/none", "/early"}[r.IntN(10)]
	target := path + pick("", "/?a=b", "/%41", "/%zz", "/%", "/a b", "/\x01", "/ü", "/?", "/?%zz", "//x")
	target = pick(target, target, target, "*", "http://h/echo", "")
	version := pick("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "http/1.1")
	lines := []string{pick("Host: h", "Host: h:80", "host: h", "Host:", "Host : h", "Host: a b", "X-No: host", "Host: h"+eol+"Host: i")}
	body := ""
	switch r.IntN(6) {
	case 0, 1:
		size := []int{0, 1, 5, 3000, 5000}[r.IntN(5)]
		body = strings.Repeat("b", size)
		lines = append(lines, pick(fmt.Sprint("Content-Length: ", size), fmt.Sprint("content-length:", size),
			fmt.Sprint("Content-Length: +", size), fmt.Sprintf("Content-Length: %d%sContent-Length: %[1]d", size, eol),
			fmt.Sprintf("Content-Length: 0%d", size)))
	case 2:
		lines = append(lines, pick("Transfer-Encoding: chunked", "Transfer-Encoding: identity", "transfer-encoding: Chunked",
			"Transfer-Encoding: chunked"+eol+"Content-Length: 3"))
		body = pick("3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n", "3;x=y\r\nabc\r\n0\r\nX-T: t\r\n\r\n", "zz\r\n")
	}
	long := false // at most one such field: see cutOff
	for range r.IntN(4) {
		line := pick("X-A: "+strings.Repeat("a", r.IntN(20)), "Connection: close", "Connection: keep-alive", "Connection: x, close",
			"Expect: 100-continue", "Expect: x", "Upgrade: y", "X-B: \x01", "X B: c", " folded", "Pragma: no-cache", "X-Long: "+strings.Repeat("l", 5000),
			"X-Long: "+strings.Repeat("l", 20000), "Trailer: X-T", "Cookie: a=b", "x-c:   d  \t", "Accept: é", ":")
		if isLong := strings.HasPrefix(line, "X-Long:"); !isLong || !long {
			lines, long = append(lines, line), long || isLong
		}
	}
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	text := pick("", "\r\n", "\n") + pick(method+" "+target+" "+version, method+"  "+target+" "+version, method+" "+target) + eol
	for _, line := range lines {
		text += line + eol
	}
	return text + eol + body
}
