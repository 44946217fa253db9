package loop_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
)

// A listener with two loops of its own, which wait on threads instead of in the Go
// runtime's poller.
func ExampleNewGroup() {
	group, err := loop.NewGroup(loop.Config{Loops: 2, Strategy: loop.Thread})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close() // the loops end with the last listener and connection

	lc := percore.ListenConfig{Group: group}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	stats := group.Stats()
	fmt.Println(stats.Loops, "loops,", stats.Descriptors, "connection")
	// Output: 2 loops, 1 connection
}
