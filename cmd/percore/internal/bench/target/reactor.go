package target

import (
	"fmt"
	"net"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// newEventServer returns a server of event handlers, with the defaults of package reactor.
func newEventServer(app string) (*server, error) {
	switch app {
	case scenario.AppEcho:
		return handling(func(c *reactor.Conn, p []byte) int {
			c.Write(p) // an error ends the connection
			return len(p)
		}), nil
	case scenario.AppBroadcast:
		var all *reactor.Server
		all, err := reactor.New(handler(func(c *reactor.Conn, p []byte) int {
			if len(p) == scenario.Greeting {
				c.Write(p)
			} else {
				all.Broadcast(p, nil)
			}
			return len(p)
		}), reactor.Config{})
		if err != nil {
			return nil, err
		}
		return serving(all.Serve), nil
	case scenario.AppRESP:
		store := NewStore()
		perLoop := reactor.Config{LoopHandler: func(int) reactor.Handler {
			var answers []byte // reused for each event of the loop
			return handler(func(c *reactor.Conn, p []byte) (used int) {
				var err error
				if answers, used, err = store.Answer(answers[:0], p); err != nil {
					c.Abort()
				} else if len(answers) > 0 {
					c.Write(answers)
				}
				return used
			})
		}}
		return serving(func(l net.Listener) error { return reactor.Serve(l, nil, perLoop) }), nil
	}
	return nil, fmt.Errorf("there are no event handlers for %q", app)
}

// handling returns a server whose connections have one handler.
func handling(data handler) *server {
	return serving(func(l net.Listener) error { return reactor.Serve(l, data, reactor.Config{}) })
}

// handler is a reactor.Handler that keeps nothing.
type handler func(c *reactor.Conn, p []byte) (used int)

func (h handler) Data(c *reactor.Conn, p []byte) (used int) { return h(c, p) }
func (h handler) Open(*reactor.Conn)                        {}
func (h handler) Close(*reactor.Conn, error)                {}
