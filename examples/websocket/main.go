// Command websocket is a hub: each member's messages go to all members of the room. A silent member
// holds neither a goroutine nor memory for reading.
//
//	go build -o hub ./websocket && ./hub
//	kill -HUP $(pidof hub)
//
// Open http://localhost:8080/#garden in two windows to talk from one to the other. The second command
// replaces the program with the one that is at its path by then: the members stay connected.
package main

import (
	"context"
	_ "embed"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

//go:embed page.html
var page []byte

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	if err := serve(context.Background(), handover.Part{Address: *address}); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes. At SIGHUP the members move to the next process, and
// otherwise they are told to go away, spread over some seconds.
func serve(ctx context.Context, part handover.Part) error {
	hub := newHub()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	mux.HandleFunc("GET /hub", hub.join)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	part.Name, part.Server = "hub", httpadapter.Wrap(srv)
	service := handover.Service{
		Parts:     []handover.Part{part},
		Conns:     &hub.conns,
		Restart:   syscall.SIGHUP,
		AnyParent: true, // no process waits for this one
		Ready: func(listeners []net.Listener) {
			log.Print("process ", os.Getpid(), " serves http://", listeners[0].Addr())
		},
	}
	return service.Run(ctx)
}
