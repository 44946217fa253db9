package httpadapter

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// connHost is the server around an h1Server: what a connection can't decide by itself. The methods may
// be called by any goroutine.
type connHost interface {
	// Introduce calls the hooks for a new connection. It calls setContext if there is a ConnContext.
	Introduce(c *conn)

	// Begins is asked when a request has come. It reports whether that is served: not after Shutdown. It
	// may wait, to find out whether keep-alives are on again.
	Begins() bool

	// Ended reports whether the server shuts down.
	Ended() bool

	// KeepAlives reports whether a connection may wait for another request.
	KeepAlives() bool

	// Draining reports whether answers are to say that their connections are closed.
	Draining() bool

	// Switch takes over a connection that speaks another protocol than HTTP/1: one that a handshake has
	// agreed on, or HTTP/2 if unread, which was read from the connection, begins with its preface. It
	// calls leave.
	Switch(c *conn, unread []byte)

	// Left is called when a connection is hijacked, or finally closed: once for each accept, unless the
	// connection has left.
	Left()

	// Logf writes a line to the server's log.
	Logf(format string, args ...any)
}

// h1Config is what an h1Server is made with. All fields are needed, unless they say what their zero
// value means.
type h1Config struct {
	Host connHost

	HTTP      *http.Server                   // has the handler, and the timeouts and limits
	ConnState func(net.Conn, http.ConnState) // the user's; nil: none
	Context   context.Context                // the parent of the contexts of connections, before ConnContext

	HTTP1      bool          // HTTP/1 is spoken
	ClearHTTP2 bool          // HTTP/2 may be spoken in clear
	FieldsMax  int           // how many lines the fields of a header may have
	BeginTime  time.Duration // see beginTime

	Handshakes *serving.Handshakes
	Limits     *accepting.Limits       // nil: the number of connections is not limited
	Counts     []serving.Cell[counter] // one for each set of workers
}

// h1Server serves HTTP/1 on the connections of a listener.
type h1Server struct {
	// immutable
	h1Config
	queues  []*connQueue
	workers []workers.Pool[*conn]

	addrTexts addrTexts
}

// newH1Server makes a server with a queue for each element of sides, which makes the server's side of TLS
// above a connection that is accepted, or is nil: in clear. It is called by one goroutine at a time.
func newH1Server(config h1Config, sides []func(net.Conn) *tls.Conn) *h1Server {
	s := &h1Server{h1Config: config}
	s.workers = make([]workers.Pool[*conn], min(len(sides), len(s.Counts)))
	for i := range s.workers {
		s.workers[i].Work = (*conn).serve
		s.workers[i].Look = (*conn).visitLoop
		s.workers[i].Socket = (*conn).socket
	}
	for i, side := range sides {
		set := i % len(s.workers)
		s.queues = append(s.queues, &connQueue{server: s, tls: side, workers: &s.workers[set], counts: s.Counts[set]})
	}
	if s.Limits != nil {
		s.Limits.AddIdler(s)
	}
	return s
}

// close ends the workers, once no connection is left.
func (s *h1Server) close() {
	for i := range s.workers {
		s.workers[i].Close()
	}
	s.Limits.RemoveIdler(s)
}

// each calls do for the connections of all queues: see connQueue.each.
func (s *h1Server) each(do func(c *conn)) {
	for _, q := range s.queues {
		q.each(do)
	}
}

// closeKept closes the connections that wait.
func (s *h1Server) closeKept() { s.each((*conn).hangUp) }

// closeServed closes the connections that workers have.
func (s *h1Server) closeServed() { s.each((*conn).closeServed) }

// closeIdle closes the connections between two requests.
func (s *h1Server) closeIdle() { s.each((*conn).hangUpIdle) }

// headerSlop is how many bytes more than MaxHeaderBytes a header may have (initialReadLimitSize).
const headerSlop = 4096

// oddBytesMax returns how long a header may be.
func (s *h1Server) oddBytesMax() int {
	limit := s.HTTP.MaxHeaderBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	return min(limit, math.MaxInt-headerSlop) + headerSlop
}

// plainBytesMost bounds the work of scanning a long plain header again for each of its lines. A longer
// header is odd.
const plainBytesMost = 64 << 10

// plainBytesMax returns the longest header that http1.Scan takes. It is more than turnBytes.
func (s *h1Server) plainBytesMax() int { return min(s.oddBytesMax(), plainBytesMost) }

// isHTTP1 reports whether net/http serves HTTP/1 on a connection for which ALPN
// has chosen the protocol.
func isHTTP1(protocol string) bool {
	switch protocol {
	case "", "http/1.1", "http/1.0":
		return true
	}
	return false
}

// report calls the user's ConnState.
func (c *conn) report(state http.ConnState) {
	if f := c.queue.server.ConnState; f != nil {
		f(c.identity(), state)
	}
}

// reportSafely calls the user's ConnState. It reports false if that has panicked, after which net/http
// closes the connection, too.
func (c *conn) reportSafely(state http.ConnState) (ok bool) {
	if c.queue.server.ConnState == nil {
		return true
	}
	defer func() {
		if reason := recover(); reason != nil {
			c.logPanic(reason)
		}
	}()
	c.report(state)
	return true
}

// logPanic logs a panic of the user's as net/http does.
func (c *conn) logPanic(reason any) {
	if reason == http.ErrAbortHandler {
		return
	}
	const size = 64 << 10
	buf := make([]byte, size)
	buf = buf[:runtime.Stack(buf, false)]
	c.queue.server.Host.Logf("http: panic serving %v: %v\n%s", c.RemoteAddr(), reason, buf)
}
