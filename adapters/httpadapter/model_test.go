package httpadapter

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// The model for the adapter is net/http on package net. A program is what a client does on one
// connection. It sends requests, cut anywhere and pipelined, pauses, and ends in some way. Each program
// is played to all servers, and everything that can be seen must be the same. That is the bytes that
// come back, how the connection ends, the handlers' requests, the states, and the log.
//
// The same must hold while HandOver calls a give that fails, at any moment. It must also hold while
// the connection moves to another Server and back, where that works. ConnState then sees several
// connections, and their states put together must be those of one connection.
//
// The programs leave out what is left to chance on package net, too: bytes in flight when the
// server closes, resets in the middle of a request, and timeouts.

// program is a client's side of a connection.
type program struct {
	tls     bool
	steps   []step
	end     int // index into endings
	partial int // bytes of another request to send before a half-close
	moving  way // one of movingWays, to play as well; over TLS nothing moves
}

// step is a request and what happens around it.
type step struct {
	request int // index into requests, or endingRequests if last
	last    bool
	cuts    []int  // where to cut it, ascending
	pauses  []int  // after each piece: index into pauses
	handler string // the operations of a handler for "/do", see do
	wait    bool   // whether to wait for the answer before going on
}

// requests leave the connection open. skip says that the request begins with an empty line, which
// is allowed only after a POST.
var requests = []struct {
	text string
	skip bool
}{
	{"GET /ok HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"POST /ok HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello", false},
	{"POST /ok HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
	{"\r\nGET /ok HTTP/1.1\r\nHost: test\r\n\r\n", true},
	{"\r\n\r\nPOST /ok HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx", true},
	{"POST /unread HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nunread", false},
	{"POST /ok HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody", false},
	{"HEAD /ok HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false},
	{"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"GET /big HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"GET /flush HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"P /ok HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"POSTS /ok HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n", false},
	{"OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"GET /trailer HTTP/1.1\r\nHost: test\r\naccept: a\r\nAccept: b\r\nTE: trailers\r\n\r\n", false},
	{"GET /none HTTP/1.1\r\nHost: test\r\nConnection: keep-alive\r\n\r\n", false},
	{"GET /file HTTP/1.1\r\nHost: test\r\nRange: bytes=1-3\r\n\r\n", false},
	{"GET /do?OPS HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"POST /do?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nunread", false},
	{"POST /do?OPS HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
	{"HEAD /do?OPS HTTP/1.1\r\nHost: test\r\n\r\n", false},
	{"PUT /ok?q=1&r=%20 HTTP/1.1\r\nHost: test:80\r\nContent-Length: 3\r\n\r\nput", false},
	{"POST /ok HTTP/1.1\r\nHost: test\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"POST /bytes HTTP/1.1\r\nHost: test\r\nContent-Length: 6000\r\n\r\n" + strings.Repeat("length", 1000), false},
	{"POST /part HTTP/1.1\r\nHost: test\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"POST /early HTTP/1.1\r\nHost: test\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("early", 1000), false},
	{"GET /ok HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("long value", 900) + "\r\nY: y\r\n\r\n", false},
	{"POST /ok HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("long value", 900) + "\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"GET /ok HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("long value", 7000) + "\r\n\r\n", false},
	{"POST /closed HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nclosed", false},
	{"POST /duplex HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nduplex", false},
	{"POST /unread HTTP/1.1\r\nHost: test\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"POST /do/raw?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\nunread!", false},
	{"POST /do/raw?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"POST /do/timed?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\nunread!", false},
	{"POST /do/timed?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("long body", 1000), false},
	{"POST /do/proxied?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 7\r\n\r\nunread!", false},
}

// endingRequests are the last on their connection. They are sent in one piece, since the server may
// close before it has read the next.
var endingRequests = []string{
	"GET /ok HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
	"GET /close HTTP/1.1\r\nHost: test\r\n\r\n",
	"GET /ok HTTP/1.0\r\n\r\n",
	"this is not HTTP\r\n\r\n",
	"GET /ok HTTP/3.0\r\nHost: test\r\n\r\n",
	"GET /hijack HTTP/1.1\r\nHost: test\r\n\r\nafter",
	"GET /panic HTTP/1.1\r\nHost: test\r\n\r\n",
	"GET /short HTTP/1.1\r\nHost: test\r\n\r\n",
	"GET /ok HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n",
	"GET /" + strings.Repeat("long", 1500) + " HTTP/1.1\nHost: test\n\n",
	"GET /ok HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("long value", 900) + "\r\nno field",
	"GET /ok HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("long value", 900) + "\r\nno field\r\n",
	"POST /ok HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nnot ten",
	"POST /unread HTTP/1.1\r\nHost: test\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("not enough", 500),
	"POST /hijack HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody and more",
	"POST /panic HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody",
	"POST /close HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody",
	"POST /do?OPS HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\nConnection: close\r\n\r\nunread",
	"POST /do/raw?OPS HTTP/1.1\r\nHost: test\r\nLast: yes\r\nContent-Length: 7\r\n\r\nunread!",
	"POST /do/raw?OPS HTTP/1.1\r\nHost: test\r\nLast: yes\r\nContent-Length: 9001\r\n\r\nX" + strings.Repeat("long body", 1000),
}

// text returns the request's bytes.
func (s step) text() string {
	if s.last {
		return strings.Replace(endingRequests[s.request], "OPS", s.handler, 1)
	}
	return strings.Replace(requests[s.request].text, "OPS", s.handler, 1)
}

// operations are the steps of a handler for "/do". The last three end the connection, so they have
// an effect only in endingRequests.
const operations = "wWfsnmihtTrRdxcDLPJ"

// do is a handler that does what ops say.
func do(rw http.ResponseWriter, r *http.Request, ops string) {
	control := http.NewResponseController(rw)
	last := r.Header.Get("Last") != ""
	for i, op := range ops {
		var err error
		switch op {
		case 'c':
			err = r.Body.Close()
		case 'D':
			err = control.SetReadDeadline(time.Now().Add(time.Hour))
		case 'L':
			if last {
				_, err = io.Copy(io.Discard, http.MaxBytesReader(rw, r.Body, 3))
			}
		case 'P':
			if last {
				panic(http.ErrAbortHandler)
			}
		case 'J':
			if last {
				hijackAndEnd(rw)
				return
			}
		case 'w':
			_, err = fmt.Fprintf(rw, "<%d>", i)
		case 'W':
			_, err = rw.Write(bytes.Repeat([]byte{'a' + byte(i)}, 5000))
		case 'f':
			err = control.Flush()
		case 's':
			rw.WriteHeader(http.StatusTeapot)
		case 'n':
			rw.WriteHeader(http.StatusNoContent)
		case 'm':
			rw.WriteHeader(http.StatusNotModified)
		case 'i':
			rw.WriteHeader(http.StatusEarlyHints)
		case 'h':
			rw.Header().Add("X-Seen", fmt.Sprint(i))
		case 't':
			rw.Header().Add("Trailer", "X-Seen")
		case 'T':
			rw.Header().Set(http.TrailerPrefix+"X-Late", fmt.Sprint(i))
		case 'r':
			_, err = io.ReadFull(r.Body, make([]byte, 2))
		case 'R':
			_, err = io.Copy(io.Discard, r.Body)
		case 'd':
			time.Sleep(time.Millisecond)
		case 'x':
			err = control.SetWriteDeadline(time.Time{})
		}
		if err != nil {
			rw.Header().Add("X-Error", err.Error())
		}
	}
}

// hijackAndEnd answers without the ResponseWriter, and closes the connection.
func hijackAndEnd(rw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(conn, "hijacked")
	conn.Close()
}

// doTimed is do within an http.TimeoutHandler whose time is up: a goroutine continues with the
// request while the server ends it.
func doTimed(rw http.ResponseWriter, r *http.Request, ops string) {
	returned := make(chan bool)
	defer close(returned)
	// The client's end, which may come first, would end it without the message.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	http.TimeoutHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(rw, r.Body, 1<<20)
		do(withoutStatus{rw}, r, ops)
		<-r.Context().Done()
		<-returned
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body, r.Header = http.NoBody, nil
	}), time.Millisecond, "late").ServeHTTP(rw, r)
}

// withoutStatus ignores WriteHeader. An http.TimeoutHandler logs a second call if its time is not
// up yet, which is left to chance.
type withoutStatus struct{ http.ResponseWriter }

func (withoutStatus) WriteHeader(int) {}

// doProxied is a proxy for a server that answers with the body.
func doProxied(rw http.ResponseWriter, r *http.Request) {
	(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			return &http.Response{
				StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, ContentLength: int64(len(body)),
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, err
		}),
	}).ServeHTTP(rw, r)
}

var endings = []string{"half-close", "close", "reset", "server closes", "server shuts down"}

// The pauses in the middle of things, in multiples of 200 µs.
var pauses = []float64{0, 0, 0, 0.5, 1, 2}

// decode makes a program from random bytes.
func decode(data []byte) program {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
	ops := func() (ops string) {
		for range next(8) {
			ops += operations[next(len(operations)):][:1]
		}
		return ops
	}
	p := program{tls: next(4) == 1}
	post := false
	for range next(8) {
		s := step{request: next(len(requests)), wait: next(4) > 0}
		if next(8) == 7 {
			s.request, s.last = next(len(endingRequests)), true
			s.handler = ops()
			s.pauses = []int{0}
			p.steps = append(p.steps, s)
			return p
		}
		if requests[s.request].skip && !post {
			s.request = 0
		}
		if strings.Contains(requests[s.request].text, "?OPS ") {
			s.handler = ops()
		}
		text := s.text()
		post = strings.HasPrefix(strings.TrimLeft(text, "\r\n"), "POST ")
		in := func() int { // a position in the text
			if next(2) == 0 {
				return next(len(text)) // near its start
			}
			return next(256) * len(text) / 256
		}
		for at := in(); at > 0 && at < len(text) && len(s.cuts) < 4; at += 1 + in() {
			s.cuts = append(s.cuts, at)
		}
		for range len(s.cuts) + 1 {
			s.pauses = append(s.pauses, next(len(pauses)))
		}
		p.steps = append(p.steps, s)
	}
	p.end, p.partial = next(len(endings)), next(30)
	p.moving = movingWays[next(len(movingWays))]
	if len(p.steps) == 0 && p.end >= 3 {
		// During shutdown net/http waits five seconds for a new connection, and over TLS it may not
		// know yet that the handshake is done.
		p.end = 0
	}
	return p
}

// String describes the program in failure messages.
func (p program) String() string {
	return fmt.Sprintf("TLS %t, steps %+v, then %s (partial %d)", p.tls, p.steps, endings[p.end], p.partial)
}

// way says how a server is run.
type way string

const (
	onNet       way = "net/http on package net"
	withAdapter way = "with the adapter"
	byListener  way = withAdapter + ", and a listener of tls.NewListener"

	staying way = withAdapter + ", and a HandOver that fails"
	moving  way = withAdapter + ", moving"
)

var movingWays = []way{staying, moving}

// A performance is a program being played to one server.
type performance struct {
	t   testing.TB
	p   program
	way way

	mu     sync.Mutex
	conns  []net.Conn            // as reported to ConnState: several if the connection moves
	states map[net.Conn][]string // of each
	seen   []string
	log    bytes.Buffer
	remote string // the client's address
}

func (pf *performance) Write(p []byte) (int, error) {
	pf.mu.Lock()
	defer pf.mu.Unlock()
	return pf.log.Write(p)
}

func (pf *performance) connState(nc net.Conn, state http.ConnState) {
	pf.mu.Lock()
	defer pf.mu.Unlock()
	if pf.states == nil {
		pf.states = make(map[net.Conn][]string)
	}
	if pf.states[nc] == nil {
		pf.conns = append(pf.conns, nc)
	}
	pf.states[nc] = append(pf.states[nc], state.String())
}

// statesLocked returns the reported states, without the ones that say that the connection has
// moved.
func (pf *performance) statesLocked() (all []string) {
	for i, nc := range pf.conns {
		states := pf.states[nc]
		if i > 0 {
			states = states[1:] // new
			if len(states) > 0 && states[0] == "idle" {
				states = states[1:]
			}
		}
		if last := len(states) - 1; i < len(pf.conns)-1 && last >= 0 && states[last] == "closed" {
			states = states[:last]
		}
		all = append(all, states...)
	}
	return all
}

// isOver reports whether the last state of each connection was reported.
func (pf *performance) isOver() bool {
	pf.mu.Lock()
	defer pf.mu.Unlock()
	for _, states := range pf.states {
		if last := states[len(states)-1]; last != "closed" && last != "hijacked" {
			return false
		}
	}
	return true
}

// reached waits until a state was reported n times.
func (pf *performance) reached(state http.ConnState, n int) {
	testnet.Eventually(pf.t, fmt.Sprintf("%s %d times; %s", state, n, pf.p), func() bool {
		pf.mu.Lock()
		defer pf.mu.Unlock()
		return strings.Count(strings.Join(pf.statesLocked(), " "), state.String()) == n
	})
}

func (pf *performance) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var body []byte
	var err error
	switch r.URL.Path {
	case "/unread", "/do/raw", "/do/timed", "/do/proxied":
	case "/bytes":
		body, err = io.ReadAll(iotest.OneByteReader(r.Body))
	case "/part":
		_, err = io.ReadFull(r.Body, make([]byte, 5000))
	case "/closed":
		err = r.Body.Close()
		_, readErr := r.Body.Read(make([]byte, 1))
		err = errors.Join(err, readErr)
	case "/duplex":
		err = http.NewResponseController(rw).EnableFullDuplex()
		fallthrough
	case "/early":
		io.WriteString(rw, "early")
		http.NewResponseController(rw).Flush()
		var readErr error
		body, readErr = io.ReadAll(r.Body)
		err = errors.Join(err, readErr)
	default:
		body, err = io.ReadAll(r.Body)
	}
	pf.mu.Lock()
	pf.seen = append(pf.seen, fmt.Sprintf("%s %s %s %q %v TLS %t same peer %t", r.Method, r.RequestURI, r.Proto, body, err, r.TLS != nil, r.RemoteAddr == pf.remote))
	pf.mu.Unlock()
	switch r.URL.Path {
	case "/do", "/do/raw":
		do(rw, r, r.URL.RawQuery)
		return
	case "/do/timed":
		doTimed(rw, r, r.URL.RawQuery)
		return
	case "/do/proxied":
		doProxied(rw, r)
		return
	case "/slow":
		time.Sleep(2 * time.Millisecond)
	case "/big":
		rw.Write(bytes.Repeat([]byte("0123456789"), 5000))
	case "/flush":
		for i := range 3 {
			fmt.Fprintf(rw, "%d", i)
			http.NewResponseController(rw).Flush()
		}
	case "/trailer":
		rw.Header().Set("Trailer", "X-End")
		defer rw.Header().Set("X-End", "yes")
		defer rw.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	case "/none":
		rw.WriteHeader(http.StatusNoContent)
		return
	case "/file":
		http.ServeContent(rw, r, "file.txt", time.Unix(1e9, 0), strings.NewReader("content"))
		return
	case "/short":
		rw.Header().Set("Content-Length", "10")
	case "/close":
		rw.Header().Set("Connection", "close")
	case "/panic":
		panic(http.ErrAbortHandler)
	case "/hijack":
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			pf.t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "hijacked:")
		io.Copy(conn, buffered)
		return
	}
	io.WriteString(rw, "done")
}

// play plays the program and returns the transcript.
func (pf *performance) play() []string {
	stage := pf.open()
	address, clientConfig := stage.ln.Addr().String(), stage.clientConfig
	stop := pf.startMoving(stage)
	defer stop()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		pf.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	pf.mu.Lock()
	pf.remote = nc.LocalAddr().String()
	pf.mu.Unlock()
	pf.reached(http.StateNew, 1)
	c := nc
	if pf.p.tls {
		tc := tls.Client(nc, clientConfig)
		if err := tc.Handshake(); err != nil {
			pf.t.Errorf("handshake: %v", err)
		}
		c = tc
	}
	var received bytes.Buffer
	br := bufio.NewReader(io.TeeReader(c, &received))
	open := pf.sendAll(c, br)
	if open && endings[pf.p.end] == "reset" {
		stop() // a connection that was reset is not taken over
	}
	transcript := []string{pf.finish(c, nc.(*net.TCPConn), br, open, func() {
		stop()
		if endings[pf.p.end] == "server closes" {
			stage.server.Close()
		} else if err := stage.server.Shutdown(pf.t.Context()); err != nil {
			pf.t.Errorf("Shutdown: %v", err)
		}
	})}
	stop()
	testnet.Eventually(pf.t, "the connection's last state; "+pf.p.String(), pf.isOver)
	stage.close()
	pf.mu.Lock()
	defer pf.mu.Unlock()
	transcript = append(transcript, "states "+strings.Join(pf.statesLocked(), " "), fmt.Sprintf("log %q", pf.log.String()))
	transcript = append(transcript, pf.seen...)
	answers := dates.ReplaceAllString(received.String(), "Date: now")
	return append(transcript, strings.Split(answers, "\r\n")...)
}

// A stage is a server that a program is played to.
type stage struct {
	t            testing.TB
	ln           net.Listener
	server       anyServer
	clientConfig *tls.Config
	served       chan error
}

// open starts a server.
func (pf *performance) open() *stage {
	srv := &http.Server{Handler: pf, ConnState: pf.connState, ErrorLog: log.New(pf, "", 0)}
	s := &stage{t: pf.t, server: srv, served: make(chan error, 1)}
	listen := net.Listen
	if pf.way != onNet {
		listen = percore.Listen
		s.server = Wrap(srv)
	}
	s.ln = testnet.Listen(pf.t, listen, testnet.TCP4)
	run := *s // s may become another server's
	if pf.way == byListener {
		var config *tls.Config
		config, s.clientConfig = testnet.TLS(pf.t)
		go func() { run.served <- run.server.Serve(tls.NewListener(run.ln, config)) }()
	} else if pf.p.tls {
		srv.TLSConfig, s.clientConfig = testnet.TLS(pf.t)
		go func() { run.served <- run.server.ServeTLS(run.ln, "", "") }()
	} else {
		go func() { run.served <- run.server.Serve(run.ln) }()
	}
	return s
}

func (s *stage) close() {
	s.server.Close()
	if err := testnet.Receive(s.t, "Serve", s.served); err != http.ErrServerClosed {
		s.t.Errorf("Serve: got %v, want http.ErrServerClosed", err)
	}
}

var dates = regexp.MustCompile(`Date: [^\r]*`)

// sendAll sends all steps. When it waits for an answer, it also reads the answers before it. It
// reports whether the connection stays open.
func (pf *performance) sendAll(c net.Conn, br *bufio.Reader) (open bool) {
	var unanswered []string // the requests' methods
	for _, s := range pf.p.steps {
		text := s.text()
		from := 0
		for i, to := range append(s.cuts[:len(s.cuts):len(s.cuts)], len(text)) {
			if _, err := io.WriteString(c, text[from:to]); err != nil {
				pf.t.Errorf("writing: %v; %s", err, pf.p)
				return false
			}
			from = to
			time.Sleep(time.Duration(pauses[s.pauses[i]] * float64(200*time.Microsecond)))
		}
		if s.last {
			return false
		}
		method, _, _ := strings.Cut(strings.TrimLeft(text, "\r\n"), " ")
		unanswered = append(unanswered, method)
		if s.wait {
			pf.readAnswers(br, unanswered)
			unanswered = nil
		}
	}
	pf.readAnswers(br, unanswered)
	if len(pf.p.steps) > 0 {
		pf.reached(http.StateIdle, len(pf.p.steps))
	}
	return true
}

// readAnswers reads the answers to requests with the given methods.
func (pf *performance) readAnswers(br *bufio.Reader, methods []string) {
	for _, method := range methods {
		for status := 100; status < 200; {
			resp, err := http.ReadResponse(br, &http.Request{Method: method})
			if err != nil {
				pf.t.Errorf("reading an answer: %v; %s", err, pf.p)
				return
			}
			io.Copy(io.Discard, resp.Body)
			status = resp.StatusCode
		}
	}
}

// finish ends the connection, unless the server does, and returns what the client sees of the end.
func (pf *performance) finish(c net.Conn, tcp *net.TCPConn, br *bufio.Reader, open bool, stop func()) string {
	if open {
		switch endings[pf.p.end] {
		case "half-close":
			if pf.p.partial > 0 {
				io.WriteString(c, requests[0].text[:pf.p.partial])
			}
			c.(interface{ CloseWrite() error }).CloseWrite()
		case "close":
			c.Close()
			return "closed"
		case "reset":
			_ = tcp.SetLinger(0)
			tcp.Close()
			return "reset"
		default:
			stop()
		}
	} else {
		c.(interface{ CloseWrite() error }).CloseWrite()
	}
	_, err := io.Copy(io.Discard, br)
	if errors.Is(err, syscall.ECONNRESET) {
		err = syscall.ECONNRESET
	}
	return fmt.Sprintf("end: %v", err)
}

// compare plays a program to all servers.
func compare(t testing.TB, p program) {
	t.Helper()
	want := strings.Join((&performance{t: t, p: p, way: onNet}).play(), "\n")
	ways := []way{withAdapter}
	if p.tls {
		ways = append(ways, byListener)
	}
	if !p.tls && p.moving != "" && canPark {
		ways = append(ways, p.moving)
	}
	for _, w := range ways {
		if got := strings.Join((&performance{t: t, p: p, way: w}).play(), "\n"); got != want {
			t.Errorf("%s: %s\ngot\n%s\nwant\n%s", w, p, got, want)
		}
	}
}

// TestPrograms plays random programs, which are the same each time.
func TestPrograms(t *testing.T) {
	testnet.NoLeaks(t)
	n := 300
	if testing.Short() {
		n = 50
	}
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, 120)
		for i := range data {
			data[i] = byte(rng.UintN(256))
		}
		compare(t, decode(data))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzPrograms plays the fuzzer's programs.
func FuzzPrograms(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 1, 1, 3, 0, 10, 0, 5, 5, 0, 0})
	f.Add([]byte{1, 1, 7, 3, 3, 0, 20, 4, 5, 5, 3, 2})
	f.Fuzz(func(t *testing.T, data []byte) { compare(t, decode(data)) })
}
