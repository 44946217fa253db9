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

// options are the flags. An address that is empty is not served.
type options struct {
	plain  string // HTTP/1.1, WebSockets, and gRPC
	https1 string // HTTP/1.1 over TLS
	h2c    string // HTTP/2 in clear
	secure string // HTTP/2 over TLS, and gRPC
	cert   string
	key    string
	data   string // the file with the items
	static string // the folder of the proxy's files
	proxy  string // the URL of the server behind the proxy
}

func main() {
	var o options
	flag.StringVar(&o.plain, "http", ":8080", "address for HTTP/1.1, WebSockets and gRPC")
	flag.StringVar(&o.https1, "https1", ":8081", "address for HTTP/1.1 over TLS")
	flag.StringVar(&o.h2c, "h2c", ":8082", "address for HTTP/2 in clear")
	flag.StringVar(&o.secure, "https", ":8443", "address for HTTP/2 and gRPC over TLS")
	flag.StringVar(&o.cert, "cert", "/certs/server.crt", "file with the certificate; without it there is no TLS")
	flag.StringVar(&o.key, "key", "/certs/server.key", "file with its key")
	flag.StringVar(&o.data, "data", "/data/dataset.json", "file with the items")
	flag.StringVar(&o.static, "static", "/data/static", "folder with the proxy's files")
	flag.StringVar(&o.proxy, "proxy", "", "forward to the server at this URL, from the address -https alone")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends or a signal comes.
func (o *options) run(ctx context.Context) error {
	service := handover.Service{Ready: func([]net.Listener) { log.Print("Application started.") }}
	certificate := openCertificate(o.cert, o.key)
	if o.proxy != "" {
		handler, err := newProxy(o.proxy, o.static)
		if err != nil {
			return err
		}
		service.Parts = parts(part{"gateway", o.secure, handler, certificate, http2})
		return service.Run(ctx)
	}
	app, err := newApp(ctx, o.data, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	calls := grpcadapter.NewServer()
	benchmarkpb.RegisterBenchmarkServiceServer(calls, sums{})
	defer calls.Stop()
	handler := app.handler()
	service.Parts = parts(
		part{"plain", o.plain, calls.Handler(handler), nil, http1 | h2c},
		part{"https1", o.https1, handler, certificate, http1},
		part{"h2c", o.h2c, handler, nil, h2c},
		part{"https", o.secure, calls.Handler(handler), certificate, http1 | http2},
	)
	return service.Run(ctx)
}

// openCertificate returns nil if there is none.
func openCertificate(cert, key string) *tlsfiles.Files {
	if _, err := os.Stat(cert); err != nil {
		return nil
	}
	files, err := tlsfiles.Open(tlsfiles.Paths{Cert: cert, Key: key}, nil)
	if err != nil {
		log.Fatal(err)
	}
	return files
}

// protocols are those of a part.
type protocols uint8

const (
	http1 protocols = 1 << iota
	http2           // over TLS
	h2c             // HTTP/2 in clear
)

// part is an address and what is served there.
type part struct {
	name, address string
	handler       http.Handler
	certificate   *tlsfiles.Files // nil if the part is in clear, or there is none
	protocols     protocols
}

// parts returns those that can be served: that have an address, and a certificate if they need one.
func parts(all ...part) (served []handover.Part) {
	for _, p := range all {
		overTLS := p.protocols&h2c == 0
		if p.address == "" || overTLS && p.certificate == nil {
			continue
		}
		srv := &http.Server{
			Handler:           p.handler,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			Protocols:         new(http.Protocols),
		}
		srv.Protocols.SetHTTP1(p.protocols&http1 != 0)
		srv.Protocols.SetHTTP2(p.protocols&http2 != 0)
		srv.Protocols.SetUnencryptedHTTP2(p.protocols&h2c != 0)
		h := handover.Part{Name: p.name, Address: p.address}
		server := httpadapter.Wrap(srv)
		h.Server = server
		if overTLS {
			srv.TLSConfig = p.certificate.Config()
			h.Serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		served = append(served, h)
	}
	return served
}
