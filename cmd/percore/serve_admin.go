package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
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
	mux.HandleFunc("GET /{$}", serveAdminIndex)
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	handler := debug.RefuseCrossOrigin(mux)
	if isLocal {
		handler = guardHost(handler)
	}
	return &http.Server{
		Handler:           handler,
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

// guardHost refuses requests whose Host is a name, unless it is localhost: an attacker's name may lead
// to this machine, and his page in an operator's browser could then read the answers (DNS rebinding). A
// request without Host is no browser's.
func guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" && r.Host != "" {
			http.Error(w, "Use localhost or an address instead of this host name.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether an address of a flag is on the loopback interface.
func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
