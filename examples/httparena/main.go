// Command httparena is percore's entry for HttpArena (https://www.http-arena.com), whose machine has 64
// cores: ordinary handlers of net/http and gRPC, with the settings of docs/OPERATIONS.md. A copy of this
// folder is an entry: meta.json names the profiles, and the Dockerfile builds the image.
//
//	go run . -data dataset.json -cert server.crt -key server.key
//
// With -proxy it is the proxy of the gateway profile: it ends TLS, serves files, and forwards the rest.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/examples/httparena/benchmarkpb"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/tlsfiles"
)

func main() {
	var (
		plain  = flag.String("http", ":8080", "address for HTTP/1.1, WebSockets and gRPC")
		https1 = flag.String("https1", ":8081", "address for HTTP/1.1 over TLS")
		clear  = flag.String("h2c", ":8082", "address for HTTP/2 in clear")
		secure = flag.String("https", ":8443", "address for HTTP/2 and gRPC over TLS")
		cert   = flag.String("cert", "/certs/server.crt", "file with the certificate; without it there is no TLS")
		key    = flag.String("key", "/certs/server.key", "file with its key")
		data   = flag.String("data", "/data/dataset.json", "file with the items")
		static = flag.String("static", "/data/static", "folder with the proxy's files")
		server = flag.String("proxy", "", "forward to the server at this URL, from the address -https alone")
	)
	flag.Parse()
	e := entry{service: handover.Service{Ready: func([]net.Listener) { log.Print("Application started.") }}}
	if _, err := os.Stat(*cert); err == nil {
		if e.files, err = tlsfiles.Open(tlsfiles.Paths{Cert: *cert, Key: *key}, nil); err != nil {
			log.Fatal(err)
		}
	}
	const inClear, overTLS = false, true
	http1, http2, h2c := (*http.Protocols).SetHTTP1, (*http.Protocols).SetHTTP2, (*http.Protocols).SetUnencryptedHTTP2
	if *server != "" {
		handler, err := newProxy(*server, *static)
		if err != nil {
			log.Fatal(err)
		}
		e.add("gateway", *secure, handler, overTLS, http2)
	} else {
		handler, err := newHandler(context.Background(), *data, os.Getenv("DATABASE_URL"))
		if err != nil {
			log.Fatal(err)
		}
		calls := grpcadapter.NewServer()
		benchmarkpb.RegisterBenchmarkServiceServer(calls, sums{})
		defer calls.Stop()
		e.add("plain", *plain, calls.Handler(handler), inClear, http1, h2c)
		e.add("https1", *https1, handler, overTLS, http1)
		e.add("h2c", *clear, handler, inClear, h2c)
		e.add("https", *secure, calls.Handler(handler), overTLS, http1, http2)
	}
	if err := e.service.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// entry is what is served.
type entry struct {
	service handover.Service
	files   *tlsfiles.Files // the certificate; nil if there is none
}

// add adds a part, if it has an address, and a certificate should it be over TLS.
func (e *entry) add(name, address string, handler http.Handler, overTLS bool, protocols ...func(*http.Protocols, bool)) {
	if address == "" || overTLS && e.files == nil {
		return
	}
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
	}
	for _, set := range protocols {
		set(srv.Protocols, true)
	}
	wrapped := httpadapter.Wrap(srv)
	part := handover.Part{Name: name, Address: address, Server: wrapped}
	if overTLS {
		srv.TLSConfig = e.files.Config()
		part.Serve = func(l net.Listener) error { return wrapped.ServeTLS(l, "", "") }
	}
	e.service.Parts = append(e.service.Parts, part)
}
