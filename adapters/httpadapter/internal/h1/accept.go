package h1

import (
	"context"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// This file is for the accept loop, which has a connection until it waits for its first byte.

// Accept takes over a connection that the engine has accepted, and that the host has counted.
func (q *Queue) Accept(pc *percore.Conn) {
	q.admitting.Store(true)
	q.newConn(pc).start()
	q.admitting.Store(false)
}

// newConn makes a connection, counts it and calls the hooks for it.
func (q *Queue) newConn(pc *percore.Conn) *Conn {
	s := q.server
	c := &Conn{Conn: pc, queue: q, index: -1}
	if q.TLS != nil {
		c.ext = &connExt{ctx: s.Context, tls: q.TLS((*netConn)(c))}
	} else if seam.ConnInfoOf(pc).Served {
		c.packed.Store(uint32(began | mayFollow))
		q.counts.Add(CountAdopted, 1)
	}
	q.counts.Add(CountConns, 1)
	s.Host.Introduce(c)
	return c
}

// SetContext sets the result of the user's ConnContext. It is for the host's Introduce.
func (c *Conn) SetContext(ctx context.Context) {
	if c.ext == nil {
		c.ext = &connExt{}
	}
	c.ext.ctx = ctx
}

// start lets a new connection wait for its first byte, as long as net/http would. One that has had
// requests in another process waits as an idle one.
func (c *Conn) start() {
	seam.DropFinalizer(c.Conn) // the queue, a worker or net/http refers to it, until it is hijacked
	seam.CountStalls(c.Conn, stalls)
	c.mu.Lock()
	if c.load().has(began) {
		c.setRealDeadlineLocked(c.server().idleDeadline())
	} else {
		c.limitFirstByteLocked()
	}
	if c.state() != stateNew || !c.queue.keep(c) {
		// A hook has closed it, or the server is shut down.
		c.change(connState.close)
		ended := c.endLocked(connState.end)
		c.mu.Unlock()
		_ = c.Conn.Close()
		c.notifyClosed()
		if ended {
			c.Host().Left()
		}
		return
	}
	// If a hook has begun the handshake crypto/tls may have the next bytes in its buffer.
	handshaking := c.TLS() != nil && c.ext.begun.Load()
	c.change(func(s connState) (connState, bool) { return s.keep(handshaking) })
	c.mu.Unlock()
	switch {
	case handshaking:
		(*handshaker)(c).begin()
		return
	case !c.queue.mover.Load().offer(c):
		c.arm()
	}
	c.rested()
}
