package httpadapter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A side is an http.Server on package net, or on percore with the adapter.
type side struct {
	t       testing.TB
	ln      net.Listener
	states  chan string
	log     testnet.Log
	ours    *Server        // nil on package net
	running sync.WaitGroup // the handlers

	mu   sync.Mutex
	seen []string // guarded by mu; what handlers have noted
}

// The sides of a comparison. The first one is the reference.
var sides = []string{"net", "httpadapter"}

// A sideHandler is an http.HandlerFunc that knows its side.
type sideHandler func(s *side, rw http.ResponseWriter, r *http.Request)

func newSide(t testing.TB, name string, srv *http.Server, handler sideHandler) *side {
	t.Helper()
	s := &side{t: t, states: make(chan string, 1000)}
	srv.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		handler(s, rw, r)
	})
	srv.ErrorLog = log.New(&s.log, "", 0)
	srv.ConnState = func(_ net.Conn, state http.ConnState) { s.states <- state.String() }
	listen, serve, stop := net.Listen, srv.Serve, srv.Close
	if name != sides[0] {
		s.ours = Wrap(srv)
		listen, serve, stop = percore.Listen, s.ours.Serve, s.ours.Close
	}
	ln := testnet.Listen(t, listen, testnet.TCP4)
	s.ln = ln
	served := make(chan error, 1)
	go func() { served <- serve(ln) }()
	t.Cleanup(func() {
		stop()
		testnet.Receive(t, "Serve", served)
	})
	return s
}

func (s *side) dial() net.Conn {
	c := testnet.Dial(s.t, s.ln)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c
}

func (s *side) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf(format, args...))
}

// statesUntilClosed returns what ConnState was told of the only connection.
func (s *side) statesUntilClosed() string {
	var all []string
	for {
		state := testnet.Receive(s.t, "StateClosed", s.states)
		all = append(all, state)
		if state == "closed" || state == "hijacked" {
			return strings.Join(all, " ")
		}
	}
}

// result returns everything that a connection has left behind, once it is closed.
func (s *side) result(answers string) string {
	states := s.statesUntilClosed()
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("answers: %q\nstates: %s\nhandler: %q\nlog: %q", answers, states, s.seen, s.log.String())
}

// onAllSides plays the same on all sides, and returns the result on package net. Each must give the
// same.
func onAllSides(t *testing.T, what string, play func(name string) string) (want string) {
	t.Helper()
	for i, name := range sides {
		got := play(name)
		if i == 0 {
			want = got
		} else if !sameResult(got, want) {
			t.Errorf("%s, %s:\n%s\nwant, as on package net:\n%s", what, name, got, want)
		}
	}
	return want
}

// readAll reads to the end of a connection. Dates are left out.
func readAll(c net.Conn) string {
	b, err := io.ReadAll(c)
	text := string(b)
	if errors.Is(err, syscall.ECONNRESET) {
		text += resetMark // net/http closed with bytes unread: that depends on the reads
	} else if err != nil {
		text += "!" + err.Error()
	}
	return undated(text)
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

// TestCutOffBody: a body that ends too early leads to the same bytes and states as with net/http,
// whatever the handler does with it.
func TestCutOffBody(t *testing.T) {
	needParking(t)
	for name, read := range map[string]sideHandler{
		"read": func(s *side, rw http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			s.note("%q %v", b, err)
		},
		"read, closed": func(s *side, rw http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			s.note("%q %v %v", b, err, r.Body.Close())
		},
		"closed": func(s *side, rw http.ResponseWriter, r *http.Request) { s.note("%v", r.Body.Close()) },
		"read a part, closed": func(s *side, rw http.ResponseWriter, r *http.Request) {
			r.Body.Read(make([]byte, 2))
			s.note("%v", r.Body.Close())
		},
		"read a part": func(s *side, rw http.ResponseWriter, r *http.Request) { r.Body.Read(make([]byte, 2)) },
		"ignored":     func(s *side, rw http.ResponseWriter, r *http.Request) {},
		"answered, flushed, and read": func(s *side, rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "x")
			s.note("%v", http.NewResponseController(rw).Flush())
			b, err := io.ReadAll(r.Body)
			s.note("%q %v", b, err)
		},
		"full duplex, closed late": func(s *side, rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			io.WriteString(rw, "x")
			s.note("%v", http.NewResponseController(rw).Flush())
			s.note("%v", r.Body.Close())
		},
	} {
		for _, came := range []string{"", "body"} {
			t.Run(name+"/"+came, func(t *testing.T) {
				onAllSides(t, name, func(name string) string {
					s := newSide(t, name, &http.Server{}, read)
					c := s.dial()
					defer c.Close()
					io.WriteString(c, "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n"+came)
					c.(*net.TCPConn).CloseWrite()
					return s.result(readAll(c))
				})
			})
		}
	}
}

// TestPrefaceAfterRequests: a connection that has had requests never switches to HTTP/2, wherever
// the preface is cut.
func TestPrefaceAfterRequests(t *testing.T) {
	needParking(t)
	const frames = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, between := range []string{"at once", "parked"} {
		for cut := range len("PRI * HTTP/2.0\r\n\r\n") { // before the answer
			t.Run(fmt.Sprint(between, " ", cut), func(t *testing.T) {
				onAllSides(t, between, func(name string) string {
					srv := &http.Server{Protocols: new(http.Protocols)}
					srv.Protocols.SetHTTP1(true)
					srv.Protocols.SetUnencryptedHTTP2(true)
					s := newSide(t, name, srv, func(s *side, rw http.ResponseWriter, r *http.Request) {
						s.note("%s %s %s", r.Method, r.RequestURI, r.Proto)
						io.WriteString(rw, r.Method)
					})
					c := s.dial()
					defer c.Close()
					first := request("/first")
					answer := ""
					if between == "parked" {
						io.WriteString(c, first)
						resp, err := http.ReadResponse(bufio.NewReader(c), nil)
						if err != nil {
							t.Fatal(err)
						}
						b, _ := io.ReadAll(resp.Body)
						answer, first = string(b), ""
						if s.ours != nil {
							testnet.Eventually(t, "parking", func() bool { return s.ours.Stats().Parked == 1 })
						}
					}
					io.WriteString(c, first+preface[:cut])
					io.WriteString(c, preface[cut:]+frames)
					return s.result(answer + readAll(c))
				})
			})
		}
	}
}

// TestLateWriteHeader: a call of WriteHeader after the handler has returned is logged.
func TestLateWriteHeader(t *testing.T) {
	needParking(t)
	onAllSides(t, "late", func(name string) string {
		late, told := make(chan http.ResponseWriter, 1), make(chan bool)
		s := newSide(t, name, &http.Server{}, func(_ *side, rw http.ResponseWriter, _ *http.Request) { late <- rw })
		c := s.dial()
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
		result := readAll(c)
		states := s.statesUntilClosed()
		go func() {
			(<-late).WriteHeader(500)
			close(told)
		}()
		<-told
		return result + states + s.log.String()
	})
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
