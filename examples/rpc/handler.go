package main

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/percore/percore/adapters/reactor"
)

// handler answers the calls of all connections.
type handler struct{ methods map[string]method }

// session is a connection's context: how many bytes of arguments its slow calls hold that wait or run.
type session struct{ held atomic.Int64 }

func (h *handler) Open(c *reactor.Conn)       { c.SetUser(new(session)) }
func (h *handler) Close(*reactor.Conn, error) {}

// Data takes one call. The server calls it again with the rest, unless the client has to read answers
// first.
func (h *handler) Data(c *reactor.Conn, p []byte) (used int) {
	frame, used, err := format.Next(p)
	if used == 0 || err != nil {
		if err != nil {
			c.Abort()
		}
		return 0
	}
	number, name, arg, err := parseCall(frame)
	if err != nil {
		c.Abort()
		return used
	}
	m, ok := h.methods[string(name)]
	switch {
	case !ok:
		c.Write(appendAnswer(nil, number, nil, fmt.Errorf("there is no method %q", name)))
	case m.quick:
		answer(c, number, m, arg)
	default:
		callSoon(c, number, m, arg)
	}
	return used
}

// callSoon makes a slow call on a worker, unless the connection is lost before. Workers bounds how many
// calls wait, and they may be long: so the connection isn't read while their arguments hold too much.
func callSoon(c *reactor.Conn, number uint32, m method, arg []byte) {
	s := c.User().(*session)
	arg = bytes.Clone(arg) // the loop reads on
	size := int64(len(arg))
	if s.held.Add(size) > heldMax {
		c.Pause()
		if s.held.Load() <= heldMax { // a call may have ended before Pause
			c.Resume()
		}
	}
	c.GoContext(func(context.Context) {
		answer(c, number, m, arg)
		if s.held.Add(-size) <= heldMax {
			c.Resume()
		}
	})
}

// End is called when the client makes no more calls. It may still read: the connection is closed behind
// its slow calls, which run in order.
func (h *handler) End(c *reactor.Conn, unused []byte) { c.Go(func() { c.Close() }) }

// answer runs a method and sends its result. If the client has left, Write fails, which
// does no harm.
func answer(c *reactor.Conn, number uint32, m method, arg []byte) {
	result, err := m.run(arg)
	if err == nil && len(result) > resultMax {
		err = fmt.Errorf("a result of %d bytes is too long", len(result))
	}
	c.Write(appendAnswer(nil, number, result, err))
}
