package main

import (
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"net/netip"
	"sync/atomic"

	"github.com/percore/percore/debug"
	"github.com/percore/percore/metrics/prometheus"
)

// adminEndpoints lists the pages for the people who run the server.
var adminEndpoints = []struct{ Path, About string }{
	{"/debug/percore", "the engine, live"},
	{"/metrics", "the same for Prometheus"},
	{"/debug/pprof/", "profiles of the process"},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

// newAdminServer returns the server of these pages. It is an ordinary http.Server, on a loop of its own,
// because people need it when something is wrong with the others. isLocal says that it can be reached
// from this machine only.
func newAdminServer(isLocal bool, leaving *atomic.Bool, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.Handle("/debug/pprof/", http.DefaultServeMux) // package net/http/pprof has its pages there
	handler := debug.RefuseCrossOrigin(mux)
	if isLocal {
		handler = debug.RefuseHostNames(handler)
	}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// isLocal reports whether an address of a flag is on the loopback interface.
func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
