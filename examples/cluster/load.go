package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log"
	mathrand "math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	rate        = 100              // messages per second of all clients together
	settle      = 2 * time.Minute  // for the last messages to come
	joinPause   = 2 * time.Second  // before a client joins again, at most
	dialTimeout = 15 * time.Second // the same for the connection
)

// errLost ends a client that was told of a gap, or to which messages came twice or out of order.
var errLost = errors.New("messages are lost, or out of order")

// A load is clients that talk and check each other.
type load struct {
	servers []string // addresses of the processes
	clients []*client
	said    []int // messages, by room
	seed    maphash.Seed
}

// A client is a member of the hub that stays one: it joins again, at another process if need be, goes on
// after the last message that it has, and sends again what it has not heard. The members of a room have
// heard the same if the hashes over all of it are equal.
type client struct {
	load  *load
	room  int
	query url.Values // of its requests to join

	mu      sync.Mutex
	joins   int
	ws      *websocket.Conn // nil while there is none
	unheard []said          // that were sent, in order
	last    uint64          // numbers them
	after   uint64          // the id of the last message that has come
	count   int             // messages that have come
	chain   uint64          // the hash of all their ids, senders and texts in their order
}

func newLoad(servers []string, members, rooms int) *load {
	l := &load{servers: servers, said: make([]int, rooms), seed: maphash.MakeSeed()}
	prefix := rand.Text()[:8]
	for i := range members {
		c := &client{load: l, room: i % rooms}
		c.query = url.Values{"room": {fmt.Sprint(prefix, c.room)}, "name": {fmt.Sprint("member-", i)}, "secret": {rand.Text()}}
		l.clients = append(l.clients, c)
	}
	return l
}

// run makes the clients join, talk for a while, and hear everything. It returns what is wrong.
func (l *load) run(ctx context.Context, duration time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, c := range l.clients {
		running.Go(func() {
			if err := c.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	if err := l.await(ctx, "joined", func(c *client) bool { return c.joins > 0 }); err != nil {
		return err
	}
	log.Printf("%d members talk for %v", len(l.clients), duration)
	ticker := time.NewTicker(time.Second / rate)
	defer ticker.Stop()
	for range int(duration * rate / time.Second) {
		select {
		case <-ticker.C:
			c := l.clients[mathrand.IntN(len(l.clients))]
			l.said[c.room]++
			c.send("hello at " + time.Now().Format(time.StampMilli))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := l.await(ctx, "heard everything", func(c *client) bool { return c.count == l.said[c.room] }); err != nil {
		return err
	}
	joins := 0
	for i, c := range l.clients {
		c.mu.Lock()
		joins += c.joins
		c.mu.Unlock()
		if c.chain != l.clients[c.room].chain {
			return fmt.Errorf("members %d and %d have heard different things", i, c.room)
		}
	}
	log.Printf("said %d, joined again %d", l.said, joins-len(l.clients))
	return nil
}

// await waits until all clients have done something. It calls has with their mutexes held.
func (l *load) await(ctx context.Context, what string, has func(*client) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settle, errors.New("not all members have "+what))
	defer cancel()
	for _, c := range l.clients {
		for !c.has(has) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func (c *client) has(has func(*client) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return has(c)
}

// run is the client until ctx ends, or it is told of a message too few or too many.
func (c *client) run(ctx context.Context) error {
	servers := c.load.servers
	for i := mathrand.IntN(len(servers)); ctx.Err() == nil; i = (i + 1) % len(servers) {
		if err := c.stay(ctx, servers[i]); errors.Is(err, errLost) {
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
func (c *client) stay(ctx context.Context, server string) error {
	if c.joins > 0 {
		c.query.Set("after", strconv.FormatUint(c.after, 10))
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := websocket.Dialer{ReadBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	ws, _, err := dialer.DialContext(dial, "ws://"+server+"/hub?"+c.query.Encode(), nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	var hello event
	if err := ws.ReadJSON(&hello); err != nil {
		return err
	}
	c.joined(ws, hello.ID)
	for {
		var e event
		if err = ws.ReadJSON(&e); err == nil {
			err = c.hear(e, hello.You)
		}
		if err != nil {
			c.left()
			return err
		}
	}
}

// joined makes ws the connection for what is sent, beginning with all that was not heard.
func (c *client) joined(ws *websocket.Conn, after uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joins++
	c.ws, c.after = ws, after
	c.writeLocked(c.unheard)
}

func (c *client) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ws = nil
}

// hear takes a message, which the client itself may have sent.
func (c *client) hear(e event, you string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Gap || e.ID <= c.after {
		return fmt.Errorf("%w: after %d came %+v", errLost, c.after, e)
	}
	var s said
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return err
	}
	c.after = e.ID
	c.count++
	c.chain = maphash.String(c.load.seed, fmt.Sprint(c.chain, e.ID, s.From, s.Text))
	if s.Member == you && len(c.unheard) > 0 && c.unheard[0].N == s.N {
		c.unheard = c.unheard[1:]
	}
	return nil
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
