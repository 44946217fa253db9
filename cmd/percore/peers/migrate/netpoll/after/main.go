// Command after counts for each connection, with package reactor: "add 3" answers with the sum so
// far, "quit" ends the connection.
//
//	go run ./migrate/netpoll/after tcp localhost:7000
package main

import (
	"bytes"
	"fmt"
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
	log.Fatal(reactor.Serve(ln, server{}, reactor.Config{IdleTimeout: 5 * time.Minute}))
}

// sum is what a connection has counted so far.
type sum struct{ n int }

type server struct{}

func (server) Open(c *reactor.Conn) { c.SetUser(new(sum)) }

func (server) Close(*reactor.Conn, error) {}

// Data is called when bytes have come, and again if it leaves some.
func (server) Data(c *reactor.Conn, p []byte) (used int) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return 0 // it is called again with more
	}
	line := p[:end+1]
	s := c.User().(*sum)
	var n int
	switch _, err := fmt.Sscanf(string(line), "add %d\n", &n); {
	case err == nil:
		s.n += n
		fmt.Fprintln(c, s.n)
	case string(line) == "quit\n":
		fmt.Fprintln(c, "bye")
		c.Close()
	default:
		fmt.Fprintln(c, "what?")
	}
	return len(line)
}
