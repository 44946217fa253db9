package httpadapter

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
)

// This file has the hooks: the functions that the user has set in the http.Server, and those that the
// Server puts in their place, which net/http calls.

// hooks are the functions, and the handler, that the user had set in the http.Server.
type hooks struct {
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
	baseContext func(net.Listener) context.Context
	handler     http.Handler // nil: http.DefaultServeMux
}

// noticeBypass logs a call of the http.Server's own Serve, ListenAndServe or the like instead of the
// Server's. net/http calls BaseContext once for each.
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

// callingBase is how many Servers are calling BaseContext themselves: one that was wrapped twice, and
// is used by the second Server, is no bypass.
var callingBase atomic.Int32

// callBaseContext calls the user's BaseContext.
func (s *Server) callBaseContext(l net.Listener) context.Context {
	callingBase.Add(1)
	defer callingBase.Add(-1) // it may panic
	return s.user.baseContext(l)
}

// connState is the http.Server's ConnState. It runs on net/http's goroutines and moves connections
// from one state to the next. The user's hook hears of the connection, but not of its leases.
//
// A program may call it, too, as httptest.Server and golang.org/x/net/http2 do for their own
// connections. A call that net/http does not make in the connection's state comes from the program: it
// is passed to the user's hook, and nothing else happens.
func (s *Server) connState(nc net.Conn, state http.ConnState) {
	c := s.ours(nc)
	if c == nil {
		if g, ok := nc.(guardConn); ok {
			g.connState(state)
		} else {
			s.countForeign(state)
			s.report(nc, state)
		}
		return
	}
	switch state {
	case http.StateNew:
		if _, ok := c.changeLease(leaseState.announce); ok {
			return // the user's hook was called when it was accepted
		}
	case http.StateActive:
		if st := c.lease().phase(); st == phaseArrived || st == phaseClosedInHeader {
			// The first bytes make no request, and nothing came after them. When net/http
			// has waited for them itself it says no StateActive then, since it looks only
			// for bytes that it reads afterwards. (It does say it of a header that it can
			// parse but refuses, such as one without Host. There is no way to tell.)
			return
		}
		c.changeLease(leaseState.completeHeader) // SetReadDeadline may have noted that before
	case http.StateIdle:
		// The user first: a deadline that he sets now is one that net/http replaces.
		s.report(c.identity(), state)
		c.changeLease(leaseState.finish)
		if call := c.queue.call; call.keepAlivesOff.Load() {
			call.lookAgain()
		}
		return
	case http.StateHijacked:
		c.hijacked()
	case http.StateClosed:
		if c.leaseClosed() {
			return // parked
		}
	}
	s.report(c.identity(), state)
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

// report calls the user's ConnState.
func (s *Server) report(nc net.Conn, state http.ConnState) {
	if s.user.connState != nil {
		s.user.connState(nc, state)
	}
}

// reportSafely calls the user's ConnState for c. It reports false if that has panicked, after which
// net/http closes the connection, too.
func (s *Server) reportSafely(c *conn, state http.ConnState) (ok bool) {
	if s.user.connState == nil {
		return true
	}
	defer func() {
		if reason := recover(); reason != nil {
			s.logPanic(c, reason)
		}
	}()
	s.report(c.identity(), state)
	return true
}

// connContext is the http.Server's ConnContext. The user's was called when the
// connection was accepted.
func (s *Server) connContext(ctx context.Context, nc net.Conn) context.Context {
	if c := s.ours(nc); c != nil {
		return c.ext.ctx
	}
	if _, ok := nc.(guardConn); ok {
		return ctx
	}
	return s.user.connContext(ctx, nc)
}

// baseContext is the http.Server's BaseContext. The user's was called once for
// all the queues of a listener.
func (s *Server) baseContext(l net.Listener) context.Context {
	if f, ok := l.(*connQueue); ok && f.server == s {
		return f.call.base
	}
	if probe.IsStart(l) {
		return context.Background()
	}
	return s.user.baseContext(l)
}

// ours returns the connection that nc is a lease of, or nil if it isn't one of
// this Server's.
func (s *Server) ours(nc net.Conn) *conn {
	var c *conn
	switch nc := nc.(type) {
	case *conn:
		c = nc
	case *tlsConn:
		c = nc.conn
	case *tls.Conn:
		if nc != nil {
			c, _ = nc.NetConn().(*conn)
		}
	}
	if c == nil || c.queue.server != s {
		return nil
	}
	return c
}
