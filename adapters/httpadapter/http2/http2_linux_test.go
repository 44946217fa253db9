//go:build !percore_net

package http2_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

var (
	http2Cases = flag.Int("http2differ", 300, "how many scripts TestTransportHTTP2SameAsNetHTTP plays")
	http2Seed  = flag.Uint64("http2seed", 1, "what TestTransportHTTP2SameAsNetHTTP draws them from; 0: chance")
)

// TestTransportHTTP2SameAsNetHTTP plays scripts of a hostile server of HTTP/2 and a client, to
// http.Transport and to ours. It compares what the client sees of each call, and what the server gets on
// each stream. The scripts are the same each time. To try others, use -http2differ=10000 -http2seed=0.
//
// A script runs in a bubble of testing/synctest, over connections in memory. So timeouts and the waits
// between retries take no time, and both sides act only when the other has nothing left to do.
func TestTransportHTTP2SameAsNetHTTP(t *testing.T) {
	seed := testnet.Drawn(t, *http2Seed)
	log.SetOutput(io.Discard) // net/http logs what the server does
	defer log.SetOutput(os.Stderr)
	compared := 0
	compare := func(seed uint64, i int) {
		t.Helper()
		play := func(wrap func(*http.Transport) http.RoundTripper) (s string) {
			synctest.Test(t, func(t *testing.T) {
				s = playHTTP2(t, rand.New(rand.NewPCG(seed, uint64(i))), wrap)
			})
			return s
		}
		want := play(func(base *http.Transport) http.RoundTripper { return base })
		var ours *httpadapter.Transport
		got := play(func(base *http.Transport) http.RoundTripper { ours = httpadapter.NewTransport(base); return ours })
		declined := len(ours.Stats().Declined) > 0 // the base has connections of its own
		if !declined {
			compared++
		}
		if got != want && !declined {
			t.Fatalf("script %d of %d: got\n%s\nwant\n%s", i, seed, got, want)
		}
	}
	compare(791000842375784770, 1895)  // a body behind HEAD, and then a reset
	compare(16497980771341715072, 297) // a reset, and then the end of the connection
	for i := range *http2Cases {
		compare(seed, i)
	}
	if compared < *http2Cases/2 {
		t.Errorf("%d of %d scripts were compared, want most", compared, *http2Cases)
	}
}

// playHTTP2 plays a script, and returns what client and server see.
func playHTTP2(t *testing.T, r *rand.Rand, wrap func(*http.Transport) http.RoundTripper) string {
	server := http2Script{settings: []uint32{4, 1 << 20}} // SETTINGS_INITIAL_WINDOW_SIZE
	base := &http.Transport{
		Protocols:              new(http.Protocols),
		MaxResponseHeaderBytes: 2000,
		ExpectContinueTimeout:  time.Second,
		ResponseHeaderTimeout:  time.Minute,
		IdleConnTimeout:        time.Hour,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			server.serve(t, theirs)
			return ours, nil
		},
	}
	base.Protocols.SetUnencryptedHTTP2(true)
	rt := wrap(base)
	var seen strings.Builder
	for n := range 1 + r.IntN(4) {
		server.next = drawAnswers(r)
		server.cuts = slices.ContainsFunc(server.next, func(a http2Answer) bool { return a.cut > 0 })
		fmt.Fprintf(&seen, "call %d\n%s", n, callHTTP2(r, rt, &server))
		time.Sleep(20 * time.Second) // the server may have something left to say
		synctest.Wait()
	}
	rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	server.close()
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	seen.WriteString(server.log())
	return seen.String()
}

// callHTTP2 makes a call, and returns what the client sees.
func callHTTP2(r *rand.Rand, rt http.RoundTripper, server *http2Script) string {
	var mu sync.Mutex
	var seen strings.Builder
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&seen, "\t"+format+"\n", args...)
	}
	var came bool // when is chance in net/http, as is WroteHeaders, if the answer is early
	failing := r.IntN(20) == 0
	trace := &httptrace.ClientTrace{
		// Not GetConn: for the same request net/http calls it once or twice.
		GotConn:              func(i httptrace.GotConnInfo) { note("got reused %t idle %t", i.Reused, i.WasIdle) },
		GotFirstResponseByte: func() { came = true },
		Got100Continue:       func() { note("100") },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			note("interim %d %v", code, h)
			if failing {
				return errors.New("no interim answers, please")
			}
			return nil
		},
	}
	ctx := context.Background()
	if r.IntN(3) > 0 {
		ctx = httptrace.WithClientTrace(ctx, trace)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	method := []string{"GET", "GET", "HEAD", "POST", "PUT", "DELETE"}[r.IntN(6)]
	body := strings.Repeat("abcdefg.", []int{0, 1, 100, 1500, 9000, 20000}[r.IntN(6)])
	var reader io.Reader
	length := int64(len(body))
	kind := r.IntN(6)
	if slices.ContainsFunc(server.next, func(a http2Answer) bool { return a.early }) {
		kind %= 4 // else it is chance what comes first, the answer or the body's error
	}
	if method != "POST" && method != "PUT" {
		kind = 9
	}
	switch kind {
	case 0, 1:
		reader = strings.NewReader(body)
	case 2:
		reader, length = io.MultiReader(strings.NewReader(body)), -1
	case 3:
		reader = io.MultiReader(strings.NewReader(body))
	case 4:
		reader, length = io.MultiReader(strings.NewReader(body), failingReader{}), -1
	case 5:
		reader, length = io.MultiReader(strings.NewReader(body+"more")), max(1, length)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://example.com/path?query", reader)
	if err != nil {
		return err.Error()
	}
	if reader != nil {
		req.ContentLength = length
	}
	if body != "" && reader != nil && r.IntN(4) == 0 { // without a body net/http forgets the end
		req.Trailer = http.Header{"End": {"e"}, "Other": nil}
	}
	switch r.IntN(12) {
	case 0:
		req.Header.Set("Expect", "100-continue")
	case 1:
		req.Close = true
	case 2:
		req.Header["Cookie"] = []string{"a=b; c=d;e=f", "g=h;"}
	case 3:
		req.Header["User-Agent"] = nil
	case 4:
		req.Header["x-lower"] = []string{"1", "2"}
		req.Header.Set("Connection", "keep-alive")
	case 5:
		req.Host = "other.example.com"
		req.Header.Set("Te", "trailers")
	}
	when := r.IntN(12) // what cancels it
	if when == 0 {
		cancel()
	}
	if when == 1 {
		time.AfterFunc(10500*time.Millisecond, cancel) // when the server does nothing
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		if !server.cuts {
			note("error %v", err)
		}
		synctest.Wait()
		return seen.String()
	}
	keys := make([]string, 0, len(resp.Header))
	for k, v := range resp.Header {
		keys = append(keys, fmt.Sprint(k, v))
	}
	slices.Sort(keys)
	note("%s %s %v length %d trailer %v %t", resp.Proto, resp.Status, keys, resp.ContentLength, resp.Trailer, resp.Uncompressed)
	if !came && httptrace.ContextClientTrace(ctx) != nil {
		note("no first byte")
	}
	if when == 2 {
		synctest.Wait()
		cancel()
		synctest.Wait()
	}
	if when == 3 {
		synctest.Wait() // it depends on what has come whether the stream is reset
		var some [3]byte
		n, err := resp.Body.Read(some[:])
		if !server.cuts {
			note("some %q %v", some[:n], err)
		}
	} else {
		all, err := io.ReadAll(resp.Body)
		if !server.cuts { // where the pieces end is chance
			note("body %d %.20q %v", len(all), all, err)
		}
	}
	note("trailer %v", resp.Trailer)
	note("close %v", resp.Body.Close())
	_, err = resp.Body.Read(make([]byte, 1))
	note("read again %v", err)
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	return seen.String()
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the body fails") }

// A bufferedConn never waits for the peer when it writes: net.Pipe does.
type bufferedConn struct {
	net.Conn
	writes chan []byte // nil ends it
}

func newBufferedConn(c net.Conn) *bufferedConn {
	b := &bufferedConn{c, make(chan []byte, 1000)}
	go func() {
		for p := <-b.writes; p != nil; p = <-b.writes {
			_, _ = c.Write(p)
		}
		c.Close()
	}()
	return b
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.writes <- append([]byte{}, p...)
	return len(p), nil
}

// Close closes the connection when what was written is sent.
func (b *bufferedConn) Close() error {
	b.writes <- nil
	return nil
}

// TestTransportHTTP2Chosen: what a call returns is the same as with http.Transport where the server does
// not take all of a request, or does not speak HTTP/2. A server that serves one request on each
// connection serves all.
func TestTransportHTTP2Chosen(t *testing.T) {
	ok := func(p *frames.Peer, id uint32) { p.Headers(id, true, ":status", "413") }
	for name, test := range map[string]struct {
		settings []uint32
		answer   func(p *frames.Peer, id uint32) // nil: the server is silent
		change   func(*http.Transport, *http.Request)
		calls    int
		results  string
	}{
		"an answer to a part of a short body": {[]uint32{4, 10}, ok, nil, 1, "413"},
		"a header that is too long": {[]uint32{6, 2000}, ok, func(_ *http.Transport, req *http.Request) {
			req.Header.Set("Long", strings.Repeat("l", 2000))
		}, 1, "http2: request header list larger than peer's advertised limit"},
		"trailers that are too long": {[]uint32{6, 2000}, ok, func(_ *http.Transport, req *http.Request) {
			req.Trailer = http.Header{"Long": {strings.Repeat("l", 2000)}}
		}, 1, "request header list larger than peer's advertised limit"},
		"a server of HTTP/1": {nil, func(p *frames.Peer, _ uint32) { p.Out = []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, nil, 1,
			"http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"},
		"a server that says nothing": {nil, nil, func(base *http.Transport, _ *http.Request) {
			base.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second}
		}, 1, "http2: client connection lost"},
		"a server that serves one request": {nil, func(p *frames.Peer, id uint32) {
			if id == 1 {
				ok(p, id)
				p.Frame(frames.GoAway, 0, 0, []byte{0, 0, 0, 1, 0, 0, 0, 0})
			}
		}, nil, 20, strings.Repeat("413", 20)},
	} {
		t.Run(name, func(t *testing.T) {
			for who, wrap := range map[string]func(*http.Transport) http.RoundTripper{
				"net/http": func(base *http.Transport) http.RoundTripper { return base },
				"ours":     func(base *http.Transport) http.RoundTripper { return httpadapter.NewTransport(base) },
			} {
				if who == "net/http" && test.calls > 1 {
					continue // it is chance there whether a call waits before it is made again, or gives up
				}
				synctest.Test(t, func(t *testing.T) {
					base := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
					base.Protocols.SetUnencryptedHTTP2(true)
					server := http2Script{settings: test.settings, silent: test.answer == nil, next: []http2Answer{{send: test.answer}}}
					base.DialContext = func(context.Context, string, string) (net.Conn, error) {
						ours, theirs := net.Pipe()
						server.serve(t, theirs)
						return ours, nil
					}
					rt := wrap(base)
					if test.settings != nil { // they are known when the call begins
						req, _ := http.NewRequest(http.MethodGet, "http://example.com/", nil)
						_, _ = rt.RoundTrip(req)
					}
					results, begin := make(chan string, test.calls), time.Now()
					for range test.calls {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://example.com/", strings.NewReader("a short body"))
						if err != nil {
							t.Fatal(err)
						}
						if test.change != nil {
							test.change(base, req)
						}
						go func() {
							resp, err := rt.RoundTrip(req)
							if err != nil {
								results <- err.Error()
								return
							}
							resp.Body.Close()
							results <- fmt.Sprint(resp.StatusCode)
						}()
					}
					var got strings.Builder
					for range test.calls {
						got.WriteString(<-results)
					}
					if took := time.Since(begin); got.String() != test.results || took >= time.Hour {
						t.Errorf("%s: got %s after %v, want %s", who, got.String(), took, test.results)
					}
					time.Sleep(time.Minute) // the server may have something left to say
					server.close()
				})
			}
		})
	}
}

// An http2Script is a server that answers the streams of its connections one after the other.
type http2Script struct {
	settings []uint32      // pairs of id and value
	silent   bool          // it sends nothing at all
	next     []http2Answer // of the next streams; the last one is repeated
	cuts     bool          // one of them ends in the middle of a frame

	mu    sync.Mutex
	conns []*http2Conn
}

// http2Conn is one connection, and what has come on it.
type http2Conn struct {
	out   frames.Peer // what the script sends
	nc    net.Conn
	heard []string

	leaves bool // it has sent GOAWAY, or closes the connection
	begun  map[uint32]bool
	early  map[uint32]bool // answered before the end of the request, of which any part may come then
}

// An http2Answer is what a server does with a stream.
type http2Answer struct {
	early bool // it doesn't wait for the request's end
	send  func(p *frames.Peer, id uint32)
	cut   int  // of the last frame, so many bytes are left out
	long  bool // its body is longer than declared: the client resets it if it sees that before the end
	after int  // what follows: nothing, GOAWAY, the end of the stream
}

// serve reads what comes on a connection, and answers.
func (s *http2Script) serve(t *testing.T, nc net.Conn) {
	nc = newBufferedConn(nc)
	c := &http2Conn{nc: nc, begun: make(map[uint32]bool), early: make(map[uint32]bool)}
	c.out = *frames.NewPeer(t, nc, s.settings...)
	c.out.Window(0, 1<<20)
	c.out.Out = c.out.Out[len(http2.Preface):]
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	go func() {
		defer nc.Close()
		if _, err := io.ReadFull(nc, make([]byte, len(http2.Preface))); err != nil {
			return
		}
		if s.silent {
			_, _ = io.Copy(io.Discard, nc)
			return
		}
		c.out.Flush()
		in := frames.NewPeer(t, nc)
		in.Out = nil
		for {
			line := in.Next()
			var id uint32
			var kind string
			_, _ = fmt.Sscan(line, &kind, &id)
			s.mu.Lock()
			c.note(kind, id, line)
			last := line == "end" || kind == "error:"
			begins := kind == "headers" && !c.begun[id]
			ends := strings.HasSuffix(line, " end") && (kind == "headers" || kind == "data")
			var a http2Answer
			if begins {
				a = s.next[0]
				if len(s.next) > 1 {
					s.next = s.next[1:]
				}
				c.begun[id] = true
				c.early[id] = a.early
				c.leaves = c.leaves || a.after > 0 || a.cut > 0 || a.long
				c.answer(a, id, ends)
			}
			s.mu.Unlock()
			if last {
				return
			}
		}
	}()
}

// answer answers a stream, when the client has nothing left to do.
func (c *http2Conn) answer(a http2Answer, id uint32, ended bool) {
	go func() {
		if !a.early {
			time.Sleep(5 * time.Second) // the request has come, as far as it comes without an answer
		}
		p := frames.NewPeer(c.out.T, c.nc)
		p.Out = nil
		a.send(p, id)
		switch a.after {
		case 1:
			p.Frame(frames.GoAway, 0, 0, []byte{0, 0, 0, byte(id), 0, 0, 0, 0, 'd', 'e'})
		case 2:
			p.Frame(frames.GoAway, 0, 0, []byte{0, 0, 0, 0, 0, 0, 0, byte(id % 3), 'd'})
		}
		_, _ = c.nc.Write(p.Out[:max(0, len(p.Out)-a.cut)])
		if a.after >= 3 || a.cut > 0 {
			c.nc.Close()
		}
	}()
}

// note notes a frame, if it is about a request.
func (c *http2Conn) note(kind string, id uint32, line string) {
	if c.early[id] && (kind != "headers" || !strings.Contains(line, ":method")) {
		return
	}
	switch kind {
	case "headers":
		fields := strings.Split(line, " ")
		slices.Sort(fields[2:])
		c.heard = append(c.heard, strings.Join(fields, " "))
	case "data":
		n := len(c.heard) - 1
		stream, data, _ := strings.Cut(line[len("data "):], " ")
		end := strings.HasSuffix(data, " end")
		data = strings.Trim(strings.TrimSuffix(data, " end"), `"`)
		if n >= 0 && strings.HasPrefix(c.heard[n], "data "+stream+" ") && !strings.HasSuffix(c.heard[n], " end") {
			c.heard[n] += data
		} else {
			c.heard = append(c.heard, "data "+stream+" "+data)
		}
		if end {
			c.heard[len(c.heard)-1] += " end"
		}
	case "reset":
		for _, earlier := range c.heard {
			if strings.HasPrefix(earlier, fmt.Sprintf("headers %d ", id)) && strings.Contains(earlier, ":method=HEAD") {
				return // a body behind HEAD: ours may see its end first
			}
		}
		if !c.leaves { // net/http resets streams that the server has said it won't serve
			// Which of the two depends in net/http on what its goroutines have come to.
			c.heard = append(c.heard, strings.TrimSuffix(strings.TrimSuffix(line, "CANCEL"), "NO_ERROR"))
		}
	}
}

// log returns what has come.
func (s *http2Script) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, c := range s.conns {
		fmt.Fprintf(&b, "connection %d\n", i)
		for n, line := range c.heard {
			var id uint32
			if _, err := fmt.Sscanf(line, "data %d ", &id); err == nil && !strings.HasSuffix(line, " end") &&
				!slices.ContainsFunc(c.heard[n+1:], func(later string) bool { return strings.HasPrefix(later, fmt.Sprintf("headers %d ", id)) }) {
				line = fmt.Sprintf("data %d in part", id) // how much is chance
			}
			if len(line) > 300 {
				line = fmt.Sprintf("%s... %d bytes ...%s", line[:100], len(line), line[len(line)-20:])
			}
			fmt.Fprintf(&b, "\t%s\n", line)
		}
	}
	return b.String()
}

// close closes the connections.
func (s *http2Script) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.nc.Close()
	}
}

// drawAnswers draws what the server does with the next streams. The last one is an answer that is right,
// so that retries come to an end.
func drawAnswers(r *rand.Rand) (answers []http2Answer) {
	for range r.IntN(3) {
		answers = append(answers, drawAnswer(r))
	}
	return append(answers, http2Answer{send: func(p *frames.Peer, id uint32) {
		p.Headers(id, false, ":status", "200").Data(id, "hello", true)
	}})
}

func drawAnswer(r *rand.Rand) (a http2Answer) {
	a.early = r.IntN(4) == 0
	if r.IntN(12) == 0 {
		a.cut = 1 + r.IntN(20)
	}
	if r.IntN(5) == 0 {
		a.after = r.IntN(4)
	}
	if a.early { // else an answer may be lost while the client still sends
		a.cut, a.after = 0, a.after%3
	}
	interims := r.IntN(6)
	status := []string{"200", "200", "204", "304", "404", "500", "301"}[r.IntN(7)]
	content := strings.Repeat("0123456789", []int{0, 1, 10, 1500}[r.IntN(4)])
	fields := []string{":status", status}
	if r.IntN(2) == 0 {
		declared := max(0, len(content)+[]int{0, 0, 0, 1, -1}[r.IntN(5)])
		fields = append(fields, "content-length", fmt.Sprint(declared))
		a.long = len(content) > declared
	}
	declares := r.IntN(3) == 0
	if declares {
		fields = append(fields, "trailer", "T,U", "trailer", "v")
	}
	switch r.IntN(12) {
	case 0:
		fields = append(fields, "x", "1", "x", "2", "set-cookie", "a")
	case 1:
		fields = append(fields, "big", strings.Repeat("b", 1500), "bigger", strings.Repeat("b", 1600))
	}
	pieces := 1 + r.IntN(3)
	how := r.IntN(16)
	code := http2.ErrCode(r.IntN(15))
	if how == 0 && (a.after == 3 || a.cut > 0) {
		a.after, a.cut = 0, 0 // whether a call is made again before the end is chance
	}
	if a.long && code == http2.ProtocolError {
		code = http2.InternalError // by chance the client has reset the stream, and uses the connection again
	}
	a.send = func(p *frames.Peer, id uint32) {
		for i := range max(0, interims-3) {
			p.Headers(id, false, ":status", []string{"100", "103", "102"}[i%3], "i", fmt.Sprint(i))
		}
		switch how {
		case 0:
			p.Reset(id, code)
			return
		case 1:
			p.Headers(id, true, fields...)
			return
		case 2:
			p.Headers(id, false, "a", "b")
			return
		case 3:
			p.Headers(id, false, ":status", "2x0")
			return
		case 4:
			p.Data(id, "early", false)
			return
		case 5:
			return // no answer: ResponseHeaderTimeout
		case 6:
			p.Headers(id, true, ":status", "100")
			return
		}
		p.Headers(id, false, fields...)
		for i := range pieces {
			p.Data(id, content[len(content)*i/pieces:len(content)*(i+1)/pieces], false)
		}
		switch how {
		case 7:
			p.Reset(id, code)
		case 8, 9:
			p.Headers(id, true, "t", "1", "t", "2", "w", "3")
		default:
			p.Data(id, "", true)
		}
	}
	return a
}
