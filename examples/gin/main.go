// Command gin runs a gin application on percore, with httpadapter.
//
//	go run ./gin
//	curl http://localhost:8080/hello/world
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newServer().Serve(ln)) // was engine.Run(*address)
}

func newServer() *httpadapter.Server {
	engine := gin.New()
	engine.GET("/hello/:name", func(c *gin.Context) { c.String(http.StatusOK, "hello %s\n", c.Param("name")) })
	return httpadapter.Wrap(&http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second})
}
