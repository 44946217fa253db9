// Command after sends each line that it receives to all connections, with package reactor. A
// client that says nothing for a while is disconnected.
//
//	go run ./migrate/nbio/after tcp localhost:7000
package main

import (
	"bytes"
	"log"
	"os"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	ln, err := percore.Listen(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	ch := &chat{}
	ch.server, err = reactor.New(ch, reactor.Config{IdleTimeout: 5 * time.Minute, ReadBufferMax: lineMax, WriteHardLimit: 1 << 20})
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
