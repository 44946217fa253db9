// Command proxy forwards TCP connections. The kernel moves the bytes (splice), so a connection that
// waits holds no buffer.
//
//	go run ./proxy -to localhost:5432
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"sync"

	"github.com/percore/percore"
)

func main() {
	address := flag.String("addr", "localhost:9000", "address to listen on")
	to := flag.String("to", "", "address to forward to")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(serve(ln, *to))
}

// serve forwards each connection to the given address over a connection of its own.
func serve(ln net.Listener, to string) error {
	if to == "" {
		return errors.New("-to is missing: give the address to forward to")
	}
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go forward(client, to)
	}
}

// forward connects client with a server and returns when both have ended.
func forward(client net.Conn, to string) {
	defer client.Close()
	server, err := percore.Dial("tcp", to)
	if err != nil {
		log.Print(err)
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() { pipe(server, client) })
	both.Go(func() { pipe(client, server) })
	both.Wait()
}

// pipe copies until from ends, and then ends its side of to, which may still answer.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close() // the other direction is useless now
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
