package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/percore/percore/adapters/reactor"
)

// handler answers the calls of all connections.
type handler struct{ methods map[string]method }

func (h *handler) Open(*reactor.Conn)         {}
func (h *handler) Close(*reactor.Conn, error) {}

// Data takes one call. The server calls it again with the rest, unless the client has to read answers
// first.
func (h *handler) Data(c *reactor.Conn, p []byte) (used int) {
	frame, used, err := cutFrame(p)
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
		arg = bytes.Clone(arg)                                           // the loop reads on
		c.GoContext(func(context.Context) { answer(c, number, m, arg) }) // dropped if the client leaves
	}
	return used
}

// answer runs a method and sends its result. If the client has left, Write fails, which
// does no harm.
func answer(c *reactor.Conn, number uint32, m method, arg []byte) {
	result, err := m.run(arg)
	if err == nil && len(result) > resultMax {
		err = fmt.Errorf("a result of %d bytes is too long", len(result))
	}
	c.Write(appendAnswer(nil, number, result, err))
}
