package httpadapter

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
)

// A StreamHandler is an http.Handler that serves some HTTP/2 streams below net/http's types, with
// package h2: gRPC calls, for example (see the method Handler of grpcadapter's Server). It has an
// effect only as the Handler of an http.Server itself, not inside another handler, so that no
// middleware is skipped.
type StreamHandler interface {
	// ServeHTTP gets all requests that HTTP2 doesn't serve, so it must serve those streams, too.
	http.Handler

	// Streams returns the handler of those streams, and a function that decides whether a stream is one.
	// Both are called on the goroutine that reads the connection, and must not block. If h is an
	// [h2.ConnHandler] or an [h2.PingHandler], it learns of all connections. It must not use Conn.User,
	// which belongs to this package.
	//
	// takes gets requests with BadTarget, too: it must not take those unless h knows what to do without
	// a method, scheme, authority or path that is valid in HTTP.
	//
	// The http.Server's limits, timeouts and hooks for connections apply. ReadTimeout and WriteTimeout,
	// which are about requests, don't apply to those streams.
	Streams() (h h2.Handler, takes func(*h2.Request) bool)
}

// streamHandlerResets is how many streams a client of a StreamHandler may reset at once: a program may
// end as many watches.
const streamHandlerResets = 20_000

func (s *Server) streamHandler() StreamHandler {
	h, _ := s.user.handler.(StreamHandler)
	return h
}

// shared is the handler of all streams when a StreamHandler takes some of them.
type shared struct {
	*httpstream.Handler
	takes   func(*h2.Request) bool
	streams h2.Handler
	states  h2.ConnHandler // streams, if it is one
	pings   h2.PingHandler // the same
}

func newShared(own *httpstream.Handler, h StreamHandler) *shared {
	s := &shared{Handler: own}
	s.streams, s.takes = h.Streams()
	s.states, _ = s.streams.(h2.ConnHandler)
	s.pings, _ = s.streams.(h2.PingHandler)
	return s
}

func (s *shared) Accept(c *h2.Conn, r *h2.Request) h2.StreamHandler {
	switch {
	case s.takes(r):
		return s.streams.Accept(c, r)
	case r.BadTarget:
		return h2.Refuse(h2.ProtocolError)
	}
	return s.Handler.Accept(c, r)
}

func (s *shared) ConnState(c *h2.Conn, state h2.ConnState) {
	if s.states != nil {
		s.states.ConnState(c, state)
	}
	s.Handler.ConnState(c, state)
}

func (s *shared) Ping(c *h2.Conn, answered bool) {
	if s.pings != nil {
		s.pings.Ping(c, answered)
	}
}

// errorLog makes package h2 log panics of a StreamHandler to the http.Server's log.
type errorLog struct {
	slog.Handler // nil: package h2 adds no attributes, and has no groups
	server       *Server
}

func (l errorLog) Enabled(context.Context, slog.Level) bool { return true }

func (l errorLog) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, " %s=%v", a.Key, a.Value)
		return true
	})
	l.server.logf("%s", text.String())
	return nil
}
