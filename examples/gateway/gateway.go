package main

import (
	"errors"
	"log"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

const (
	unsentMax   = 64 << 10 // bytes that wait for one side while the other is read
	dialTimeout = 10 * time.Second
)

// gateway is the handler of the clients' connections and of those to the backend.
type gateway struct {
	server  *reactor.Server
	dialer  percore.Dialer
	backend string
}

func newGateway(backend string) (*gateway, error) {
	if backend == "" {
		return nil, errors.New("-to is missing: give the address of the backend")
	}
	g := &gateway{backend: backend, dialer: percore.Dialer{Timeout: dialTimeout}}
	var err error
	g.server, err = reactor.New(g, reactor.Config{WriteHighWaterMark: unsentMax})
	return g, err
}

// pair is a client's connection and the one to the backend: the context of both, which may be on
// different loops.
//
//	waiting    Open(client): its reading is paused     dialed: together; not reachable: over
//	together   bytes go both ways                      End of one: half
//	half       bytes go one way                        End of the other: over
//	over       both are closed, or about to be         (final)
//
// If a connection fails in any of these, the pair is over.
type pair struct {
	mu              sync.Mutex
	client, backend *reactor.Conn // backend is nil while the pair is waiting
	ended           int           // streams that have come to their end
	over            bool
}

// other returns the connection that c's bytes go to.
func (p *pair) other(c *reactor.Conn) *reactor.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c == p.client {
		return p.backend
	}
	return p.client
}

// Open is called with a client's connection first, and with that to the backend when it is there.
func (g *gateway) Open(c *reactor.Conn) {
	if p, ok := c.User().(*pair); ok {
		p.join(c)
		return
	}
	p := &pair{client: c}
	c.SetUser(p)
	c.Pause()
	c.Go(func() { g.connect(p) })
}

// connect dials, which blocks.
func (g *gateway) connect(p *pair) {
	conn, err := g.dialer.Dial("tcp", g.backend)
	if err == nil {
		if _, err = g.server.Attach(conn, nil, p); err != nil {
			conn.Close()
		}
	}
	if err != nil {
		log.Print(err)
		p.client.Abort()
	}
}

// join gives the pair its backend.
func (p *pair) join(backend *reactor.Conn) {
	p.mu.Lock()
	p.backend = backend
	over := p.over
	p.mu.Unlock()
	if over {
		backend.Abort()
		return
	}
	p.client.Resume()
}

// Data passes bytes on. If they have to wait c isn't read until there is room.
func (g *gateway) Data(c *reactor.Conn, b []byte) (used int) {
	to := c.User().(*pair).other(c)
	if _, err := to.Write(b); err != nil {
		c.Abort()
		return len(b)
	}
	if to.Unsent() > unsentMax {
		c.Pause()
		if to.Unsent() <= unsentMax { // Room may have come before Pause
			c.Resume()
		}
	}
	return len(b)
}

// Room is called when most of what waited for c has been sent.
func (g *gateway) Room(c *reactor.Conn) {
	if from := c.User().(*pair).other(c); from != nil {
		from.Resume()
	}
}

// End passes the end of c's stream on. The other direction goes on.
func (g *gateway) End(c *reactor.Conn, unused []byte) {
	p := c.User().(*pair)
	to := p.other(c)
	to.CloseWrite()
	p.mu.Lock()
	p.ended++
	both := p.ended == 2
	p.mu.Unlock()
	if both {
		c.Close()
		to.Close()
	}
}

// Close closes the other connection, too. If c has failed the other is reset, and what waits for it is
// dropped: its peer sees that its stream is not complete, also if all that came is sent.
func (g *gateway) Close(c *reactor.Conn, err error) {
	p := c.User().(*pair)
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	to := p.other(c)
	switch {
	case to == nil:
	case err == nil:
		to.Close()
	default:
		to.SetLinger(0)
		to.Abort()
	}
}
