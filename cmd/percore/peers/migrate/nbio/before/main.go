// Command before sends each line that it receives to all connections, with nbio. A client that
// says nothing for a while is disconnected.
//
//	go run ./migrate/nbio/before tcp localhost:7000
package main

import (
	"bytes"
	"log"
	"os"
	"sync"
	"time"

	"github.com/lesismal/nbio"
)

const (
	lineMax = 4 << 10
	idle    = 5 * time.Minute
)

func main() {
	ch := &chat{conns: make(map[*nbio.Conn]bool)}
	engine := nbio.NewEngine(nbio.Config{Network: os.Args[1], Addrs: []string{os.Args[2]}, MaxWriteBufferSize: 1 << 20})
	engine.OnOpen(ch.open)
	engine.OnData(ch.data)
	engine.OnClose(ch.close)
	if err := engine.Start(); err != nil {
		log.Fatal(err)
	}
	select {}
}

type chat struct {
	mu    sync.Mutex
	conns map[*nbio.Conn]bool // guarded by mu
}

// client is a connection's session.
type client struct{ kept []byte } // the beginning of a line

func (ch *chat) open(c *nbio.Conn) {
	c.SetSession(new(client))
	c.SetReadDeadline(time.Now().Add(idle))
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.conns[c] = true
}

func (ch *chat) close(c *nbio.Conn, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	delete(ch.conns, c)
}

func (ch *chat) data(c *nbio.Conn, p []byte) {
	c.SetReadDeadline(time.Now().Add(idle))
	from := c.Session().(*client)
	from.kept = append(from.kept, p...)
	if used := bytes.LastIndexByte(from.kept, '\n') + 1; used > 0 {
		ch.say(from.kept[:used])
		from.kept = append(from.kept[:0], from.kept[used:]...)
	}
	if len(from.kept) > lineMax {
		c.Close()
	}
}

func (ch *chat) say(lines []byte) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for c := range ch.conns {
		c.Write(lines)
	}
}
