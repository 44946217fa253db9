package sse_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/sse"
)

// A hub is the handler of a path, and sends each event to all clients of that path.
func Example() {
	hub := sse.NewHub(sse.Config{Keep: 100}) // for clients that come back after a short break
	mux := http.NewServeMux()
	mux.Handle("GET /events", hub)
	server := httpadapter.Wrap(&http.Server{Handler: mux})
	server.RegisterOnDrain(hub.Close) // Shutdown waits for the answers
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ln)

	resp, err := http.Get("http://" + ln.Addr().String() + "/events")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan() // "retry: ..." comes first: from now on the hub has the client

	err = hub.Broadcast(sse.Event{Type: "greeting", ID: "1", Data: "hello"})
	fmt.Println(err, hub.Len())
	for lines.Scan() && lines.Text() != "data: hello" {
	}
	fmt.Println(lines.Text())
	fmt.Println(server.Shutdown(context.Background()))
	// Output:
	// <nil> 1
	// data: hello
	// <nil>
}
