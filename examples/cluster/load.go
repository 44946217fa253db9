package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	mathrand "math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	rate      = 100             // messages per second of all clients together
	settle    = 2 * time.Minute // for the last messages to come
	joinPause = 2 * time.Second // before a client joins again, at most
)

// errLost ends a client that was told of a gap, or to which messages came twice or out of order.
var errLost = errors.New("messages are lost, or out of order")

// A client is a member of the hub that stays one: it joins again, at another process if need be, goes on
// after the last message that it has, and sends again what it has not heard.
type client struct {
	servers []string   // addresses of the processes
	query   url.Values // of its requests to join

	mu      sync.Mutex
	joins   int
	ws      *websocket.Conn // nil while there is none
	unheard []said          // that were sent, in order
	after   uint64          // the id of the last message that has come
	heard   []string        // all messages that have come, with their ids
}

func newClient(servers []string, room, name string) *client {
	return &client{servers: servers, query: url.Values{"room": {room}, "name": {name}}}
}

// newClients returns members of some new rooms: i%rooms is the room of number i.
func newClients(servers []string, members, rooms int) (all []*client) {
	prefix := rand.Text()[:8]
	for i := range members {
		all = append(all, newClient(servers, fmt.Sprint(prefix, i%rooms), fmt.Sprint("member-", i)))
	}
	return all
}

// talk makes the members of some rooms join, talk for a while, and hear everything. It returns what is
// wrong.
func talk(ctx context.Context, clients []*client, rooms int, duration time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	for _, c := range clients {
		running.Go(func() {
			if err := c.run(ctx); err != nil {
				stop(err)
			}
		})
	}
	if err := await(ctx, clients, "joined", func(_ int, c *client) bool { return c.joins > 0 }); err != nil {
		return err
	}
	log.Printf("%d members talk for %v", len(clients), duration)
	sent := make([]int, rooms)
	for range int(duration * rate / time.Second) {
		select {
		case <-time.After(time.Second / rate):
			i := mathrand.IntN(len(clients))
			sent[i%rooms]++
			clients[i].send("hello at " + time.Now().Format(time.StampMilli))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := await(ctx, clients, "heard everything", func(i int, c *client) bool { return len(c.heard) == sent[i%rooms] })
	if err != nil {
		return err
	}
	joins := -len(clients)
	for i, c := range clients {
		c.has(func(*client) bool { joins += c.joins; return true })
		if !slices.Equal(c.heard, clients[i%rooms].heard) {
			return fmt.Errorf("members %d and %d have heard different things", i, i%rooms)
		}
	}
	log.Printf("sent %d, joined again %d", sent, joins)
	return nil
}

// await waits until all clients have done something.
func await(ctx context.Context, clients []*client, what string, has func(int, *client) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settle, errors.New("not all members have "+what))
	defer cancel()
	for i, c := range clients {
		for !c.has(func(c *client) bool { return has(i, c) }) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// has calls f with the mutex held.
func (c *client) has(f func(*client) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c)
}

// run is the client until ctx ends, or it is told of a message too few or too many.
func (c *client) run(ctx context.Context) error {
	for i := mathrand.IntN(len(c.servers)); ctx.Err() == nil; i++ {
		if err := c.stay(ctx, c.servers[i%len(c.servers)]); errors.Is(err, errLost) {
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
	ws, _, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+server+"/hub?"+c.query.Encode(), nil)
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
		if err := ws.ReadJSON(&e); err != nil {
			return err
		}
		if err := c.hear(e); err != nil {
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
	for _, s := range c.unheard {
		c.writeLocked(s)
	}
}

// hear takes a message, which the client itself may have sent.
func (c *client) hear(e event) error {
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
	c.heard = append(c.heard, fmt.Sprint(e.ID, s.From, s.Text))
	if len(c.unheard) > 0 && c.unheard[0].Key == s.Key {
		c.unheard = c.unheard[1:]
	}
	return nil
}

// send sends a message. Without a connection the client does that when it has joined again.
func (c *client) send(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := said{Key: rand.Text(), Text: text}
	c.unheard = append(c.unheard, s)
	c.writeLocked(s)
}

func (c *client) writeLocked(s said) {
	if c.ws != nil {
		c.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
		if c.ws.WriteJSON(s) != nil {
			c.ws.Close() // run joins again
		}
	}
}
