package httpadapter

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// This file has the hooks that the user has set in the http.Server, and those that the Server puts in
// their place.

// hooks are what the user has set in the http.Server.
type hooks struct {
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
	baseContext func(net.Listener) context.Context
	handler     http.Handler // nil: http.DefaultServeMux
}

// noticeBypass logs a call of the http.Server's own Serve, ListenAndServe or the like. net/http calls
// BaseContext once for each.
func (s *Server) noticeBypass() {
	user := s.srv.BaseContext
	s.srv.BaseContext = func(l net.Listener) context.Context {
		if canPark && !s.used.Load() && callingBase.Load() == 0 && s.bypassed.CompareAndSwap(false, true) {
			s.logf("httpadapter: Wrap was called for the http.Server that serves %s, and then the "+
				"http.Server's own Serve: net/http serves and no connection is parked. Call Serve, "+
				"ServeTLS, ListenAndServe or ListenAndServeTLS of what Wrap has returned", l.Addr())
		}
		if user == nil {
			return context.Background()
		}
		return user(l)
	}
}

// callingBase is how many Servers are calling BaseContext themselves: if an http.Server was wrapped
// twice, the second Server's call is no bypass.
var callingBase atomic.Int32

func (s *Server) callBaseContext(l net.Listener) context.Context {
	callingBase.Add(1)
	defer callingBase.Add(-1) // it may panic
	return s.user.baseContext(l)
}

// connState is the http.Server's ConnState. net/http calls it for guards, for foreign connections, and
// for those that it was given. A program may call it for any connection, as httptest.Server and
// golang.org/x/net/http2 do.
func (s *Server) connState(nc net.Conn, state http.ConnState) {
	if g, ok := nc.(guardConn); ok {
		g.connState(state)
		return
	}
	c := s.oursOf(nc)
	switch {
	case c == nil:
		s.countForeign(state)
	case !c.IsGiven(): // the program calls
	case state == http.StateNew:
		return // the user's hook was called when it was accepted
	default:
		nc = c.Identity()
	}
	if s.user.connState != nil {
		s.user.connState(nc, state)
	}
	if c != nil && state == http.StateClosed {
		c.EndGiven()
	}
}

// countForeign counts the connections that net/http has to itself, for Drain.
func (s *Server) countForeign(state http.ConnState) {
	switch state {
	case http.StateNew:
		s.foreign.Add(1)
	case http.StateHijacked, http.StateClosed:
		s.foreign.Add(-1)
	}
}

// connContext is the http.Server's ConnContext. For connections that net/http was given, the user's was
// called at the accept.
func (s *Server) connContext(ctx context.Context, nc net.Conn) context.Context {
	if _, ok := nc.(guardConn); ok {
		return ctx
	}
	if c := s.oursOf(nc); c != nil {
		return c.Context()
	}
	return s.user.connContext(ctx, nc)
}

// baseContext is the http.Server's BaseContext. The user's was called once for the listener.
func (s *Server) baseContext(l net.Listener) context.Context {
	if own, ok := l.(*nethttpListener); ok && own.call.server == s {
		return own.call.base
	}
	if isStart(l) {
		return context.Background()
	}
	return s.user.baseContext(l)
}
