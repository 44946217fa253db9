// Command resp is a small key-value server that speaks RESP, the protocol of Redis, on package
// reactor: GET, SET, DEL, INCR and PING. A connection that waits holds some hundred bytes. The
// answers to a pipelined burst are sent with one system call.
//
//	go run ./resp
//	redis-cli -p 6380 set greeting hello
//	redis-benchmark -p 6380 -t get,set -P 16
package main

import (
	"context"
	"flag"
	"log"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/loop"
)

func main() {
	address := flag.String("addr", "localhost:6380", "address to listen on")
	loops := flag.Int("loops", 0, "loops; 0 means one per processor")
	thread := flag.Bool("thread", false, "a thread of its own for each loop")
	flag.Parse()

	config := loop.Config{Loops: *loops}
	if *thread {
		config.Strategy = loop.Thread
	}
	group, err := loop.NewGroup(config)
	if err != nil {
		log.Fatal(err)
	}
	lc := percore.ListenConfig{Group: group}
	ln, err := lc.Listen(context.Background(), "tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server, err := newServer(time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(ln))
}

// newServer makes a server with an empty store. A client that doesn't read its answers for as long as
// patience loses its connection.
func newServer(patience time.Duration) (*reactor.Server, error) {
	store := newStore()
	perLoop := func(int) reactor.Handler { return &handler{store: store, patience: patience} }
	return reactor.New(nil, reactor.Config{LoopHandler: perLoop, ReadBufferMax: 2 * bulkMax, WriteHighWaterMark: unsentMax})
}
