// Command chat sends each line that it receives to all connections. Connections wait without a
// goroutine, and a line for thousands of them is in memory once.
//
//	go run ./chat
//	nc localhost 7000
package main

import (
	"flag"
	"log"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	address := flag.String("addr", "localhost:7000", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newServer().Serve(ln))
}

// lineMax is the longest line that a client may send.
const lineMax = 4 << 10

// newServer makes a server. A client that doesn't read loses its connection once a megabyte waits for
// it.
func newServer() *reactor.Server {
	server, err := reactor.New(nil, reactor.PerLoop(new(chat).room), reactor.ReadBufferMax(lineMax), reactor.WriteHardLimit(1<<20))
	if err != nil {
		panic(err) // an option above makes no sense
	}
	return server
}
