package h1

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/workers"
)

// Host is what a connection needs of the server around it. Any goroutine may call the methods.
type Host interface {
	// Introduce calls the hooks for a new connection. It calls SetContext if there is a ConnContext.
	Introduce(c *Conn)

	// Begins reports whether a request that has come is served: not after Shutdown. It may wait, to find
	// out whether keep-alives are on again.
	Begins() bool

	// Ended reports whether the server shuts down.
	Ended() bool

	// KeepAlives reports whether a connection may wait for another request.
	KeepAlives() bool

	// Draining reports whether answers must say that their connections close.
	Draining() bool

	// Switch takes over a connection that speaks another protocol than HTTP/1: the one that the handshake
	// has agreed on, or HTTP/2 if unread, which was read from the connection, is its preface. It calls
	// Leave.
	Switch(c *Conn, unread []byte)

	// Left is called when a connection is hijacked or finally closed, unless it has left: once for each
	// accept.
	Left()

	// Logf writes a line to the server's log.
	Logf(format string, args ...any)
}

// Config is what a Server is made with. Fields are required unless they say what their zero value means.
type Config struct {
	Host Host

	HTTP      *http.Server                   // has the handler, and the timeouts and limits
	ConnState func(net.Conn, http.ConnState) // the user's; nil: none
	Context   context.Context                // the parent of the contexts of connections, before ConnContext

	HTTP1      bool          // HTTP/1 is spoken
	ClearHTTP2 bool          // HTTP/2 may be spoken in clear
	FieldsMax  int           // lines of fields that a header may have
	BeginTime  time.Duration // see BeginTime

	Handshakes *serving.Handshakes
	Limits     *accepting.Limits        // nil: the number of connections is not limited
	Counts     []counters.Cell[Counter] // one for each set of workers
}

// Server serves HTTP/1 on the connections of a listener.
type Server struct {
	// immutable
	Config
	Queues  []*Queue // one for each accept loop
	workers []workers.Pool[*Conn]

	addrTexts addrTexts
}

// New makes a server with a queue for each of sides. A side makes the server's end of TLS above an
// accepted connection, for one goroutine at a time; nil: in cleartext.
func New(config Config, sides []func(net.Conn) *tls.Conn) *Server {
	s := &Server{Config: config}
	s.workers = make([]workers.Pool[*Conn], min(len(sides), len(s.Counts)))
	for i := range s.workers {
		s.workers[i].Work = (*Conn).serve
		s.workers[i].Look = func(c *Conn, linger bool) { serving.Look(c.Conn, linger) }
		s.workers[i].Socket = func(c *Conn) workers.Socket { return serving.Socket(c.Conn) }
	}
	for i, side := range sides {
		set := i % len(s.workers)
		s.Queues = append(s.Queues, &Queue{server: s, TLS: side, workers: &s.workers[set], counts: s.Counts[set]})
	}
	if s.Limits != nil {
		s.Limits.AddIdler(s)
	}
	return s
}

// Close ends the workers, once no connection is left.
func (s *Server) Close() {
	for i := range s.workers {
		s.workers[i].Close()
	}
	s.Limits.RemoveIdler(s)
}

// Each calls do for the connections of all queues: see Queue.each.
func (s *Server) Each(do func(c *Conn)) {
	for _, q := range s.Queues {
		q.each(do)
	}
}

// CloseKept closes the connections that wait.
func (s *Server) CloseKept() { s.closeIf(isKept) }

// CloseServed closes the connections that workers have.
func (s *Server) CloseServed() { s.closeIf(isServed) }

// CloseIdle closes the connections between two requests.
func (s *Server) CloseIdle() { s.closeIf(isIdle) }

func (s *Server) closeIf(is func(connState) bool) { s.Each(func(c *Conn) { c.closeIf(is) }) }

// headerSlop is how many bytes more than MaxHeaderBytes a header may have (initialReadLimitSize).
const headerSlop = 4096

// oddBytesMax returns how long a header may be.
func (s *Server) oddBytesMax() int {
	limit := s.HTTP.MaxHeaderBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	return min(limit, math.MaxInt-headerSlop) + headerSlop
}

// plainBytesMost is how long a plain header may be. It bounds the work of scanning the header again for
// each of its lines.
const plainBytesMost = 64 << 10

// plainBytesMax returns the longest header that http1.Scan takes. It is more than turnBytes.
func (s *Server) plainBytesMax() int { return min(s.oddBytesMax(), plainBytesMost) }

// Report calls the user's ConnState.
func (c *Conn) Report(state http.ConnState) {
	if f := c.server().ConnState; f != nil {
		f(c.Identity(), state)
	}
}

// ReportSafely is Report, and reports false if the user's function has panicked. The caller then closes
// the connection, as net/http does.
func (c *Conn) ReportSafely(state http.ConnState) (ok bool) {
	if c.server().ConnState == nil {
		return true
	}
	defer c.logsPanic()
	c.Report(state)
	return true
}

func (c *Conn) logPanic(reason any) {
	semantics.LogPanic(c.Host().Logf, "http", c.RemoteAddr(), reason)
}

// logsPanic is deferred around a call of the user's.
func (c *Conn) logsPanic() {
	if reason := recover(); reason != nil {
		c.logPanic(reason)
	}
}
