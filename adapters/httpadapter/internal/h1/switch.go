package h1

import (
	"context"
	"crypto/tls"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/seam"
)

// This file is for connections that speak another protocol than HTTP/1. Their state is hijacked.

// Leave takes a connection from its worker, for another protocol, or for net/http. It reports false if
// the connection was closed before: then it has ended now.
func (c *Conn) Leave(toNetHTTP bool) bool {
	event := connState.hijack
	if toNetHTTP {
		event = connState.give
	}
	c.mu.Lock()
	c.setRealDeadlineLocked(0)
	_, ok := c.change(event)
	c.mu.Unlock()
	if !ok {
		return c.finish()
	}
	seam.CountStalls(c.Conn, nil)
	return true
}

// Forget removes a connection that has left from the queue.
func (c *Conn) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.forget(c)
}

// IsGiven reports whether net/http has the connection.
func (c *Conn) IsGiven() bool { return c.load().has(given) }

// EndGiven notes that net/http has closed a connection that it was given, if it was.
func (c *Conn) EndGiven() {
	if _, ok := c.change(connState.endGiven); ok {
		c.Host().Left()
	}
}

// TLSState returns Request.TLS. It must not be called by two goroutines at a time.
func (c *Conn) TLSState() *tls.ConnectionState { return c.transport().tlsState() }

// NewContext makes the context of a request.
func (c *Conn) NewContext() (context.Context, semantics.Canceler) {
	return newRequestContext(c.Context(), c.Conn)
}
