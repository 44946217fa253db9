package httpadapter

import (
	"net"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// This file gives connections to net/http that speak neither HTTP/1 nor percore's HTTP/2: protocols that
// the program has put into TLSNextProto, and HTTP/2 where whyNetHTTP2 has a reason, or with a cipher
// suite that net/http refuses. Since Go 1.27 no other package can call net/http's HTTP/2.
//
// In package h1 such a connection is hijacked, and given: its reference to the call ends with net/http's
// StateClosed.

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

// prefixedConn is a connection from which left was already read, and is read again.
type prefixedConn struct {
	net.Conn // an h1.Conn
	left     []byte
}

func (p *prefixedConn) Read(b []byte) (int, error) {
	if len(p.left) > 0 {
		n := copy(b, p.left)
		p.left = p.left[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// oursOf returns the h1.Conn below a hook's connection, or nil if that isn't this Server's.
func (s *Server) oursOf(nc net.Conn) *h1.Conn {
	if p, ok := nc.(*prefixedConn); ok {
		nc = p.Conn
	}
	if c := h1.ConnOf(nc); c != nil && callOf(c).server == s {
		return c
	}
	return nil
}
