package loop_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
)

// A listener with two loops of its own, which wait on threads that are bound to a processor each,
// instead of in the Go runtime's poller.
func ExampleNewGroup() {
	group, err := loop.NewGroup(loop.Config{Loops: 2, Strategy: loop.Thread, Pin: true})
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
	fmt.Println(stats.Loops, "loops,", stats.Descriptors, "connection, strategy", stats.Strategy)
	// Output: 2 loops, 1 connection, strategy thread
}

// State that belongs to a loop needs no lock: only tasks on the loop touch it, and readiness
// callbacks, which run there as well.
func ExampleLoop_Submit() {
	group, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	l := group.Loop(0)
	hits := make(map[string]int) // belongs to the loop

	var clients sync.WaitGroup
	for range 100 {
		clients.Go(func() {
			l.Submit(func() { hits["index.html"]++ })
		})
	}
	clients.Wait()
	total := make(chan int, 1)
	l.Submit(func() { total <- hits["index.html"] }) // runs after those submitted before
	fmt.Println(<-total, "hits")
	// Output: 100 hits
}
