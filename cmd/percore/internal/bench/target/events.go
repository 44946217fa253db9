package target

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/sse"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// newEvents returns the handler of AppEvents: each POST's body is an event to all that have made a GET.
// A client gets one event, without data, when it gets all that follow. On the fast path the hub is
// package sse's, else it has a goroutine for each client.
func newEvents(e scenario.Engine) http.Handler {
	var hub interface {
		http.Handler
		Broadcast(e sse.Event) error
	} = &goroutineHub{clients: make(map[chan []byte]bool)}
	if e.Kind == scenario.FastPath {
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

// eventsQueued is how many events may wait for a client of a goroutineHub. The load sends one at a
// time.
const eventsQueued = 16

func (h *goroutineHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	events := make(chan []byte, eventsQueued)
	h.mu.Lock()
	h.clients[events] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.clients, events)
	}()
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
