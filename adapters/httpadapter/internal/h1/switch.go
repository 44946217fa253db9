package h1

import (
	"context"
	"crypto/tls"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/seam"
)

// This file is for connections that speak another protocol than HTTP/1. Their state is hijacked.

func (t *turn) looksForPreface() bool { return t.c.server().ClearHTTP2 && !t.c.load().has(began) }

// beginsHTTP2 reports whether p is the preface, or its beginning, and whether it is whole.
func beginsHTTP2(p []byte) (begins, whole bool) {
	n := min(len(p), len(http2.Preface))
	return string(p[:n]) == http2.Preface[:n], n == len(http2.Preface)
}

// limitPreface sets the deadline for the rest of a preface, unless there is one.
func (t *turn) limitPreface() {
	c := t.c
	limit := c.server().beginTimeout()
	if limit == 0 || c.server().headerTimeout() > 0 {
		return
	}
	if at := instant(monotime.After(limit)); c.real.get() == 0 || at < c.real.get() {
		c.setRealDeadline(at)
	}
}

// becomeHTTP2 gives the connection to the host, with the bytes that were read. It reports false.
func (t *turn) becomeHTTP2(p []byte) bool {
	t.disarm()
	unread := append([]byte(nil), p...)
	t.release()
	t.c.Host().Switch(t.c, unread)
	return false
}

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
		t := turn{c: c}
		t.finish()
		return false
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
func (c *Conn) TLSState() *tls.ConnectionState { return c.stream().tlsState() }

// NewContext makes the context of a request.
func (c *Conn) NewContext() (context.Context, semantics.Canceler) {
	return newRequestContext(c.Context(), c.Conn)
}
