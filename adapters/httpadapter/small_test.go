package httpadapter

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// way says how a server is run.
type way string

const (
	onNet       way = "net/http on package net"
	withAdapter way = "with the adapter"
	byListener  way = withAdapter + ", and a listener of tls.NewListener"
)

// The sides of a comparison. The first one is the reference.
var sides = []way{onNet, withAdapter}

// A side is an http.Server on package net, or on percore with the adapter. It serves one connection at a
// time.
type side struct {
	t         testing.TB
	way       way
	configure func(*http.Server)
	handler   sideHandler
	opts      []Option
	stage     // the server that gets the next connection
	log       testnet.Log
	running   sync.WaitGroup // the handlers

	mu sync.Mutex

	// guarded by mu
	seen     []string              // what handlers have noted
	peer     string                // the client's address
	conns    []net.Conn            // as reported to ConnState: several if the connection moves
	states   map[net.Conn][]string // of each
	onTheWay int                   // connections that move, and were not reported again
}

// A stage is a server of a side.
type stage struct {
	ln     net.Listener
	server testnet.WebServer
	ours   *Server     // server, or nil on package net
	client *tls.Config // for clients; nil: in clear
	close  func()      // ends the server
}

// A sideHandler is an http.HandlerFunc that knows its side.
type sideHandler func(s *side, rw http.ResponseWriter, r *http.Request)

// newSide starts a side. configure, which may be nil, is called with its http.Server, and says by its
// TLSConfig that TLS is served. It may set a handler in place of the side's.
func newSide(t testing.TB, w way, configure func(*http.Server), handler sideHandler, opts ...Option) *side {
	t.Helper()
	s := &side{t: t, way: w, configure: configure, handler: handler, opts: opts, states: make(map[net.Conn][]string)}
	s.stage = s.open()
	return s
}

// open starts a server, which runs until it is closed, or the test ends.
func (s *side) open() (st stage) {
	srv := &http.Server{Handler: s}
	if s.configure != nil {
		s.configure(srv)
	}
	srv.ConnState, srv.ErrorLog = s.connState, log.New(&s.log, "", 0)
	listen := net.Listen
	if st.server = srv; s.way != onNet {
		st.ours = Wrap(srv, s.opts...)
		listen, st.server = percore.Listen, st.ours
	}
	ln := testnet.Listen(s.t, listen, testnet.TCP4)
	st.ln = ln
	serve := func() error { return st.server.Serve(ln) }
	if srv.TLSConfig != nil {
		var config *tls.Config
		config, st.client = testnet.TLS(s.t)
		if s.way == byListener {
			config.NextProtos, srv.TLSConfig = []string{"h2", "http/1.1"}, nil
			serve = func() error { return st.server.Serve(tls.NewListener(ln, config)) }
		} else {
			serve = func() error { return st.server.ServeTLS(ln, "", "") }
		}
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	st.close = sync.OnceFunc(func() {
		st.server.Close()
		if err := testnet.Receive(s.t, "Serve", served); err != http.ErrServerClosed {
			s.t.Errorf("Serve: got %v, want http.ErrServerClosed", err)
		}
	})
	s.t.Cleanup(st.close)
	return st
}

// ServeHTTP calls the side's handler.
func (s *side) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	s.handler(s, rw, r)
}

func (s *side) connState(nc net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[nc] == nil {
		if len(s.conns) > 0 {
			s.onTheWay--
		}
		s.conns = append(s.conns, nc)
	}
	s.states[nc] = append(s.states[nc], state.String())
}

// dial connects, and does a handshake if the side is one of TLS.
func (s *side) dial() net.Conn {
	c := testnet.Dial(s.t, s.ln)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	s.mu.Lock()
	s.peer = c.LocalAddr().String()
	s.mu.Unlock()
	if s.client != nil {
		tc := tls.Client(c, s.client)
		if err := tc.Handshake(); err != nil {
			s.note("handshake: %v", err) // a server's timeout may end it
		}
		return tc
	}
	return c
}

func (s *side) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

// isOverLocked reports whether the last state of the connection was reported.
func (s *side) isOverLocked() bool {
	for _, states := range s.states {
		if last := states[len(states)-1]; last != "closed" && last != "hijacked" {
			return false
		}
	}
	return len(s.conns) > 0 && s.onTheWay == 0
}

// isIdleLocked reports whether the last connection waits for its next request.
func (s *side) isIdleLocked() bool {
	states := s.states[s.conns[len(s.conns)-1]]
	return states[len(states)-1] == "idle"
}

// statesUntilClosed returns what ConnState was told of the only connection, without the states that say
// that it has moved.
func (s *side) statesUntilClosed() string {
	testnet.Eventually(s.t, "the connection's last state", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.isOverLocked()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i, nc := range s.conns {
		states := s.states[nc]
		if i > 0 {
			states = states[1:] // new
			if states[0] == "idle" {
				states = states[1:]
			}
		}
		if i < len(s.conns)-1 {
			states = states[:len(states)-1] // closed
		}
		all = append(all, states...)
	}
	return strings.Join(all, " ")
}

func undated(text string) string {
	for {
		before, after, ok := strings.Cut(text, "Date: ")
		if !ok {
			return text
		}
		_, after, _ = strings.Cut(after, "\r\n")
		text = before + after
	}
}

// TestLateWriteHeader: a call of WriteHeader after the handler has returned is logged.
func TestLateWriteHeader(t *testing.T) {
	needParking(t)
	var got []string
	for _, w := range sides {
		late, told := make(chan http.ResponseWriter, 1), make(chan bool)
		s := newSide(t, w, nil, func(_ *side, rw http.ResponseWriter, _ *http.Request) { late <- rw })
		c := s.dial()
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
		result := undated(receive(c).all()) + s.statesUntilClosed()
		go func() {
			(<-late).WriteHeader(500)
			close(told)
		}()
		<-told
		got = append(got, result+s.log.String())
	}
	if got[0] != got[1] {
		t.Errorf("got\n%s\nwant, as on package net,\n%s", got[1], got[0])
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
