package target

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/sse"
)

// eventHub sends events to its clients, each of which has made a request of it. A client gets one event,
// without data, when it gets all that follow.
type eventHub interface {
	http.Handler
	Broadcast(e sse.Event) error
}

// newEvents returns the handler of AppEvents: each POST's body is an event to all that have made a GET.
// On the fast path the hub is package sse's, else it has a goroutine for each client.
func newEvents(e Engine) http.Handler {
	var hub eventHub = &goroutineHub{clients: make(map[chan []byte]bool)}
	if e.FastPath {
		hub = sse.NewHub(sse.Config{})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			hub.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = hub.Broadcast(sse.Event{Data: string(body)})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		hello(w, r)
	})
}

// goroutineHub is a hub as programs on net/http have it.
type goroutineHub struct {
	mu      sync.Mutex
	clients map[chan []byte]bool // guarded by mu
}

// eventsQueued is how many events may wait for a client of a goroutineHub. The load sends one at a time.
const eventsQueued = 16

func (h *goroutineHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events := make(chan []byte, eventsQueued)
	h.join(events)
	defer h.leave(events)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	p, err := sse.Event{Retry: 2 * time.Second}.Append(nil)
	for flush := http.NewResponseController(w).Flush; err == nil; {
		if _, err = w.Write(p); err == nil {
			err = flush()
		}
		select {
		case p = <-events:
		case <-r.Context().Done():
			return
		}
	}
}

func (h *goroutineHub) join(events chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients[events] = true
}

func (h *goroutineHub) leave(events chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, events)
}

// Broadcast sends an event to all clients. Those that are slow miss it.
func (h *goroutineHub) Broadcast(e sse.Event) error {
	p, err := e.Append(nil)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for events := range h.clients {
		select {
		case events <- p:
		default:
		}
	}
	return nil
}
