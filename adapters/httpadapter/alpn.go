package httpadapter

import (
	"net"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// This file gives connections that speak another protocol than HTTP/1 and percore's HTTP/2 to net/http,
// once the handshake is over or the preface was read: protocols that the program has put into
// TLSNextProto, and HTTP/2 where whyNetHTTP2 has a reason, or with a cipher suite that net/http refuses.
// Since Go 1.27 no other package can call net/http's HTTP/2.
//
// For the states of an h1.Conn such a connection is hijacked, and given: its reference to the call ends
// with net/http's StateClosed.

// giveToNetHTTP gives a connection that a worker has to net/http, as nc.
func (call *serveCall) giveToNetHTTP(c *h1.Conn, nc net.Conn) {
	if !c.Leave(true) {
		return
	}
	c.Forget()
	_ = c.Conn.SetDeadline(time.Time{})
	call.server.counts.Add(countHTTP2, 1)
	if !call.nethttp.push(nc) {
		call.dropGiven(nc)
	}
}

// dropGiven closes a connection that net/http will not accept.
func (call *serveCall) dropGiven(nc net.Conn) {
	_ = nc.Close()
	call.server.connState(nc, http.StateClosed)
}

// prefixedConn is a connection from which bytes were already read.
type prefixedConn struct {
	net.Conn // an h1.Conn
	left     []byte
}

// Read reads these bytes first.
func (p *prefixedConn) Read(b []byte) (int, error) {
	if len(p.left) > 0 {
		n := copy(b, p.left)
		p.left = p.left[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// oursOf returns the h1.Conn below a connection that a hook gets, or nil if it isn't one of this
// Server's.
func (s *Server) oursOf(nc net.Conn) *h1.Conn {
	if p, ok := nc.(*prefixedConn); ok {
		nc = p.Conn
	}
	if c := h1.ConnOf(nc); c != nil && callOf(c).server == s {
		return c
	}
	return nil
}
