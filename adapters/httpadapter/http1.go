package httpadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// This file has what a call is to its connections of HTTP/1: an h1.Host.

// Introduce calls the user's ConnContext and ConnState for one connection of the call after the other,
// as net/http does.
func (call *serveCall) Introduce(c *h1.Conn) {
	user := &call.server.user
	if user.connContext == nil && user.connState == nil {
		return
	}
	call.introducing.Lock()
	defer call.introducing.Unlock()
	if user.connContext != nil {
		ctx := user.connContext(call.ctx, c.Identity())
		if ctx == nil {
			panic("ConnContext returned nil")
		}
		c.SetContext(ctx)
	}
	c.Report(http.StateNew)
	if c.HasServed() {
		c.Report(http.StateIdle)
	}
}

func (call *serveCall) Begins() bool {
	if call.ended.Load() {
		return false
	}
	if call.keepAlivesOff.Load() {
		call.askKeepAlives()
	}
	return true
}

func (call *serveCall) Ended() bool    { return call.ended.Load() }
func (call *serveCall) Draining() bool { return call.server.draining.Load() }
func (call *serveCall) Left()          { call.release() }

func (call *serveCall) Switch(c *h1.Conn, unread []byte) {
	tc := c.TLS()
	switch {
	case call.streams != nil && (tc == nil || call.server.allowsHTTP2(tc.ConnectionState())):
		call.serveHTTP2(c, unread)
	case tc != nil:
		call.giveToNetHTTP(c, tc)
	default:
		call.giveToNetHTTP(c, &prefixedConn{Conn: c.Identity(), left: unread})
	}
}

func callOf(c *h1.Conn) *serveCall { return c.Host().(*serveCall) }
