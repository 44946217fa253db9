// Command events is a news ticker of server-sent events: what is posted to it goes to all browsers that
// have its page open, and those that come back after an interruption get what they have missed. A
// browser that waits holds neither a goroutine nor a buffer of the server.
//
//	go run ./events
//	curl -N http://localhost:8080/events &
//	curl -d "it rains" http://localhost:8080/
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/sse"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server := newServer()
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(stop, func() { _ = server.Shutdown(context.Background()) }) // it ends the hub's clients
	if err := server.Serve(ln); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}

// A ticker gives news to the browsers that want them.
type ticker struct {
	hub *sse.Hub

	mu   sync.Mutex // held while news are sent, so that they come in the order of their IDs
	last int        // the ID of the last ones
}

func newServer() *httpadapter.Server {
	t := &ticker{hub: sse.NewHub(sse.Config{Keep: 1000})}
	mux := http.NewServeMux()
	mux.Handle("GET /events", t.hub)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
	mux.HandleFunc("POST /{$}", t.post)
	server := httpadapter.Wrap(&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second})
	server.RegisterOnDrain(t.hub.Close)
	return server
}

func (t *ticker) post(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	_ = t.hub.Broadcast(sse.Event{ID: strconv.Itoa(t.last), Data: string(text)})
}

const page = `<!doctype html><title>News</title><h1>News</h1><ul id="news"></ul>
<script>
new EventSource("/events").onmessage = e => {
	const li = document.createElement("li")
	li.textContent = e.data
	news.prepend(li)
}
</script>
`
