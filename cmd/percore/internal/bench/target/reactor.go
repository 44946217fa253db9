package target

import (
	"net"

	"github.com/percore/percore/adapters/reactor"
)

// serveEvents serves AppEcho with event handlers.
func serveEvents(l net.Listener) error { return reactor.Serve(l, echoHandler{}) }

// echoHandler sends back everything that it receives.
type echoHandler struct{}

func (echoHandler) Open(*reactor.Conn)         {}
func (echoHandler) Close(*reactor.Conn, error) {}

func (echoHandler) Data(c *reactor.Conn, p []byte) (used int) {
	c.Write(p) // an error ends the connection
	return len(p)
}
