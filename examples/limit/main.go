// Command limit is a server that limits its connections: in total, and per client address. At the
// first limit clients wait to be accepted. At the second they are refused before anything is
// allocated for them. Idle connections count, and hold no goroutine and no buffers.
//
//	go run ./limit
//	curl http://localhost:8080/
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	total := flag.Int("max", 10_000, "open connections of all clients")
	each := flag.Int("max-per-address", 20, "open connections of each client's address")
	flag.Parse()

	lc := limited(*total, *each)
	ln, err := lc.Listen(context.Background(), "tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newServer().Serve(ln))
}

// limited returns the options of a listener with both limits.
func limited(total, each int) *percore.ListenConfig {
	limit := &perAddress{max: each, open: make(map[netip.Prefix]int)}
	return &percore.ListenConfig{MaxConns: total, OnAccept: limit.accept, OnClose: limit.closed}
}

// newServer returns the program's server. Timeouts disconnect clients that are silent or don't
// read, and so make room for others.
func newServer() *httpadapter.Server {
	return httpadapter.Wrap(&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") }),
	})
}

// perAddress counts the open connections of each address.
type perAddress struct {
	max int // immutable

	mu   sync.Mutex
	open map[netip.Prefix]int // guarded by mu; no entries of 0
}

// accept is called for each connection.
func (l *perAddress) accept(_, remote netip.AddrPort) bool {
	client := network(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] >= l.max {
		return false
	}
	l.open[client]++
	return true
}

// closed is called at the end of each connection that accept wanted.
func (l *perAddress) closed(_, remote netip.AddrPort) {
	client := network(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// network returns the client as it is counted: an IPv4 address, or the 64 bits of an IPv6 address
// that usually belong to one client.
func network(remote netip.AddrPort) netip.Prefix {
	bits := 32
	if remote.Addr().Is6() {
		bits = 64
	}
	p, _ := remote.Addr().Prefix(bits) // without the zone
	return p
}
