package httpadapter

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// This file gives connections that speak another protocol than HTTP/1 and percore's HTTP/2 to the
// functions that the program, or net/http, has put into TLSNextProto, as net/http does ((*conn).serve).
// For the states of conn such a connection is hijacked; its reference to the call ends when the
// function returns.

// nextInClearName is the key in TLSNextProto of the function that serves HTTP/2 in cleartext
// (nextProtoUnencryptedHTTP2). It gets a *tls.Conn that was never used, whose NetConn has a method for
// the real one.
const nextInClearName = "unencrypted_http2"

// nextInClear returns that function, or nil.
func (call *serveCall) nextInClear() func(*http.Server, *tls.Conn, http.Handler) {
	return call.server.srv.TLSNextProto[nextInClearName]
}

// serveNext gives a connection that a worker has to a function of TLSNextProto, which returns when the
// connection ends. It is closed at once if f is nil.
func (c *conn) serveNext(f func(*http.Server, *tls.Conn, http.Handler), to *tls.Conn) {
	call := c.queue.call
	s := call.server
	c.mu.Lock()
	_, ok := c.change(connState.hijack)
	c.mu.Unlock()
	if !ok {
		t := turn{c: c}
		t.finish()
		return
	}
	_ = c.Conn.SetDeadline(time.Time{})
	c.queue.counts.Add(countHTTP2, 1)
	open := call.addNext(c)
	c.mu.Lock()
	c.queue.forget(c)
	c.mu.Unlock()
	defer func() {
		if reason := recover(); reason != nil {
			s.logPanic(c, reason)
		}
		_ = c.identity().Close()
		call.removeNext(c)
		s.reportSafely(c, http.StateClosed)
		call.release()
	}()
	if f != nil && open {
		f(s.srv, to, nextHandler{c})
	}
}

// serveNextInClear gives a connection that has begun with HTTP/2's preface to the function for that.
func (c *conn) serveNextInClear(unread []byte) {
	below := clearConn{conn: &prefixedConn{Conn: c, left: unread[len(preface):]}}
	go c.serveNext(c.queue.call.nextInClear(), tls.Client(below, nil))
}

// addNext notes that a function of TLSNextProto has c. It reports false if the Server was closed.
func (call *serveCall) addNext(c *conn) (open bool) {
	s := call.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.next == nil {
		call.next = make(map[*conn]struct{})
	}
	call.next[c] = struct{}{}
	return !s.mu.closed
}

func (call *serveCall) removeNext(c *conn) {
	s := call.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(call.next, c)
}

// closeNext closes the connections that functions of TLSNextProto have.
func (call *serveCall) closeNext() {
	s := call.server
	s.mu.Lock()
	var all []*conn
	for c := range call.next {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		_ = c.identity().Close()
	}
}

// nextHandler is the handler for such a function (initALPNRequest, unencryptedHTTP2Request).
type nextHandler struct{ conn *conn }

// BaseContext is for net/http's HTTP/2, which looks for it.
func (h nextHandler) BaseContext() context.Context {
	return context.WithValue(h.conn.context(), http.LocalAddrContextKey, h.conn.LocalAddr())
}

// ServeHTTP implements http.Handler.
func (h nextHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.conn
	if r.TLS == nil && c.isTLS() {
		state := c.ext.tls.ConnectionState()
		r.TLS = &state
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.RemoteAddr == "" {
		r.RemoteAddr = c.RemoteAddr().String()
	}
	c.queue.server.oddHandler(r).ServeHTTP(w, r)
}

// clearConn is the connection below the *tls.Conn of that function (unencryptedNetConnInTLSConn).
type clearConn struct {
	net.Conn // nil
	conn     net.Conn
}

// UnencryptedNetConn is looked for by the function.
func (c clearConn) UnencryptedNetConn() net.Conn { return c.conn }

// prefixedConn is a connection of which bytes were read.
type prefixedConn struct {
	net.Conn
	left []byte
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
