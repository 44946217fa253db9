// Command gateway forwards TCP connections to a backend with event handlers. A pair of connections
// takes about a kilobyte while nothing comes, and at most some 100 KiB for each direction, however fast
// one side sends and however slowly the other reads.
//
//	go run ./gateway -addr localhost:9000 -to localhost:8080
//
// Example proxy is shorter, and its bytes stay in the kernel, but it has two goroutines for each
// client.
// Start from this one if most connections are idle, or if the gateway looks at what it forwards.
package main

import (
	"flag"
	"log"

	"github.com/percore/percore"
)

func main() {
	address := flag.String("addr", "localhost:9000", "address to listen on")
	to := flag.String("to", "", "address of the backend")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	g, err := newGateway(*to)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(g.server.Serve(ln))
}
