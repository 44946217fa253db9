// Command before counts for each connection, with netpoll: "add 3" answers with the sum so far, "quit"
// ends the connection.
//
//	go run ./migrate/netpoll/before tcp localhost:7000
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/cloudwego/netpoll"
)

func main() {
	ln, err := netpoll.CreateListener(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	loop, err := netpoll.NewEventLoop(serve, netpoll.WithOnConnect(connect), netpoll.WithIdleTimeout(5*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(loop.Serve(ln))
}

// sum is what a connection has counted so far.
type sum struct{ n int }

// sumKey is the key of a connection's sum in its context.
type sumKey struct{}

func connect(ctx context.Context, _ netpoll.Connection) context.Context {
	return context.WithValue(ctx, sumKey{}, new(sum))
}

// serve is called when bytes have come, and again if it leaves some.
func serve(ctx context.Context, c netpoll.Connection) error {
	line, err := c.Reader().Until('\n') // blocks until the line is complete
	if err != nil {
		return err
	}
	defer c.Reader().Release()
	s := ctx.Value(sumKey{}).(*sum)
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
	return nil
}
