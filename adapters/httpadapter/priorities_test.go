package httpadapter

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/testnet/frames"
)

// A priorityScript is what a client asks for. Its streams have the numbers 3, 5, 7 and so on.
type priorityScript struct {
	requests []asked
	updates  []asked // sent when all answers wait
}

type asked struct {
	id       uint32
	priority string // without its name; "-" for none
	more     []string
	early    string // an update before the request; "-" for none
	frames   int    // of the answer
}

const (
	typePriorityUpdate = 0x10
	frameBytes         = 16 << 10
	connWindow         = 65535
)

// answer writes a body with one call.
func answer(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Path[1:])
	w.Header().Set("Content-Length", strconv.Itoa(n))
	_, _ = w.Write(make([]byte, n))
}

// play opens the streams one after the other, while the window of the connection is closed, and returns
// the streams of the DATA frames that come once it's open.
func (s *priorityScript) play(t *testing.T, start func(net.Conn)) []uint32 {
	ours, theirs := net.Pipe()
	start(ours)
	p := frames.NewPeer(t, theirs, 4, 1<<24) // SETTINGS_INITIAL_WINDOW_SIZE
	var order []uint32
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			var h [9]byte
			if _, err := io.ReadFull(theirs, h[:]); err != nil {
				return
			}
			n := int64(h[0])<<16 | int64(h[1])<<8 | int64(h[2])
			if _, err := io.CopyN(io.Discard, theirs, n); err != nil {
				return
			}
			if h[3] == frames.Data && n > 0 {
				order = append(order, binary.BigEndian.Uint32(h[5:]))
			}
		}
	}()
	request := func(id uint32, bytes int, more ...string) {
		p.Headers(id, true, append([]string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", fmt.Sprint("/", bytes)}, more...)...).Flush()
		synctest.Wait()
	}
	update := func(id uint32, priority string) {
		p.Frame(typePriorityUpdate, 0, 0, append(binary.BigEndian.AppendUint32(nil, id), priority...)).Flush()
		synctest.Wait()
	}
	request(1, connWindow)
	order = order[:0]
	for _, r := range s.requests {
		if r.early != "-" {
			update(r.id, r.early)
		}
		if r.priority != "-" {
			r.more = append(r.more, "priority", r.priority)
		}
		request(r.id, r.frames*frameBytes, r.more...)
	}
	for _, u := range s.updates {
		update(u.id, u.priority)
	}
	if len(order) > 0 {
		t.Errorf("got DATA %v behind the end of the window", order)
	}
	p.Window(0, 1<<30).Flush()
	synctest.Wait()
	_ = theirs.Close()
	<-done
	return order
}

// onNetHTTP starts net/http's server.
func onNetHTTP(srv *http.Server) (start func(net.Conn), stop func()) {
	l := &oneListener{conns: make(chan net.Conn, 1), closed: make(chan bool)}
	done := make(chan bool)
	go func() { _ = srv.Serve(l); close(done) }()
	return func(c net.Conn) { l.conns <- c }, func() { _ = srv.Close(); <-done }
}

// oneListener accepts what it is given.
type oneListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan bool
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, errors.New("closed")
	}
}

func (l *oneListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// onH2 starts the server of HTTP2, without the loops, which are outside of the bubble.
func onH2(srv *http.Server) (start func(net.Conn), stop func()) {
	s := &Server{srv: srv}
	streams := h2.New(&httpstream.Handler{HTTP: srv, Host: bubbleHost{}}, s.http2Config())
	return func(c net.Conn) { _, _ = streams.Attach(c, nil, bubbleConn{}) }, func() { _ = streams.Close() }
}

type bubbleConn struct{}

func (bubbleConn) RemoteText() string             { return "pipe" }
func (bubbleConn) TLSState() *tls.ConnectionState { return nil }
func (bubbleConn) NewContext() (context.Context, semantics.Canceler) {
	ctx, cancel := context.WithCancel(context.Background())
	return ctx, canceler(cancel)
}

// canceler is a semantics.Canceler.
type canceler context.CancelFunc

func (c canceler) Cancel() { c() }

type bubbleHost struct{}

func (bubbleHost) ConnState(*h2.Conn, http.ConnState) {}
func (bubbleHost) KeepAlives() bool                   { return true }
func (bubbleHost) CountDetached(int64)                {}
func (bubbleHost) Logf(string, ...any)                {}

// orders plays a script on net/http and on the server of HTTP2.
func (s *priorityScript) orders(t *testing.T, configure func(*http.Server)) (theirs, ours []uint32) {
	for i, server := range []func(*http.Server) (func(net.Conn), func()){onNetHTTP, onH2} {
		synctest.Test(t, func(t *testing.T) {
			srv := &http.Server{Handler: http.HandlerFunc(answer), Protocols: new(http.Protocols)}
			srv.Protocols.SetUnencryptedHTTP2(true)
			configure(srv)
			start, stop := server(srv)
			order := s.play(t, start)
			stop()
			if i == 0 {
				theirs = order
			} else {
				ours = order
			}
		})
	}
	return theirs, ours
}

// blocks returns where the frames of each stream begin, if they come one behind the other.
func blocks(order []uint32) []uint32 { return slices.Compact(slices.Clone(order)) }

// TestPriorities compares the order of DATA with net/http's, whatever that is: of Go 1.26, in turn; of
// later versions, by RFC 9218.
func TestPriorities(t *testing.T) {
	none := func(*http.Server) {}
	three := func(priorities ...string) (s priorityScript) {
		for i, p := range priorities {
			p, early, ok := strings.Cut(p, "<")
			if !ok {
				early = "-"
			}
			p, via, _ := strings.Cut(p, "|")
			r := asked{id: uint32(2*i + 3), priority: p, early: early, frames: 3}
			if via != "" {
				r.more = []string{via, "a proxy"}
			}
			s.requests = append(s.requests, r)
		}
		return s
	}
	updated := func(s priorityScript, updates ...asked) priorityScript { s.updates = updates; return s }
	for _, test := range []struct {
		name   string
		script priorityScript
	}{
		{"none", three("-", "-", "-", "-")},
		{"urgency", three("u=5", "u=0", "u=7", "u=1")},
		{"urgency, incremental", three("u=5, i", "u=0, i", "u=7, i", "u=1, i")},
		{"incremental", three("i", "i", "i", "u=2", "i")},
		{"urgent ones come last", three("u=7, i", "u=7, i", "u=6, i", "u=6, i", "u=0, i", "u=0, i")},
		{"not aware, then aware", three("-", "-", "u=2", "u=1")},
		{"a proxy", three("u=5|via", "u=0|via", "u=1|via")},
		{"a proxy, by another name", three("u=5|forwarded", "u=0", "u=1", "-")},
		{"a proxy, by the third name", three("u=0, i", "u=7|x-forwarded-for", "u=1", "-")},
		{"a proxy that says nothing of priorities", three("-|via", "u=7, i", "u=0, i")},
		{"values that are none", three("u=9, i", "u=0.5, i", "i, u=x", "i, u=-1")},
		{"update of open streams", updated(three("i", "i", "u=2, i", "u=2, i"), asked{id: 5, priority: "u=1, i"}, asked{id: 7, priority: "u=5, i"})},
		{"update of one that is far behind", updated(three("u=0, i", "u=1, i", "u=7, i"), asked{id: 7, priority: "u=0, i"})},
		{"update that says nothing", updated(three("u=5, i", "u=4, i", "u=7, i"), asked{id: 7, priority: "u=0"}, asked{id: 3, priority: "i"}, asked{id: 5, priority: "i"})},
		{"update before the request", three("i", "i<u=1, i", "u=0, i<u=7, i", "u=0, i")},
		{"update of streams that have ended", updated(three("u=5, i", "u=4, i"), asked{id: 1, priority: "u=0"})},
		{"update to the end of its ring", updated(three("i", "i", "i"), asked{id: 3, priority: "u=1, i"}, asked{id: 3, priority: "i"})},
	} {
		t.Run(test.name, func(t *testing.T) {
			theirs, ours := test.script.orders(t, none)
			if !slices.Equal(theirs, ours) {
				t.Errorf("net/http sent %v, this server %v", theirs, ours)
			}
			t.Log(ours)
		})
	}
}

// TestPrioritiesOneByOne: streams that are not incremental are sent one by one. This server does so in
// the order in which they wait, and net/http begins with the one that it has sent HEADERS of last.
func TestPrioritiesOneByOne(t *testing.T) {
	for name, priorities := range map[string][]string{
		"not incremental":      {"u=3", "u=3", "u=3", "u=3"},
		"no dictionaries":      {"u=0, i=((", "u=1, i,", "=u, i", "-"},
		"of one that is aware": {"i=?0", "-", "-", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			var s priorityScript
			for i, p := range priorities {
				s.requests = append(s.requests, asked{id: uint32(2*i + 3), priority: p, early: "-", frames: 3})
			}
			theirs, ours := s.orders(t, func(*http.Server) {})
			want := []uint32{3, 5, 7, 9}
			if len(blocks(theirs)) > len(want) { // in turn, as with Go 1.26
				want = theirs
			}
			if !slices.Equal(blocks(ours), want) {
				t.Errorf("net/http sent %v, this server %v", theirs, ours)
			}
		})
	}
}

// TestDisableClientPriority: see TestPriorities.
func TestDisableClientPriority(t *testing.T) {
	s := priorityScript{requests: []asked{
		{id: 3, priority: "u=7", early: "u=6", frames: 3},
		{id: 5, priority: "u=0", early: "((", frames: 3},
	}, updates: []asked{{id: 3, priority: "u=1"}}}
	disable := func(srv *http.Server) {
		if f := fieldOfGo127(srv, "DisableClientPriority"); f.IsValid() {
			f.SetBool(true)
		}
	}
	if theirs, ours := s.orders(t, disable); !slices.Equal(theirs, ours) || len(blocks(ours)) != 6 {
		t.Errorf("net/http sent %v, this server %v, want 3 and 5 in turn", theirs, ours)
	}
}

// TestPrioritiesModel plays scripts at random. All streams are incremental: see TestPrioritiesOneByOne,
// and of both kinds of an urgency net/http may begin with either.
func TestPrioritiesModel(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			priority := func() string { return fmt.Sprintf("u=%d, i", rnd.IntN(8)) }
			var s priorityScript
			n := 2 + rnd.IntN(10)
			for i := range n {
				r := asked{id: uint32(2*i + 3), priority: priority(), early: "-", frames: 1 + rnd.IntN(5)}
				if rnd.IntN(4) == 0 {
					r.early = priority()
				}
				s.requests = append(s.requests, r)
			}
			for range rnd.IntN(8) {
				s.updates = append(s.updates, asked{id: uint32(2*rnd.IntN(n) + 3), priority: priority()})
			}
			theirs, ours := s.orders(t, func(*http.Server) {})
			if !slices.Equal(theirs, ours) {
				t.Errorf("%+v: net/http sent %v, this server %v", s, theirs, ours)
			}
		})
	}
}
