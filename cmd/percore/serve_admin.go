package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/percore/percore/debug"
	"github.com/percore/percore/metrics/prometheus"
)

// defaultAdminAddress is on the loopback interface: the pages show the program's insides.
const defaultAdminAddress = "127.0.0.1:6060"

// adminEndpoints lists the pages for the people who run the server.
var adminEndpoints = []struct{ Path, About string }{
	{"/debug/percore", "the engine, live"},
	{"/metrics", "the same for Prometheus"},
	{"/debug/pprof/", "profiles of the process"},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

// newAdminServer returns the server of these pages. It is an http.Server on package net, whatever
// the engine is, because people need it when something is wrong with the engine.
func newAdminServer(leaving *atomic.Bool, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", serveAdminIndex)
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serveAdminIndex lists the pages.
func serveAdminIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html>\n<meta charset=\"utf-8\">\n<title>percore serve</title>\n<ul>\n")
	for _, e := range adminEndpoints {
		fmt.Fprintf(w, "<li><a href=%q>%s</a>: %s</li>\n", e.Path, e.Path, e.About)
	}
	fmt.Fprint(w, "</ul>\n")
}

// listenAdmin opens the listener of the admin server, unless the admin server is turned off.
func (d *demo) listenAdmin() (err error) {
	if address := d.opts.adminAddress; address != "" {
		d.admin, err = net.Listen("tcp", address)
		err = listenError("admin", address, err)
	}
	return err
}
