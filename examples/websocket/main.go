// Command websocket is a hub: each member's messages go to all members. A silent member holds
// neither a goroutine nor memory for reading.
//
//	go run ./websocket
//
// Open http://localhost:8080 in two windows to talk from one to the other.
package main

import (
	"context"
	_ "embed"
	"flag"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// maxConns limits the open connections. Further clients wait to be accepted.
const maxConns = 10_000

//go:embed page.html
var page []byte

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	lc := percore.ListenConfig{MaxConns: maxConns}
	ln, err := lc.Listen(context.Background(), "tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes. Then it tells the members to go away, spread over
// some seconds, because Shutdown leaves their connections alone.
func serve(ctx context.Context, ln net.Listener) error {
	hub := newHub()
	defer hub.close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	mux.HandleFunc("GET /hub", hub.join)
	server := httpadapter.Wrap(&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute})
	service := handover.Service{Parts: []handover.Part{{Name: "hub", Listener: ln, Server: server}}, Conns: &hub.conns}
	return service.Run(ctx)
}
