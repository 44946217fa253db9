package main

import (
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
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
// because people need it when something is wrong with the others.
func newAdminServer(leaving *atomic.Bool, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.Handle("/debug/pprof/", http.DefaultServeMux) // package net/http/pprof has its pages there
	return &http.Server{
		Handler:           debug.RefuseCrossOrigin(mux),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serveAdmin serves the pages. systemd may have opened the listener, at another address than that of
// -admin.
func serveAdmin(srv *http.Server, l net.Listener) error {
	if isLocal(l.Addr()) {
		srv.Handler = debug.RefuseHostNames(srv.Handler)
	}
	return srv.Serve(l)
}

// isLocal reports whether the address of a listener is on the loopback interface.
func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
