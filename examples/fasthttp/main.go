// Command fasthttp runs a fasthttp server on percore.
//
//	go run ./fasthttp
//	curl http://localhost:8080/
package main

import (
	"flag"
	"log"

	"github.com/valyala/fasthttp"

	"github.com/percore/percore"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := newServer().Serve(ln); err != nil {
		log.Fatal(err)
	}
}

func newServer() *fasthttp.Server {
	return &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("hello\n") }}
}
