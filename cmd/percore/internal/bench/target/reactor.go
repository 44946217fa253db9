package target

import (
	"github.com/percore/percore/adapters/reactor"
)

// newEventServer returns a server of event handlers, with the defaults of package reactor.
func newEventServer(app *App) (*server, error) {
	all, err := reactor.New(handler{app}, reactor.Config{})
	if err != nil {
		return nil, err
	}
	app.Broadcast = func(p []byte) { all.Broadcast(p, nil) }
	return &server{serve: all.Serve}, nil
}

// handler is a reactor.Handler that keeps nothing.
type handler struct{ app *App }

func (h handler) Data(c *reactor.Conn, p []byte) (used int) {
	used, err := h.app.Data(c, p)
	if err != nil {
		c.Abort()
	}
	return used
}

func (h handler) Open(*reactor.Conn)         {}
func (h handler) Close(*reactor.Conn, error) {}
