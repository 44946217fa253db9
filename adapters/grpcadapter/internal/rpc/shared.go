package rpc

import (
	"github.com/percore/percore/adapters/h2"
)

// This file serves calls on the connections of another HTTP/2 server, which hands the streams of gRPC to
// this one. Such a connection is shared. It gets a conn when it is ready. The conn begins with the first
// call, because many shared connections never have one:
//
//	ctx   ended  meaning                                          leaves by
//	nil   false  it has had no call                               a call: begin; its end
//	set   false  calls are served, and the stats handler knows    its end
//	any   true   it has ended                                     (final)

// Shared returns the handler of the streams of other servers' connections. It is an h2.ConnHandler
// and an h2.PingHandler, and must get the states and PINGs of all connections.
func (s *Server) Shared() h2.Handler { return (*shared)(s) }

// shared is a Server as the handler of shared connections.
type shared Server

// Accept implements [h2.Handler].
func (g *shared) Accept(hc *h2.Conn, r *h2.Request) h2.StreamHandler {
	s := (*Server)(g)
	if v, ok := s.sharedConns.Load(hc); ok && v.(*conn).begin(hc) {
		return v.(*conn).newCall(r)
	}
	return nil // the connection has just ended
}

// ConnState implements [h2.ConnHandler].
func (g *shared) ConnState(hc *h2.Conn, state h2.ConnState) {
	s := (*Server)(g)
	switch state {
	case h2.Ready:
		s.sharedConns.Store(hc, &conn{server: s, counts: s.counters.Next(), shared: true})
	case h2.Closed:
		if v, ok := s.sharedConns.LoadAndDelete(hc); ok {
			v.(*conn).end()
		}
	}
}

// Ping implements [h2.PingHandler]. Clients that have made no call may ping as often as they like.
func (g *shared) Ping(hc *h2.Conn, answered bool) {
	if v, ok := g.sharedConns.Load(hc); ok && v.(*conn).hasBegun() {
		v.(*conn).ping(hc, answered)
	}
}

// begin makes a shared connection ready for its first call. It reports false if it has ended.
func (c *conn) begin(hc *h2.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	if c.ctx == nil {
		c.server.startServing()
		c.peer.Store(newPeer(hc.RemoteAddr(), hc.LocalAddr(), authInfo(hc.TLS())))
		c.ready()
	}
	return true
}

func (c *conn) hasBegun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil && !c.ended
}

func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.closed()
}

// endShared closes the shared connections that have had calls.
func (s *Server) endShared() {
	s.sharedConns.Range(func(hc, v any) bool {
		if v.(*conn).hasBegun() {
			_ = hc.(*h2.Conn).Close()
		}
		return true
	})
}
