package httpadapter

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// This file gives connections that speak another protocol than HTTP/1 and percore's HTTP/2 to net/http,
// once the handshake is over or the preface was read: protocols that the program has put into
// TLSNextProto, and HTTP/2 where whyNetHTTP2 has a reason, or with a cipher suite that net/http refuses.
// Since Go 1.27 no other
// package can call net/http's HTTP/2.
//
// For the states of conn such a connection is hijacked, and given: its reference to the call ends with
// net/http's StateClosed.

// giveToNetHTTP gives a connection that a worker has to net/http, as nc.
func (c *conn) giveToNetHTTP(nc net.Conn) {
	c.mu.Lock()
	_, ok := c.change(connState.give)
	if ok {
		c.queue.forget(c)
	}
	c.mu.Unlock()
	if !ok {
		t := turn{c: c}
		t.finish()
		return
	}
	_ = c.Conn.SetDeadline(time.Time{})
	c.queue.counts.Add(countHTTP2, 1)
	if !c.queue.call.nethttp.push(nc) {
		c.dropGiven(nc)
	}
}

// dropGiven closes a connection that net/http will not accept.
func (c *conn) dropGiven(nc net.Conn) {
	_ = nc.Close()
	c.queue.server.connState(nc, http.StateClosed)
}

// endGiven notes that net/http has closed a connection that it was given.
func (c *conn) endGiven() {
	if _, ok := c.change(connState.endGiven); ok {
		c.queue.call.release()
	}
}

// prefixedConn is a connection of which bytes were read.
type prefixedConn struct {
	net.Conn // a conn
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

// oursOf returns the conn below a connection that a hook gets, or nil if it isn't one of this Server's.
func (s *Server) oursOf(nc net.Conn) *conn {
	if p, ok := nc.(*prefixedConn); ok {
		nc = p.Conn
	}
	if t, ok := nc.(*tls.Conn); ok && t != nil {
		nc = t.NetConn()
	}
	if c, ok := nc.(*conn); ok && c.queue.server == s {
		return c
	}
	return nil
}
