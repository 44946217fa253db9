// Command http is an ordinary http.Server with TLS and HTTP/2 on percore. Idle HTTP/1.1 connections
// hold no goroutine and none of net/http's buffers.
//
//	go run $(go env GOROOT)/src/crypto/tls/generate_cert.go -host localhost
//	go run ./http -cert cert.pem -key key.pem
//	curl -k https://localhost:8443/
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:8443", "address to listen on")
	cert := flag.String("cert", "cert.pem", "file with the certificate")
	key := flag.String("key", "key.pem", "file with its key")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln, newServer(), *cert, *key); err != nil {
		log.Fatal(err)
	}
}

// newServer returns the program's server. Nothing in it depends on percore.
func newServer() *http.Server {
	return &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello over %s\n", r.Proto)
		}),
	}
}

// serve serves until ctx ends or a signal comes, and then finishes the running requests.
func serve(ctx context.Context, ln net.Listener, srv *http.Server, cert, key string) error {
	server := httpadapter.Wrap(srv)
	service := handover.Service{Parts: []handover.Part{{
		Name: "https", Listener: ln, Server: server,
		Serve: func(ln net.Listener) error { return server.ServeTLS(ln, cert, key) },
	}}}
	return service.Run(ctx)
}
