package httpadapter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// A watchProgram is what a client and a handler do during one request, in an enforced order: each
// operation ends before the next one begins. It tests when a server starts to watch for the
// client's end, and what it takes for that end. net/http decides this with the reads that it makes.
// watchModel is the model for it, and is checked against net/http, too.
//
//	operation  by           what it does
//	b          the client   sends the rest of the body
//	n          the client   sends the next request
//	F, C       the client   ends its stream; closes the connection
//	r, R       the handler  reads a byte of the body; reads all of it
//	x          the handler  closes the body
//	e, l, z    the handler  sets the read deadline: to one that has passed, a distant one, none
type watchProgram struct {
	tls     bool
	chunked bool   // whether the body is chunked, so that net/http serves the request
	size    int    // of the body; 0: none
	first   int    // how many bytes of it arrive in one piece with the header
	cut     int    // where the header is cut; 0: not cut
	next    bool   // the next request comes in one piece with the body, all of which comes with the header
	ops     string // those that would block, or mean nothing, are left out
}

func (p watchProgram) String() string {
	return fmt.Sprintf("TLS %t, chunked %t, %d bytes of %d with the header, cut at %d, next %t, %q", p.tls, p.chunked, p.first, p.size, p.cut, p.next, p.ops)
}

// pieces returns the pieces of the request that are sent before the handler runs, and the rest of
// the body.
func (p watchProgram) pieces() (pieces []string, rest string) {
	header, body := request("/"), strings.Repeat("b", p.size)
	switch {
	case p.chunked:
		// All of a chunked body comes with the header: net/http decides where it is cut.
		header = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
		header, body = header+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", p.size, body), ""
	case p.size > 0:
		header = post("/", p.size)
		header, body = header+body[:p.first], body[p.first:]
	}
	if p.next {
		header += request("/next")
	}
	if p.cut > 0 {
		pieces = append(pieces, header[:p.cut])
	}
	return append(pieces, header[p.cut:]), body
}

// watchModel is what net/http knows about a request's connection.
type watchModel struct {
	buffered int  // bytes of the body that net/http has read, and the handler has not
	sent     int  // bytes of the body behind these that the client has sent
	rest     int  // bytes of the body that the client has not sent
	watching bool // the body was read to its end: net/http reads a byte
	seen     bool // it has one
	next     bool // the next request was sent
	behind   bool // and it was, by itself, before net/http read for the last time
	ended    bool // the client has ended its stream
	expired  bool // the deadline has passed
	closed   bool // the body
	done     bool // the context is canceled
}

// takes applies an operation. It returns false if the operation means nothing or would block.
func (m *watchModel) takes(op rune) bool {
	switch op {
	case 'b':
		if m.rest == 0 || m.ended {
			return false
		}
		m.sent += m.rest
		m.rest = 0
	case 'n':
		if m.rest > 0 || m.sent > 0 || m.ended || m.next {
			return false // with a part of the body in the kernel net/http may read both at once
		}
		m.next, m.behind = true, true
	case 'F', 'C':
		if m.ended {
			return false
		}
		m.ended = true
	case 'r', 'R', 'x':
		if !m.readable(op) {
			return false
		}
		m.read(op)
	case 'e', 'l', 'z':
		m.expired = op == 'e'
	}
	if m.watching && m.behind {
		m.seen = true
	}
	if m.watching && !m.seen && (m.ended || m.expired) {
		m.done = true
	}
	return true
}

// readable reports whether a read of the body would not wait.
func (m *watchModel) readable(op rune) bool {
	if op == 'r' && m.buffered+m.sent > 0 {
		return true
	}
	return m.closed || m.watching || m.rest == 0 || m.ended || m.expired
}

func (m *watchModel) read(op rune) {
	if m.closed || m.watching {
		m.closed = m.closed || op == 'x'
		return
	}
	defer func() { m.closed = m.closed || op == 'x' }()
	if op == 'r' && m.buffered > 0 {
		m.buffered--
		m.atEnd()
		return
	}
	if op != 'r' {
		m.buffered = 0
	}
	switch {
	case m.buffered+m.sent+m.rest == 0:
	case m.expired:
		m.done = true
		return
	case op == 'r' && m.sent > 0:
		m.buffered, m.sent = m.sent-1, 0
	case m.rest > 0: // the stream ends in the body
		m.sent, m.rest, m.done = 0, 0, true
	default:
		m.sent = 0
	}
	m.atEnd()
}

// atEnd begins the watch, with no deadline, at the end of the body.
func (m *watchModel) atEnd() {
	if m.buffered+m.sent+m.rest == 0 {
		m.watching, m.expired = true, false
	}
}

// A watchStage is a server that plays the handler's part of a program.
type watchStage struct {
	*side
	ops    chan rune   // for the handler; 0: it returns
	result chan string // of each operation
	req    chan *http.Request
}

func startWatchStage(t *testing.T, w way, overTLS bool) *watchStage {
	s := &watchStage{ops: make(chan rune), result: make(chan string), req: make(chan *http.Request, 1)}
	s.side = newSide(t, w, func(srv *http.Server) {
		if overTLS {
			srv.TLSConfig, _ = testnet.TLS(t)
		}
	}, func(_ *side, rw http.ResponseWriter, r *http.Request) { s.serve(rw, r) })
	return s
}

// serve does what ops say.
func (s *watchStage) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/next" {
		io.WriteString(rw, "next")
		return
	}
	s.req <- r
	for op := <-s.ops; op != 0; op = <-s.ops {
		s.result <- s.do(op, rw, r)
	}
	io.WriteString(rw, "done")
}

func (s *watchStage) do(op rune, rw http.ResponseWriter, r *http.Request) string {
	control := http.NewResponseController(rw)
	switch op {
	case 'r':
		n, err := r.Body.Read(make([]byte, 1))
		return fmt.Sprint(n, " ", describe(err))
	case 'R':
		body, err := io.ReadAll(r.Body)
		return fmt.Sprint(len(body), " ", describe(err))
	case 'x':
		return fmt.Sprint("closed ", describe(r.Body.Close()))
	case 'e':
		return describe(control.SetReadDeadline(monotime.LongAgo))
	case 'l':
		return describe(control.SetReadDeadline(time.Now().Add(time.Hour)))
	}
	return describe(control.SetReadDeadline(time.Time{}))
}

// describe returns an error without its addresses.
func describe(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "i/o timeout"
	}
	return fmt.Sprint(err)
}

// play plays a program and returns its transcript. It fails if the context does not match the model.
func (s *watchStage) play(p watchProgram) (transcript []string) {
	t := s.t
	s.clear()
	nc := s.dial()
	defer s.statesUntilClosed()
	defer nc.Close()
	send := func(text string) {
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatalf("%s: %s: %v", s.way, p, err)
		}
	}
	pieces, rest := p.pieces()
	for _, piece := range pieces {
		send(piece)
		time.Sleep(time.Millisecond)
	}
	r := testnet.Receive(t, "the request", s.req)
	s.mu.Lock()
	identity := s.conns[0]
	s.mu.Unlock()
	m := watchModel{buffered: p.first, rest: p.size - p.first, watching: p.size == 0, next: p.next}
	if p.chunked {
		m.buffered, m.rest = p.size, 0
	}
	closed := false
	for i, op := range p.ops {
		before := m
		if !m.takes(op) {
			continue
		}
		result := "ok"
		switch op {
		case 'b':
			send(rest)
		case 'n':
			send(request("/next"))
		case 'F':
			_ = nc.(interface{ CloseWrite() error }).CloseWrite()
		case 'C':
			nc.Close()
			closed = true
		default:
			s.ops <- op
			result = testnet.Receive(t, "the handler's operation", s.result)
		}
		if m.seen && !before.seen {
			s.awaitSeen(identity, p.chunked)
		}
		if !s.contextIs(r, m.done) {
			t.Fatalf("%s: %s: after operation %d: got the context's error %v, cancelled by the model: %t; transcript %q",
				s.way, p, i, r.Context().Err(), m.done, transcript)
		}
		transcript = append(transcript, fmt.Sprintf("%c %s %t", op, result, m.done))
	}
	s.ops <- 'z' // a deadline that the handler set must not apply to the answer
	<-s.result
	s.ops <- 0
	if closed || p.tls && m.ended {
		return transcript
	}
	_ = nc.(interface{ CloseWrite() error }).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return append(transcript, fmt.Sprint(err))
	}
	return append(transcript, resp.Status)
}

// contextIs waits until a context is canceled. It can't wait for a context to stay open, so it
// gives a server some time to cancel it by mistake.
func (s *watchStage) contextIs(r *http.Request, done bool) bool {
	if !done {
		time.Sleep(2 * time.Millisecond)
		return r.Context().Err() == nil
	}
	select {
	case <-r.Context().Done():
		return true
	case <-time.After(testnet.HangTimeout):
		return false
	}
}

// awaitSeen waits until the server has noticed that the next request is there.
func (s *watchStage) awaitSeen(nc net.Conn, declined bool) {
	testnet.Eventually(s.t, "the next request being noticed", func() bool {
		if s.ours != nil && canPark {
			return isIn(h1.ConnOf(nc).Sight(), "notified")
		}
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		return !strings.Contains(stacks, "connReader).startBackgroundRead") // nor one that has not run yet
	})
}

// A context is canceled when net/http would cancel it, however the client's bytes arrive, and reads
// of the body return the same.
func TestWatch(t *testing.T) {
	programs := []watchProgram{
		{size: 4, first: 4, ops: "FR"},
		{size: 4, first: 4, ops: "lRe"},
		{size: 4, first: 4, ops: "eRF"},
		{size: 4, first: 4, ops: "RnF"},
		{size: 4, first: 4, ops: "Rne"},
		{size: 4, first: 4, ops: "nFR"},
		{size: 4, first: 2, ops: "FR"},
		{size: 4, first: 2, ops: "erzbR"},
		{size: 4, ops: "bFrR"},
		{ops: "ne"},
		{ops: "nF"},
		{ops: "e"},
		{next: true, ops: "F"},
		{next: true, ops: "e"},
		{size: 4, first: 4, next: true, ops: "FR"},
	}
	const operations = "bnFCrRxelz"
	random := 120
	if testing.Short() {
		random = 30
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range random {
		p := watchProgram{size: rng.IntN(3) * 4, chunked: rng.IntN(6) == 0}
		p.chunked = p.chunked && p.size > 0
		p.first = rng.IntN(3) * p.size / 2
		p.next = p.first == p.size && rng.IntN(3) == 0
		if header := len(request("/")); rng.IntN(2) == 0 {
			p.cut = 1 + rng.IntN(header-1)
		}
		for range 1 + rng.IntN(6) {
			p.ops += operations[rng.IntN(len(operations)):][:1]
		}
		programs = append(programs, p)
	}
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			testnet.NoLeaks(t)
			transcripts := make(map[way][]string)
			ways := []way{onNet, withAdapter}
			for _, w := range ways {
				stage := startWatchStage(t, w, overTLS)
				for _, p := range programs {
					p.tls = overTLS
					transcripts[w] = append(transcripts[w], strings.Join(stage.play(p), "\n"))
				}
			}
			for _, w := range ways[1:] {
				for i, got := range transcripts[w] {
					if want := transcripts[onNet][i]; got != want {
						t.Errorf("%s: %s: got\n%s\nwant\n%s", w, programs[i], got, want)
					}
				}
			}
		})
	}
}

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// echoProxy is a proxy for a server that answers with the body. before, which may be nil, is called
// before the body is read.
func echoProxy(before func(*http.Request) error, errorLog io.Writer) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) },
		ErrorLog: log.New(errorLog, "", 0),
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if before != nil {
				if err := before(r); err != nil {
					return nil, err
				}
			}
			body, err := io.ReadAll(r.Body)
			return &http.Response{
				StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: int64(len(body)),
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, err
		}),
	}
}

// A client that ends its stream after its request loses nothing behind a proxy, which takes some
// time before it reads the body.
func TestHalfCloseBehindProxy(t *testing.T) {
	ended := make(chan bool, 1)
	f := startOurs(t, echoProxy(func(r *http.Request) error {
		testnet.Receive(t, "the end of the client's stream", ended)
		time.Sleep(2 * time.Millisecond)
		return r.Context().Err()
	}, io.Discard).ServeHTTP, nil)
	c := f.dial()
	c.send(post("/", 4) + "body")
	c.closeWrite()
	ended <- true
	if got := c.answer(); got != "body" {
		t.Errorf("got %q, want the body", got)
	}
	f.wantCounted(1)
}
