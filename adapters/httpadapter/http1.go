package httpadapter

import "net/http"

// http1Host is a call as the host of its connections.
type http1Host serveCall

// Introduce implements connHost. It calls the user's ConnContext and ConnState for one connection of the
// call after the other, as net/http does.
func (h *http1Host) Introduce(c *conn) {
	user := &h.server.user
	if user.connContext == nil && user.connState == nil {
		return
	}
	h.introducing.Lock()
	defer h.introducing.Unlock()
	if user.connContext != nil {
		ctx := user.connContext(h.ctx, c.identity())
		if ctx == nil {
			panic("ConnContext returned nil")
		}
		c.setContext(ctx)
	}
	c.report(http.StateNew)
	if c.hasServed() {
		c.report(http.StateIdle)
	}
}

// Begins implements connHost.
func (h *http1Host) Begins() bool {
	if h.ended.Load() {
		return false
	}
	if h.keepAlivesOff.Load() {
		(*serveCall)(h).askKeepAlives()
	}
	return true
}

// Ended implements connHost.
func (h *http1Host) Ended() bool { return h.ended.Load() }

// KeepAlives implements connHost.
func (h *http1Host) KeepAlives() bool { return (*serveCall)(h).keepsAlive() }

// Draining implements connHost.
func (h *http1Host) Draining() bool { return h.server.draining.Load() }

// Switch implements connHost.
func (h *http1Host) Switch(c *conn, unread []byte) {
	call := (*serveCall)(h)
	tc := c.tlsConn()
	switch {
	case call.streams != nil && (tc == nil || call.server.allowsHTTP2(tc.ConnectionState())):
		call.serveHTTP2(c, unread)
	case tc != nil:
		call.giveToNetHTTP(c, tc)
	default:
		call.giveToNetHTTP(c, &prefixedConn{Conn: c, left: unread})
	}
}

// Left implements connHost.
func (h *http1Host) Left() { (*serveCall)(h).release() }

// Logf implements connHost.
func (h *http1Host) Logf(format string, args ...any) { h.server.logf(format, args...) }

// hostOf returns the call that a connection belongs to.
func hostOf(c *conn) *serveCall { return (*serveCall)(c.queue.server.Host.(*http1Host)) }
