package target

import (
	"net"

	"github.com/percore/percore/adapters/reactor"
)

// serveEvents is the server AppEcho by event handlers.
func serveEvents(l net.Listener) error { return reactor.Serve(l, echoHandler{}) }

// echoHandler sends back all that comes.
type echoHandler struct{}

func (echoHandler) Open(*reactor.Conn)         {}
func (echoHandler) Close(*reactor.Conn, error) {}

func (echoHandler) Data(c *reactor.Conn, p []byte) (used int) {
	c.Write(p) // an error ends the connection
	return len(p)
}
