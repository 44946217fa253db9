package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	joinPause   = 2 * time.Second // before a client joins again, at most
	dialTimeout = 15 * time.Second
)

// errLost ends a client that was told of a gap, or to which messages came twice or out of order.
var errLost = errors.New("messages are lost, or out of order")

// A client is a member of the hub that stays one: it joins again, at another process if need be, goes on
// after the last message that it has, and sends again what it has not heard.
type client struct {
	// immutable
	servers    []string // addresses of the processes; it starts at one of them by chance
	room, name string
	hear       func(event, said) // called by run

	after *uint64 // owned by run: the last message, nil before the first join

	mu      sync.Mutex
	joins   int
	ws      *websocket.Conn // nil while there is none
	unheard []said          // that were sent, in order
	last    uint64          // numbers them
}

// send sends a message. Without a connection it does that later.
func (c *client) send(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.unheard = append(c.unheard, said{N: c.last, Text: text})
	c.writeLocked(c.unheard[len(c.unheard)-1:])
}

func (c *client) writeLocked(all []said) {
	for _, s := range all {
		if c.ws == nil {
			return
		}
		c.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
		if c.ws.WriteJSON(s) != nil {
			c.ws.Close() // run joins again
			c.ws = nil
		}
	}
}

// use makes ws the connection for what is sent, beginning with all that was not heard.
func (c *client) use(ws *websocket.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joins++
	c.ws = ws
	c.writeLocked(c.unheard)
}

func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws = nil
}

// heard forgets a message that has come back.
func (c *client) heard(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unheard) > 0 && c.unheard[0].N == n {
		c.unheard = c.unheard[1:]
	}
}

// run is the client until ctx ends, or it is told of a message too few or too many.
func (c *client) run(ctx context.Context) error {
	secret := rand.Text()
	for server := mathrand.IntN(len(c.servers)); ctx.Err() == nil; server = (server + 1) % len(c.servers) {
		if err := c.stay(ctx, c.servers[server], secret); errors.Is(err, errLost) {
			return err
		}
		// A chance moment: else all members of a process that has died come at once.
		select {
		case <-time.After(mathrand.N(joinPause)):
		case <-ctx.Done():
		}
	}
	return nil
}

// stay joins at a server, and returns when the connection has ended.
func (c *client) stay(ctx context.Context, server, secret string) error {
	query := url.Values{"room": {c.room}, "name": {c.name}, "secret": {secret}}
	if c.after != nil {
		query.Set("after", strconv.FormatUint(*c.after, 10))
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := websocket.Dialer{ReadBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	ws, _, err := dialer.DialContext(dial, "ws://"+server+"/hub?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	you := ""
	for {
		var e event
		if err := ws.ReadJSON(&e); err != nil {
			return err
		}
		switch {
		case e.You != "":
			you, c.after = e.You, &e.ID
			c.use(ws)
			defer c.leave()
		case e.Gap:
			return fmt.Errorf("%w: a gap after %d", errLost, *c.after)
		case e.ID <= *c.after:
			return fmt.Errorf("%w: %d after %d", errLost, e.ID, *c.after)
		default:
			var s said
			if err := json.Unmarshal(e.Data, &s); err != nil {
				return err
			}
			if *c.after = e.ID; s.Member == you {
				c.heard(s.N)
			}
			c.hear(e, s)
		}
	}
}
