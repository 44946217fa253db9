package target

import (
	"fmt"
	"net"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/cmd/percore/internal/bench/kv"
)

// newEventServer returns a server of event handlers, with the defaults of package reactor.
func newEventServer(app string) (server, error) {
	serve := func(h reactor.Handler) server {
		return serverFunc(func(l net.Listener) error { return reactor.Serve(l, h, reactor.Config{}) })
	}
	switch app {
	case AppEcho:
		return serve(echoHandler{}), nil
	case AppHTTP:
		return serve(bareHandler{}), nil
	case AppBroadcast:
		h := &broadcastHandler{}
		var err error
		h.server, err = reactor.New(h, reactor.Config{})
		return h.server, err
	case AppRESP:
		store := kv.New()
		perLoop := reactor.Config{LoopHandler: func(int) reactor.Handler { return &respHandler{store: store} }}
		return serverFunc(func(l net.Listener) error { return reactor.Serve(l, nil, perLoop) }), nil
	}
	return nil, fmt.Errorf("there are no event handlers for %q", app)
}

// stateless is the part of a handler that keeps nothing.
type stateless struct{}

func (stateless) Open(*reactor.Conn)         {}
func (stateless) Close(*reactor.Conn, error) {}

// echoHandler sends back everything that it receives.
type echoHandler struct{ stateless }

func (echoHandler) Data(c *reactor.Conn, p []byte) (used int) {
	c.Write(p) // an error ends the connection
	return len(p)
}

// broadcastHandler sends what it receives to all connections.
type broadcastHandler struct {
	stateless
	server *reactor.Server
}

func (h *broadcastHandler) Data(c *reactor.Conn, p []byte) (used int) {
	if len(p) == Greeting {
		c.Write(p)
	} else {
		h.server.Broadcast(p, nil)
	}
	return len(p)
}

// respHandler serves store's protocol on the connections of a loop.
type respHandler struct {
	stateless
	store   *kv.Store
	answers []byte // reused for each event
}

func (h *respHandler) Data(c *reactor.Conn, p []byte) (used int) {
	var err error
	if h.answers, used, err = h.store.Answer(h.answers[:0], p); err != nil {
		c.Abort()
	} else if len(h.answers) > 0 {
		c.Write(h.answers)
	}
	return used
}
