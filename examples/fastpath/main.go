// Command fastpath serves plain HTTP/1.1 requests without net/http's connection loop. The handlers,
// the server and its options stay the same.
//
//	go run ./fastpath
//	curl http://localhost:8080/
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newServer().Serve(ln))
}

// newServer wraps the program's server.
func newServer() *httpadapter.Server {
	var server *httpadapter.Server
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
		stats := server.FastPathStats()
		fmt.Fprintf(w, "%d requests served on the fast path, others by reason: %v\n", stats.Requests, stats.Declined)
	})
	server = httpadapter.Wrap(&http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
	})
	return server
}
