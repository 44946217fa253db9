// Package sse serves server-sent events (WHATWG HTML, section 9.2) to any number of clients. A
// client that waits holds neither a goroutine nor a buffer: see [httpadapter.Detach]. The package is
// experimental.
//
//	hub := sse.NewHub(sse.Config{})
//	server := httpadapter.Wrap(&http.Server{Handler: mux})
//	server.RegisterOnDrain(hub.Close)
//	mux.Handle("/events", hub)
//	...
//	err := hub.Broadcast(sse.Event{Data: "hello"})
//
// Where net/http serves a connection, the same program works, but holds a goroutine for it.
//
// The http.Server's WriteTimeout doesn't limit the whole stream of events, only how long a client
// may take for what is sent to it at once. A client that takes longer is cut off, and comes back.
package sse

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/shared/detached"
)

// A Config configures a Hub. Each field that is zero has the default that its comment names.
type Config struct {
	// Heartbeat is how long a client may hear nothing before it gets a comment: 30 s. The comment shows
	// proxies and the client that the connection is alive, and the hub that the client is. Negative:
	// never.
	Heartbeat time.Duration

	// Retry is how long clients wait at least before they come back after their connection has ended: 2
	// s. Each waits up to twice as long, so that they don't all come back at the same moment.
	Retry time.Duration

	// Keep is how many of the last events with an ID are kept, for clients that come back: none. A client
	// sends the ID of the last event that it got, and gets the events after it, or all kept events if the
	// ID is not among them.
	Keep int

	// Limit is how many bytes may wait for a slow client, besides kept events: 64 KiB. A longer event
	// reaches only clients for which nothing waits.
	Limit int

	// Missed makes an event for a client that was so slow that n events were left out. The client gets it
	// before the next event for which there is room. Without Missed a slow client is cut off, and comes
	// back. Missed must not block, nor call methods of the Hub. If its event isn't valid, it is left out,
	// and Broadcast returns the error.
	Missed func(n int) Event
}

// A Hub is a set of clients. Make it with NewHub. All methods are safe for concurrent use, and never
// wait for a client.
type Hub struct {
	config Config

	mu sync.Mutex

	// guarded by mu
	clients []*client
	kept    []kept
	beat    *time.Timer // runs while there are clients; nil: there were none yet
	closed  bool
}

const (
	heartbeat = 30 * time.Second
	retry     = 2 * time.Second
)

// NewHub makes a hub. It panics if a field but Heartbeat is negative.
func NewHub(c Config) *Hub {
	if c.Retry < 0 || c.Keep < 0 || c.Limit < 0 {
		panic(fmt.Sprintf("sse: NewHub was called with a number that is negative: Retry %v, Keep %d, Limit %d",
			c.Retry, c.Keep, c.Limit))
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, heartbeat)
	c.Retry = min(cmp.Or(c.Retry, retry), math.MaxInt64/2)               // as much again is added to it at most
	c.Limit = min(cmp.Or(c.Limit, detached.DefaultLimit), math.MaxInt/2) // what waits already is added to it
	return &Hub{config: c}
}

// kept is an event that was kept.
type kept struct {
	id    string
	bytes []byte
}

// client is one of a Hub's.
type client struct {
	hub    *Hub
	stream *httpadapter.Answer

	// guarded by hub.mu
	at     int // in hub.clients; -1: it isn't there
	ended  bool
	heard  bool // something since the last beat
	missed int  // events, since one for which there was room
}

// ServeHTTP adds the client of a request to the hub, as Serve does. It answers 500 if that fails.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if w == nil || r == nil {
		panic("sse: ServeHTTP was called with a nil http.ResponseWriter or *http.Request")
	}
	if err := h.Serve(w, r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// Serve adds the client of a request to the hub. Call it last in a handler; w's header may already
// have cookies and the like. It fails if w can't be flushed, or for the reasons of
// [httpadapter.Detach]. When the connection has reached its age by [httpadapter.MaxAge], the answer
// ends, and the client comes back on another connection.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request) error {
	if w == nil || r == nil {
		return errors.New("sse: Serve was called with a nil http.ResponseWriter or *http.Request")
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	if r.ProtoMajor == 1 {
		header.Set("Connection", "close") // so that a client that is to come back chooses a server anew
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return err
	}
	return httpadapter.Detach(w, r, func(s *httpadapter.Answer) {
		c := &client{hub: h, stream: s, at: -1}
		s.OnEnd(c.leave) // not before this function has returned
		c.join(r.Header.Get("Last-Event-ID"))
		s.OnMaxAge(func() { _ = s.Close() })
	})
}

// join adds the client to the hub, or ends it if the hub is closed: an answer other than 200 would keep
// the client from coming back.
func (c *client) join(lastID string) {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = c.sendLocked(h.retryEvent())
	if h.closed {
		_ = c.stream.Close()
		return
	}
	c.replayLocked(lastID)
	if c.ended {
		return
	}
	c.at = len(h.clients)
	h.clients = append(h.clients, c)
	if len(h.clients) == 1 && h.config.Heartbeat > 0 {
		if h.beat == nil {
			h.beat = time.AfterFunc(h.config.Heartbeat/2, h.beats)
		} else {
			h.beat.Reset(h.config.Heartbeat / 2)
		}
	}
}

// replayLocked sends the events that the client has missed since lastID. The limit doesn't apply to
// them.
func (c *client) replayLocked(lastID string) {
	h := c.hub
	if lastID != "" {
		c.stream.SetLimit(math.MaxInt, false)
		from := 1 + slices.IndexFunc(h.kept, func(k kept) bool { return k.id == lastID })
		for _, k := range h.kept[from:] {
			_ = c.sendLocked(k.bytes)
		}
	}
	c.stream.SetLimit(h.config.Limit+c.stream.Unsent(), h.config.Missed == nil)
}

// retryEvent tells a client when to come back.
func (h *Hub) retryEvent() []byte {
	p, _ := Event{Retry: h.config.Retry + rand.N(h.config.Retry)}.Append(nil) // nothing in it is wrong
	return p
}

// leave takes the client out of the hub.
func (c *client) leave(error) {
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c.ended = true
	if c.at < 0 {
		return
	}
	last := len(h.clients) - 1
	other := h.clients[last]
	h.clients[c.at], other.at = other, c.at
	h.clients[last], c.at = nil, -1
	if h.clients = h.clients[:last]; last == 0 && h.beat != nil {
		h.clients = nil
		h.beat.Stop()
	}
}

// beats sends comments to clients that have heard nothing since the last time.
func (h *Hub) beats() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clients {
		if c.heard {
			c.heard = false
		} else {
			_ = c.sendLocked(comment)
		}
	}
	if len(h.clients) > 0 {
		h.beat.Reset(h.config.Heartbeat / 2)
	}
}

// comment is one that says nothing.
var comment = []byte(":\n\n")

// Len returns how many clients there are.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// Broadcast sends an event to all clients, in the order of the calls. It fails, and sends nothing, if
// the event's Type or ID isn't valid. If an event of Config.Missed isn't valid, it fails too, but has
// sent e.
func (h *Hub) Broadcast(e Event) error {
	p, err := e.Append(nil)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.ID != "" && h.config.Keep > 0 {
		h.kept = append(h.kept, kept{e.ID, p})
		h.kept = slices.Delete(h.kept, 0, max(0, len(h.kept)-h.config.Keep))
	}
	for _, c := range h.clients {
		if bad := c.sendEventLocked(p); bad != nil {
			err = bad
		}
	}
	return err
}

// Close ends the answers of all clients, including later ones. The clients come back after a while, at
// different times, to this server's successor: see [httpadapter.Server.RegisterOnDrain].
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.clients {
		_ = c.stream.Close() // leave is called on another goroutine
	}
}

// sendEventLocked sends an event, and before it Missed's event if others were left out. It returns an
// error if Missed's event isn't valid.
func (c *client) sendEventLocked(p []byte) (bad error) {
	missed := c.hub.config.Missed
	if c.missed > 0 {
		var first []byte
		if first, bad = missed(c.missed).Append(nil); bad == nil {
			p = append(first, p...)
		}
	}
	switch err := c.sendLocked(p); {
	case err == nil:
		c.missed = 0
	case missed != nil && errors.Is(err, httpadapter.ErrSlowClient):
		c.missed++
	}
	return bad
}

func (c *client) sendLocked(p []byte) error {
	_, err := c.stream.Write(p)
	if err == nil {
		c.heard = true
		c.stream.Flush()
	}
	return err
}
