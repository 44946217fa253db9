package httpadapter

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// connectionsVariable says how many connections TestSameConnection plays, drawn by chance:
//
//	PERCORE_TEST_CONNECTIONS=20000 go test -run TestSameConnection ./adapters/httpadapter
const connectionsVariable = "PERCORE_TEST_CONNECTIONS"

// TestSameConnection plays whole connections to net/http on package net and to Serve on percore: plain
// and odd requests in any order, pipelined and cut anywhere, to handlers that do anything. The bytes
// that come back, the end of the connection, what handlers see, the states and the log must be the same.
//
//  1. A script ends its connection: the client half-closes, closes or resets it, the last request asks
//     for it, or the server is closed or shut down.
//  2. A handler does what its request's field Do says: see perform.
//  3. Where requests and handlers are drawn, they leave out what is left to chance on package net, and
//     what docs/DIFFERENCES.md lists.
//  4. The same holds over TLS, while HandOver calls a give that fails at any moment, and while the
//     connection moves to another Server and back. ConnState then sees several connections, and their
//     states put together must be those of one.
//
// Without the variable above the scripts are the same each time.
func TestSameConnection(t *testing.T) {
	needParking(t)
	testnet.NoLeaks(t)
	cases, seed := 1200, uint64(1)
	if testing.Short() || race.Enabled {
		cases = 120
	}
	if text := os.Getenv(connectionsVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: want the number of connections", connectionsVariable, text)
		}
		cases, seed = n, 0
	}
	seed = testnet.Drawn(t, seed)
	const players = 60 // most of the time they wait for a server that lingers
	var all sync.WaitGroup
	for player := range players {
		r := rand.New(rand.NewPCG(seed, uint64(player)))
		w := []way{withAdapter, withAdapter, withAdapter, byListener}[player%4]
		pair := newPair(t, w, func(srv *http.Server) {
			srv.MaxHeaderBytes, srv.DisableGeneralOptionsHandler = headerMax, player%3 == 2
			if player%4 > 1 {
				srv.TLSConfig, _ = testnet.TLS(t)
			}
		})
		all.Go(func() {
			for range (cases + players - 1) / players {
				pair.play(t, newConnectionScript(r.IntN))
			}
		})
	}
	all.Wait()
}

// TestSameConnectionChosen plays connections that are not drawn: some were served otherwise once, and
// others wait, as few of those that are drawn do.
func TestSameConnectionChosen(t *testing.T) {
	needParking(t)
	const post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
	configure := func(srv *http.Server) { srv.MaxHeaderBytes = headerMax }
	pair := newPair(t, withAdapter, configure)
	overTLS := newPair(t, withAdapter, func(srv *http.Server) {
		configure(srv)
		srv.TLSConfig, _ = testnet.TLS(t)
	})
	for name, script := range map[string]*connectionScript{
		"an empty line behind a GET":                    {pieces: []piece{{request("/"), true}, {text: "\r\n" + request("/x")}}, end: halfCloses},
		"an empty line behind a POST":                   {pieces: []piece{{post, true}, {text: "\r\n" + request("/x")}}, end: halfCloses},
		"a part of one, and a GET":                      {pieces: []piece{{post + "\r\n", true}, {text: request("/x")}}, end: halfCloses},
		"an empty line behind a later GET":              {pieces: []piece{{post, true}, {request("/"), true}, {text: "\r\n" + request("/x")}}, end: halfCloses},
		"a part of a request":                           {pieces: []piece{{request("/") + "GET /x HTTP/1.1\r\n", true}, {text: "Host: h\r\n\r\n"}}, end: halfCloses},
		"an end":                                        {pieces: []piece{{request("/"), true}}, end: halfCloses},
		"an end behind a byte":                          {pieces: []piece{{request("/"), true}, {text: "G"}}, end: halfCloses},
		"an end behind an empty line":                   {pieces: []piece{{request("/"), true}, {text: "\r\n"}}, end: halfCloses},
		"a bad target":                                  {pieces: []piece{{request("/"), true}, {"GET /a%2x?q HTTP/1.1\r\nHost: h\r\n", true}}, end: readsOn},
		"a bad target at first":                         {pieces: []piece{{"GET /a% HTTP/1.1\r\n", true}}, end: readsOn},
		"an empty line, and the beginning of a request": {pieces: []piece{{text: posted("Content-Length: 1") + "b\r\n\r\nGET"}}, end: halfCloses},
		"a wrong line before too many":                  {pieces: []piece{{text: "CONNECT h:443 HTTP/1.1\r\n\x7fx:\r"}, {text: "\n" + strings.Repeat("x:\r\n", 600)}}, end: halfCloses},
		"a Read behind a body that was expected, with full duplex": {pieces: []piece{
			{text: doing("dafp", "Expect: 100-continue", "Transfer-Encoding: chunked") + "1\r\nb\r\n0\r\n\r\n" + request("/next")},
		}, end: halfCloses},

		"files": {pieces: []piece{{doing("8"), true}, {doing("8") + doing("8"), true}}, end: halfCloses},

		// If the client says that the connection closes behind the body, the server doesn't read the rest of
		// that, which may never come. Hijack behind WriteHeader ends the body first.
		"the last body":              {pieces: []piece{{text: doing("w", "Connection: close", "Content-Length: 100") + "x"}}, end: readsOn},
		"the last body, closed":      {pieces: []piece{{text: doing("cw", "Connection: close", "Content-Length: 100") + "x"}}, end: readsOn},
		"a hijacker's body":          {pieces: []piece{{doing("Q", "Content-Length: 4") + "body and ", true}, {text: "more"}}, end: halfCloses},
		"a body before a hijacker's": {pieces: []piece{{text: doing("4h", "Content-Length: 4") + "bodyBEHIND"}}, end: halfCloses},
	} {
		t.Run(name, func(t *testing.T) { pair.play(t, script) })
		t.Run(name+" over TLS", func(t *testing.T) { overTLS.play(t, script) })
	}
}

// TestCutOffBody: a body that ends too early leads to the same as with net/http, whatever the handler
// does with it.
func TestCutOffBody(t *testing.T) {
	needParking(t)
	pair := newPair(t, withAdapter, nil)
	for _, todo := range []string{"", "a", "ac", "c", "p", "pc", "wfa", "dwfc"} {
		for _, came := range []string{"", "body"} {
			pair.play(t, &connectionScript{pieces: []piece{{text: doing(todo, "Content-Length: 10") + came}}, end: halfCloses})
		}
	}
}

// TestPrefaceAfterRequests: a connection that has had requests never switches to HTTP/2, wherever the
// preface is cut.
func TestPrefaceAfterRequests(t *testing.T) {
	needParking(t)
	pair := newPair(t, withAdapter, func(srv *http.Server) {
		srv.Protocols = clearHTTP2(true)
	})
	const frames = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for cut := range len("PRI * HTTP/2.0\r\n\r\n") { // before the answer
		rest := piece{text: preface[cut:] + frames}
		for _, pieces := range [][]piece{{{text: request("/") + preface[:cut]}, rest}, {{request("/"), true}, {text: preface[:cut]}, rest}} {
			pair.play(t, &connectionScript{pieces: pieces, end: readsOn})
		}
	}
}

// TestSameDetached plays connections on which handlers detach answers, and others that don't: see
// performDetached. The client doesn't end its side while an answer waits, which would end the Answer.
func TestSameDetached(t *testing.T) {
	needParking(t)
	testnet.NoLeaks(t)
	cases := 12
	if testing.Short() || race.Enabled {
		cases = 5
	}
	const players = 30 // as in TestSameConnection
	var all sync.WaitGroup
	for player := range players {
		r := rand.New(rand.NewPCG(1, uint64(player)))
		pair := newPair(t, []way{withAdapter, byListener}[player%2], func(srv *http.Server) {
			if player%3 == 1 {
				srv.TLSConfig, _ = testnet.TLS(t)
			}
		})
		all.Go(func() {
			for range cases {
				pair.play(t, newDetachedScript(r.IntN))
			}
		})
	}
	all.Wait()
}

// FuzzSameConnection plays connections that the fuzzer chooses: see TestSameConnection.
func FuzzSameConnection(f *testing.F) {
	needParking(f)
	r := rand.NewChaCha8([32]byte{'c'})
	for range 20 {
		seed := make([]byte, 200)
		r.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		program := testnet.Program(data)
		draw := func(n int) int { return program.Next() % n }
		overTLS := draw(4) == 1
		pair := newPair(t, []way{withAdapter, byListener}[draw(2)], func(srv *http.Server) {
			if srv.MaxHeaderBytes = headerMax; overTLS {
				srv.TLSConfig, _ = testnet.TLS(t)
			}
		})
		pair.play(t, newConnectionScript(draw))
	})
}

// A pair is net/http on package net, and Serve's server on percore. They serve one connection at a time.
type pair struct{ net, percore *side }

// newPair starts both, the second one in the given way. configure, which may be nil, is called with the
// http.Server of each.
func newPair(t testing.TB, w way, configure func(*http.Server)) *pair {
	return &pair{newSide(t, onNet, configure, perform), newSide(t, w, configure, perform)}
}

// headerMax is the MaxHeaderBytes for which scripts are drawn: see cutOff.
const headerMax = 8192

// play plays a script to both, at the same time since they linger. It returns net/http's outcome.
func (p *pair) play(t *testing.T, script *connectionScript) (want string) {
	t.Helper()
	var got string
	var other sync.WaitGroup
	other.Go(func() { got = p.percore.playScript(script) })
	want = p.net.playScript(script)
	other.Wait()
	if !sameResult(got, want) {
		t.Errorf("%v\ngot\n%s\nwant, as on package net,\n%s", script, testnet.Shortened(got), testnet.Shortened(want))
	}
	return want
}

// A connectionScript is a client's side of a connection.
type connectionScript struct {
	pieces []piece
	end    connectionEnd
	moves  moves // for percore's side in clear
}

// moves says what HandOver does while a script is played.
type moves int

const (
	stays  moves = iota // nothing
	fails               // it is called, and no other process takes the connection
	leaves              // the connection goes to another Server, and back
)

// A piece is sent by itself. If await is set, the client waits behind it until the server has sent
// something, or has ended its stream.
type piece struct {
	text  string
	await bool
}

// A connectionEnd is how a connection ends when the client has sent all.
type connectionEnd int

const (
	readsOn    connectionEnd = iota // the client reads until the server ends its stream
	halfCloses                      // it ends its own stream, and reads
	closes                          // it doesn't read

	// The others come when the answer to a request for lastTarget was sent, unless the connection has
	// ended before.

	closesIdle      // as closes
	resetsIdle      // the client resets the connection
	serverCloses    // by its method Close
	serverShutsDown // by Shutdown
)

// lastTarget is what the last request of a connection asks for.
const lastTarget = "/last"

func (s *connectionScript) String() string {
	var b strings.Builder
	for _, piece := range s.pieces {
		fmt.Fprintf(&b, "%s await %t\n", testnet.Shortened(strconv.Quote(piece.text)), piece.await)
	}
	ends := [...]string{"reads on", "half-closes", "closes", "closes when idle", "resets", "the server closes", "the server shuts down"}
	return fmt.Sprint(b.String(), ends[s.end], [...]string{"", ", HandOver fails", ", moving"}[s.moves])
}

// playScript plays the client's side, and returns all that can be seen of the connection.
func (s *side) playScript(script *connectionScript) string {
	from := s.clear()
	c := s.dial()
	defer c.Close()
	stop := func() {}
	if s.way == withAdapter && s.client == nil {
		stop = s.startMoving(script.moves)
		defer stop()
	}
	answers := receive(c)
	for _, piece := range script.pieces {
		io.WriteString(c, piece.text)
		if piece.await {
			answers.awaitMore()
		} else {
			time.Sleep(time.Millisecond) // the server reads the pieces one by one, most of the time
		}
	}
	if script.end > closes {
		s.awaitLast()
	}
	reads := true // otherwise what the client has read depends on when its end arrives
	switch script.end {
	case halfCloses:
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	case closes, closesIdle:
		c.Close()
		reads = false
	case resetsIdle:
		stop() // a connection that was reset is not taken over
		below := c
		if tc, ok := c.(*tls.Conn); ok {
			below = tc.NetConn()
		}
		_ = below.(*net.TCPConn).SetLinger(0)
		below.Close()
		reads = false
	case serverCloses, serverShutsDown:
		stop()
		if script.end == serverShutsDown {
			if err := s.server.Shutdown(s.t.Context()); err != nil {
				s.t.Errorf("Shutdown: %v", err)
			}
		}
		s.close()
		defer func() { s.stage = s.open() }()
	}
	text := answers.all()
	c.Close() // it may have stayed open
	stop()
	if !reads {
		text = ""
	}
	outcome := s.outcome(text, from)
	if script.end == closes {
		return "" // it depends on when the client's reset arrives
	}
	return outcome
}

// awaitLast waits until the last request was answered, or the connection has ended before.
func (s *side) awaitLast() {
	testnet.Eventually(s.t, "the answer to the last request", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.isOverLocked() {
			return true
		}
		if n := len(s.seen); n == 0 || !strings.Contains(s.seen[n-1], lastTarget) || s.onTheWay > 0 {
			return false
		}
		return s.isIdleLocked()
	})
}

// clear forgets what handlers have noted, and returns how long the log is.
func (s *side) clear() (from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.conns = nil, nil
	clear(s.states)
	return len(s.log.String())
}

// outcome returns all that can be seen of a connection, once it is closed: text is what the client got,
// and from is where its part of the log begins.
func (s *side) outcome(text string, from int) string {
	// If a header can be parsed but is refused, StateActive is not reported: see the package's comment.
	states := strings.Replace(s.statesUntilClosed(), "idle active closed", "idle closed", 1)
	s.running.Wait()
	log, _, _ := strings.Cut(testnet.WithoutPorts(s.log.String()[from:]), "\ngoroutine ") // of a panic
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%s\nstates: %s\nhandler:\n\t%s\nlog: %q", strings.ReplaceAll(undated(text), "\r\n", "\n\t"), states, strings.Join(s.seen, "\n\t"), log)
}

// received is what the server has sent.
type received struct {
	more chan struct{} // has an element if there may be more than when it was looked at; closed at the end

	mu    sync.Mutex
	text  []byte // guarded by mu
	err   error  // guarded by mu
	asked int    // how much there was when it was looked at; for the client
}

// receive reads all that c gets.
func receive(c net.Conn) *received {
	r := &received{more: make(chan struct{}, 1)}
	go func() {
		defer close(r.more)
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			r.mu.Lock()
			r.text, r.err = append(r.text, buf[:n]...), err
			r.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case r.more <- struct{}{}:
			default:
			}
		}
	}()
	return r
}

// awaitMore waits for more than the last call has found.
func (r *received) awaitMore() {
	for {
		r.mu.Lock()
		have, err := len(r.text), r.err
		r.mu.Unlock()
		if have > r.asked || err != nil {
			r.asked = have
			return
		}
		<-r.more
	}
}

// goesOn waits for a while, and reports whether there is no end yet.
func (r *received) goesOn(while time.Duration) bool {
	select {
	case _, ok := <-r.more:
		return ok
	case <-time.After(while):
		return true
	}
}

// all returns everything, and how it has ended.
func (r *received) all() string {
	for range r.more {
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch text := string(r.text); {
	case r.err == io.EOF:
		return text
	case errors.Is(r.err, syscall.ECONNRESET):
		return text + resetMark
	case errors.Is(r.err, os.ErrDeadlineExceeded):
		return text + "<stays open>"
	default:
		return text + "!" + r.err.Error()
	}
}

// acts are what a handler can do, one letter each.
var acts = map[rune]func(s *side, rw http.ResponseWriter, r *http.Request) error{
	'a': func(s *side, _ http.ResponseWriter, r *http.Request) error { return s.noteBody(r, r.Body) },
	'b': func(s *side, _ http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, iotest.OneByteReader(r.Body))
	},
	'p': func(s *side, _ http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, io.LimitReader(r.Body, 3))
	},
	'm': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, http.MaxBytesReader(rw, r.Body, tooLarge-1))
	},
	'M': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, http.MaxBytesReader(rw, r.Body, 1<<20))
	},
	'g': func(s *side, _ http.ResponseWriter, r *http.Request) error {
		defer func() { s.note("form %v", r.Form) }()
		return r.ParseForm()
	},
	'7': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, http.MaxBytesReader(rw, http.MaxBytesReader(rw, r.Body, 1000), tooLarge-1))
	},
	'z': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		return s.noteBody(r, http.MaxBytesReader(rw, r.Body, 0))
	},
	'j': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		read := make(chan error)
		go func() { read <- s.noteBody(r, http.MaxBytesReader(rw, r.Body, tooLarge-1)) }()
		return <-read
	},
	'i': func(s *side, rw http.ResponseWriter, r *http.Request) (err error) {
		body, n := http.MaxBytesReader(rw, r.Body, 1<<20), 0
		for p, m := make([]byte, 100), 0; err == nil; n += m {
			m, err = body.Read(p[:7])
		}
		s.note("read %d in pieces", n)
		return err
	},
	'R': copying(func(body io.Reader) (int64, error) { return io.Copy(io.Discard, body) }),
	'I': copying(func(body io.Reader) (int64, error) { return io.CopyN(io.Discard, body, 8_000) }),
	'F': func(s *side, _ http.ResponseWriter, r *http.Request) error {
		f, err := os.CreateTemp(s.t.TempDir(), "")
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := io.Copy(f, r.Body)
		all, _ := os.ReadFile(f.Name())
		s.note("copied %d bytes to a file: %d bytes, %x", n, len(all), sha256.Sum256(all))
		return err
	},
	'G': copying(func(body io.Reader) (int64, error) { // how much is read of the body depends on the way
		f, err := os.CreateTemp("", "percore-")
		if err != nil {
			return 0, err
		}
		os.Remove(f.Name())
		f.Close()
		n, err := io.Copy(f, body)
		if errors.Is(err, os.ErrClosed) {
			err = os.ErrClosed // its text depends on the way
		}
		return n, err
	}),
	'c': func(_ *side, _ http.ResponseWriter, r *http.Request) error { return r.Body.Close() },
	'q': func(_ *side, rw http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		_, writeErr := rw.Write(b)
		return errors.Join(err, writeErr)
	},
	'y': func(s *side, rw http.ResponseWriter, r *http.Request) error {
		echoProxy(nil, &s.log).ServeHTTP(rw, r)
		return nil
	},
	's': func(*side, http.ResponseWriter, *http.Request) error {
		time.Sleep(2 * time.Millisecond)
		return nil
	},
	'n': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		control := http.NewResponseController(rw)
		return errors.Join(control.SetReadDeadline(time.Now().Add(time.Hour)), control.SetWriteDeadline(time.Time{}))
	},
	'N': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		return http.NewResponseController(rw).SetReadDeadline(time.Now().Add(slowTimeout))
	},
	'S': func(_ *side, rw http.ResponseWriter, r *http.Request) error {
		http.ServeContent(rw, r, "file.txt", time.Unix(1e9, 0), strings.NewReader("content"))
		return nil
	},
	'8': func(_ *side, rw http.ResponseWriter, r *http.Request) error {
		http.ServeFile(rw, r, "tls_test.go")
		return nil
	},
	'w': writing("write"),
	'B': writing(strings.Repeat("0123456789", 5000)),
	'W': writing(strings.Repeat("b", 5000)),
	'r': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		_, err := io.Copy(rw, struct{ io.Reader }{strings.NewReader("<html>read from")}) // an io.ReaderFrom, without an o
		return err
	},
	'f': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		return http.NewResponseController(rw).Flush()
	},
	'd': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		return http.NewResponseController(rw).EnableFullDuplex()
	},
	't': withField("Trailer", "X-T, X-U"),
	'T': withField("X-T", "trailer"),
	'u': withField(http.TrailerPrefix+"X-Late", "late"),
	'5': withField("Content-Length", "5"),
	'l': withField("Content-Length", "-1"),
	'k': withField("Connection", "close"),
	'K': withField("Connection", "keep-alive"),
	'e': withField("Transfer-Encoding", "chunked"),
	'E': withField("Transfer-Encoding", "identity"),
	'C': withField("Content-Type", "text/x"),
	'v': func(s *side, rw http.ResponseWriter, _ *http.Request) error {
		s.note("header %v", rw.Header())
		return nil
	},
	'A': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		clear(rw.Header())
		return nil
	},
	'D': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		rw.Header()["Date"], rw.Header()["Content-Type"] = nil, nil
		return nil
	},
	'0': withStatus(http.StatusContinue),
	'1': withStatus(http.StatusEarlyHints),
	'U': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Upgrade", "x")
		rw.WriteHeader(http.StatusSwitchingProtocols)
		return nil
	},
	'2': withStatus(http.StatusNoContent),
	'3': withStatus(http.StatusNotModified),
	'4': withStatus(http.StatusTeapot),
	'P': func(*side, http.ResponseWriter, *http.Request) error { panic("panic") },
	'J': func(*side, http.ResponseWriter, *http.Request) error {
		runtime.Goexit()
		return nil
	},
	'x': func(*side, http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) },
	'h': func(s *side, rw http.ResponseWriter, _ *http.Request) error {
		c, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return err
		}
		_, _, err = http.NewResponseController(rw).Hijack()
		s.note("hijacked again: %v", err)
		for _, lost := range []string{"", "lost"} {
			n, err := io.WriteString(rw, lost)
			s.note("wrote %d bytes: %v", n, err)
			n, err = rw.Write([]byte(lost))
			s.note("wrote %d bytes: %v", n, err)
		}
		rw.WriteHeader(http.StatusInternalServerError)
		s.running.Go(func() { // it may outlive the handler
			defer c.Close()
			io.WriteString(c, "hijacked:")
			buffered.WriteString("buffered:")
			buffered.Flush()
			io.Copy(c, buffered)
		})
		panic(http.ErrAbortHandler)
	},
	'Q': func(s *side, rw http.ResponseWriter, _ *http.Request) error { // for one piece: the figure is left to chance
		c, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return err
		}
		defer c.Close()
		s.note("%d buffered", buffered.Reader.Buffered())
		_, err = io.Copy(c, buffered)
		return err
	},
	'H': func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return err
		}
		io.WriteString(c, "hijacked")
		c.Close()
		panic(http.ErrAbortHandler)
	},
}

func writing(text string) func(*side, http.ResponseWriter, *http.Request) error {
	return func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(rw, text)
		return err
	}
}

func withField(name, value string) func(*side, http.ResponseWriter, *http.Request) error {
	return func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		rw.Header().Set(name, value)
		return nil
	}
}

func withStatus(code int) func(*side, http.ResponseWriter, *http.Request) error {
	return func(_ *side, rw http.ResponseWriter, _ *http.Request) error {
		rw.WriteHeader(code)
		return nil
	}
}

// copying notes how many bytes copy takes from the body.
func copying(copy func(body io.Reader) (int64, error)) func(*side, http.ResponseWriter, *http.Request) error {
	return func(s *side, _ http.ResponseWriter, r *http.Request) error {
		n, err := copy(r.Body)
		s.note("copied %d bytes", n)
		return err
	}
}

// noteBody reads a part of r's body, and notes it together with the trailers.
func (s *side) noteBody(r *http.Request, part io.Reader) error {
	b, err := io.ReadAll(part)
	s.note("read %q, trailers %v", b, r.Trailer)
	return err
}

// perform notes the request, and does what its field Do says. Behind an o it does so under an
// http.TimeoutHandler. It is no method, which net/http would find as the caller when it logs.
func perform(s *side, rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	isPeer := r.RemoteAddr == s.peer
	s.mu.Unlock()
	s.note("%s %s %+v %s %d.%d %q %v length %d %q close %t trailer %v body %t pattern %q TLS %t peer %t", r.Method, r.RequestURI, *r.URL, r.Proto, r.ProtoMajor,
		r.ProtoMinor, r.Host, r.Header, r.ContentLength, r.TransferEncoding, r.Close, r.Trailer, r.Body != http.NoBody, r.Pattern, r.TLS != nil, isPeer)
	performActs(s, rw, r, r.Header.Get("Do"))
}

func performActs(s *side, rw http.ResponseWriter, r *http.Request, todo string) {
	for i, letter := range todo {
		if letter == 'o' {
			rest := func(rw http.ResponseWriter, r *http.Request) { performActs(s, rw, r, todo[i+1:]) }
			r = r.WithContext(context.WithoutCancel(r.Context())) // whose end is the client's
			http.TimeoutHandler(http.HandlerFunc(rest), time.Minute, "late").ServeHTTP(rw, r)
			return
		}
		if strings.ContainsRune("ZYL", letter) {
			performDetached(s, rw, r, todo[i+1:], letter)
			return
		}
		act := acts[letter]
		if act == nil {
			continue
		}
		if err := act(s, rw, r); err != nil {
			s.note("%c: %v", letter, err)
		}
	}
}

// performDetached does the rest by an Answer: before the handler returns with a Z, meanwhile with a Y,
// and with an L when the answer waits. On package net the handler does it.
func performDetached(s *side, rw http.ResponseWriter, r *http.Request, todo string, when rune) {
	if s.way == onNet {
		performActs(s, rw, r, todo)
		return
	}
	err := Detach(rw, r, func(a *Answer) {
		perform := func() {
			performActs(s, a, r, todo)
			a.Close()
		}
		if when == 'Z' {
			perform()
			return
		}
		s.running.Go(func() {
			if when == 'L' {
				testnet.Eventually(s.t, "the answer waiting", func() bool {
					return a.sender.IsIdle() || a.Context().Err() != nil
				})
			}
			perform()
		})
	})
	if err != nil {
		s.note("Detach: %v", err)
	}
}
