//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A stall is a call whose server stops in the middle of its answer.
type stall struct {
	answer string // what comes of it
	header int    // the answer's header has so many bytes, with those before it
	ending string // of the call: a key of endings, "deadline", "Client.Timeout" or "ResponseHeaderTimeout"
	change func(req *http.Request)
	limit  time.Duration // of the two timeouts

	server, client *tls.Config // nil: in clear
	dial           dialFunc    // nil: the transport's own
}

// isInBody reports whether the whole header comes.
func (s *stall) isInBody() bool { return len(s.answer) >= s.header }

// stalls returns a call for each byte of an answer, and for each way to end it.
func stalls(answer string, header int, change func(req *http.Request)) (all []stall) {
	step := 1
	if race.Enabled {
		step = 3
	}
	for n := 0; n < len(answer); n += step {
		s := stall{answer: answer[:n], header: header, change: change}
		for _, s.ending = range []string{"cancel", "cause", "Cancel", "deadline", "Client.Timeout", "ResponseHeaderTimeout"} {
			if s.ending != "ResponseHeaderTimeout" || !s.isInBody() { // which ends no body
				all = append(all, s)
			}
		}
	}
	return all
}

// doomed is a context whose deadline passes when the test wants it.
type doomed struct {
	context.Context
	done chan struct{}
}

func (c doomed) Done() <-chan struct{} { return c.done }

func (c doomed) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// begin makes the request of the call, and returns what ends it, if no timeout does.
func (s *stall) begin(url string) (req *http.Request, end func()) {
	req, _ = http.NewRequest("GET", url, nil)
	if s.change != nil {
		s.change(req)
	}
	if s.ending == "deadline" {
		done := make(chan struct{})
		return req.WithContext(doomed{req.Context(), done}), func() { close(done) }
	}
	if ending := endings[s.ending]; ending != nil {
		return ending(req)
	}
	return req, func() {}
}

// call returns what the program sees of the call. It calls came when the header is there.
func (s *stall) call(rt http.RoundTripper, req *http.Request, came func()) string {
	c := &http.Client{Transport: rt}
	if s.ending == "Client.Timeout" {
		c.Timeout = s.limit
	}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Sprintf("%T %s", err, testnet.WithoutPorts(describe(err)))
	}
	defer resp.Body.Close()
	came()
	_, err = io.Copy(io.Discard, resp.Body)
	return fmt.Sprintf("%s; %T %s", resp.Status, err, testnet.WithoutPorts(describe(err)))
}

func (s *stall) base() *http.Transport {
	base := &http.Transport{TLSClientConfig: s.client, DialContext: s.dial}
	if s.ending == "ResponseHeaderTimeout" {
		base.ResponseHeaderTimeout = s.limit
	}
	return base
}

// settles is time for a client to read what has come. A client that takes longer isn't in the state that
// a test is about.
const settles = 5 * time.Millisecond

// play plays the call to ours, or to http.Transport.
func (s *stall) play(t *testing.T, isOurs bool) string {
	req, end := s.begin("")
	h := newHostileOver(t, s.server, func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(c, s.answer)
		if !s.isInBody() {
			time.AfterFunc(settles, end)
		}
		return true
	})
	defer h.End()
	u := newGet(t, h.url())
	req.URL, req.Host = u.URL, u.Host
	var rt http.RoundTripper = s.base()
	if isOurs {
		rt = New(s.base())
	}
	defer rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	return s.call(rt, req, func() {
		if s.isInBody() {
			time.AfterFunc(settles, end)
		}
	})
}

// TestStall: a call whose server stops at any byte of its answer ends as with http.Transport, by each
// deadline and each cancel.
func TestStall(t *testing.T) {
	quiet(t)
	interim := "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
	chunked := interim + "HTTP/1.1 200 OK\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n"
	counted := "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n"
	odd := "HTTP/1.1 200\r\nA: b\r\n c\r\nConnection: close\r\n\r\n"
	post := func(req *http.Request) {
		req.Method, req.ContentLength, req.Body = "POST", 4, io.NopCloser(strings.NewReader("body"))
	}
	stream := func(req *http.Request) {
		req.Method, req.ContentLength, req.Body = "POST", -1, io.NopCloser(onlyReader{strings.NewReader("body")})
	}
	all := stalls(chunked+"5\r\nhello\r\n3;x=y\r\n wo\r\n0\r\nA: b\r\nC: d\r\n\r\n", len(chunked), nil)
	all = append(all, stalls(counted+hello, len(counted), post)...)
	all = append(all, stalls(odd+"hello", len(odd), stream)...)
	server, client := testnet.TLS(t)
	for i := range len(all) / 13 { // handshakes take time, and connections of the user's own type
		s := all[i*13]
		wrapped := s
		wrapped.dial = dialWrapped
		s.server, s.client = server, client
		all = append(all, s, wrapped)
	}
	var calls sync.WaitGroup
	places := make(chan struct{}, 100)
	for _, s := range all {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			s.limit = 30 * time.Millisecond
			got, want, ok := equal(func() (got, want string) {
				s.limit *= 2
				return s.play(t, true), s.play(t, false)
			})
			if !ok {
				t.Errorf("%s at %q:\ngot  %s\nwant %s", s.ending, s.answer, got, want)
			}
		})
	}
	calls.Wait()
}

// TestSharedStall is TestStall over HTTP/2.
func TestSharedStall(t *testing.T) {
	quiet(t)
	p := frames.NewPeer(t, nil)
	p.Out = nil
	p.Headers(1, false, ":status", "103", "link", "x").Headers(1, false, ":status", "200", "trailer", "a")
	header := len(p.Out)
	p.Data(1, "hello", false).Data(1, " world", false).Headers(1, true, "a", "b")
	head := func(req *http.Request) { req.Method = "HEAD" }
	all := stalls(string(p.Out), header, nil)
	all = append(all, stalls(string(p.Out[:header+1]), header, head)...)
	for _, s := range all {
		s.limit = time.Second
		var texts [2]string
		for i := range texts {
			synctest.Test(t, func(t *testing.T) { texts[i] = s.playShared(t, i == 0) })
		}
		if texts[0] != texts[1] {
			t.Errorf("%s at %q:\ngot  %s\nwant %s", s.ending, s.answer, texts[0], texts[1])
		}
	}
}

// playShared is play over HTTP/2, in a bubble.
func (s *stall) playShared(t *testing.T, isOurs bool) string {
	base := s.base()
	base.Protocols = clearHTTP2()
	var server net.Conn
	base.DialContext = func(context.Context, string, string) (client net.Conn, err error) {
		client, server = net.Pipe()
		go serveStalled(t, server, s.answer)
		return client, nil
	}
	var rt http.RoundTripper = base
	if isOurs {
		rt = New(base)
	}
	req, end := s.begin("http://example.com/")
	result := make(chan string, 1)
	go func() { result <- s.call(rt, req, func() {}) }()
	synctest.Wait()
	end()
	text := <-result
	rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	server.Close()
	time.Sleep(time.Hour) // ends what has a timer
	synctest.Wait()
	return text
}

// serveStalled sends SETTINGS, and when a request has come the answer.
func serveStalled(t *testing.T, c net.Conn, answer string) {
	defer c.Close()
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		_, _ = c.Write([]byte{0, 0, 0, frames.Settings, 0, 0, 0, 0, 0})
	}()
	p, err := frames.NewServerPeer(t, c)
	if err != nil {
		return
	}
	for line := p.Next(); line != "end" && !strings.HasPrefix(line, "error"); line = p.Next() {
		if strings.HasPrefix(line, "headers") {
			go func() {
				<-greeted
				_, _ = io.WriteString(c, answer)
			}()
		}
	}
}
