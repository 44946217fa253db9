// Command prometheus is a server with a second address for its operators. There it serves the
// program's and percore's metrics for Prometheus, percore's live page, and profiles.
//
//	go run ./prometheus
//	curl http://localhost:8080/
//	curl http://localhost:6060/metrics
//
// The page is at http://localhost:6060/debug/percore; docs/grafana.json is a dashboard.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/debug"
	percoreprom "github.com/percore/percore/metrics/prometheus"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	adminAddress := flag.String("admin", "localhost:6060", "address for operators")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	// Use package net here, so that the metrics show only the program's own connections.
	adminListener, err := net.Listen("tcp", *adminAddress)
	if err != nil {
		log.Fatal(err)
	}
	server, admin := newServers()
	ended := make(chan error)
	go func() { ended <- server.Serve(ln) }()
	go func() { ended <- admin.Serve(adminListener) }()
	log.Fatal(<-ended)
}

// newServers returns the program's server and the server for operators.
func newServers() (server *httpadapter.Server, admin *http.Server) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "http_requests_total", Help: "Requests served, by method and status.",
	}, []string{"method", "code"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(requests, percoreprom.NewCollector(), collectors.NewGoCollector())

	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	server = httpadapter.Wrap(&http.Server{
		Handler:           promhttp.InstrumentHandlerCounter(requests, hello),
		ReadHeaderTimeout: 10 * time.Second,
	})

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/percore", debug.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return server, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
}
