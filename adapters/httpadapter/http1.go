package httpadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// http1Host is a call as the h1.Host of its connections.
type http1Host struct{ *serveCall }

// Introduce calls the user's ConnContext and ConnState for one connection of the call after the other,
// as net/http does.
func (h http1Host) Introduce(c *h1.Conn) {
	user := &h.server.user
	if user.connContext == nil && user.connState == nil {
		return
	}
	h.introducing.Lock()
	defer h.introducing.Unlock()
	if user.connContext != nil {
		ctx := user.connContext(h.ctx, c.Identity())
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

func (h http1Host) Begins() bool {
	if h.ended.Load() {
		return false
	}
	if h.keepAlivesOff.Load() {
		h.askKeepAlives()
	}
	return true
}

func (h http1Host) Ended() bool    { return h.ended.Load() }
func (h http1Host) Draining() bool { return h.server.draining.Load() }
func (h http1Host) Left()          { h.release() }

func (h http1Host) Switch(c *h1.Conn, unread []byte) {
	call := h.serveCall
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

func callOf(c *h1.Conn) *serveCall { return c.Host().(http1Host).serveCall }
