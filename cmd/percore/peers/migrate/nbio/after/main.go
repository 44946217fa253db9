// Command after sends each line that it receives to all connections, with package reactor. A
// client that says nothing for a while is disconnected.
//
//	go run ./migrate/nbio/after -addr localhost:7000
package main

import (
	"bytes"
	"flag"
	"log"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	network := flag.String("network", "tcp", "tcp or unix")
	address := flag.String("addr", "localhost:7000", "address to listen on")
	idle := flag.Duration("idle", 5*time.Minute, "how long a client may be silent")
	flag.Parse()

	ln, err := percore.Listen(*network, *address)
	if err != nil {
		log.Fatal(err)
	}
	ch := &chat{}
	ch.server, err = reactor.New(ch,
		reactor.Config{IdleTimeout: *idle, ReadBufferMax: lineMax, WriteHardLimit: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(ch.server.Serve(ln))
}

const lineMax = 4 << 10

type chat struct{ server *reactor.Server }

func (ch *chat) Open(c *reactor.Conn)             {}
func (ch *chat) Close(c *reactor.Conn, err error) {}

func (ch *chat) Data(c *reactor.Conn, p []byte) (used int) {
	used = bytes.LastIndexByte(p, '\n') + 1
	if used > 0 {
		ch.server.Broadcast(p[:used], nil)
	}
	return used
}
