// Command chat sends each line that it receives to all connections. Connections wait without a
// goroutine, and a line for thousands of them is in memory once.
//
// Clients that write faster than others read are held up, so that each client that reads gets all
// lines. A client that doesn't read loses its connection.
//
//	go run ./chat
//	nc localhost 7000
package main

import (
	"flag"
	"log"
	"time"

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
	log.Fatal(newServer(10 * time.Second).Serve(ln))
}

const lineMax = 4 << 10

// newServer makes a server. A client that has no room for the next line for as long as patience loses
// its connection.
func newServer(patience time.Duration) *reactor.Server {
	ch := &chat{patience: patience}
	server, err := reactor.New(nil, reactor.Config{LoopHandler: ch.room, ReadBufferMax: lineMax, WriteHighWaterMark: unsentMax})
	if err != nil {
		panic(err) // a field above makes no sense
	}
	return server
}
