// Command production is one HTTPS server with what its operators expect: a certificate that is renewed
// without a restart, pages for them at an address of their own, restarts on SIGHUP, a delay and a time
// for requests before it ends, and what systemd wants to hear. Put your handler in newHandler.
//
//	go run $(go env GOROOT)/src/crypto/tls/generate_cert.go -host localhost
//	go build -o server ./production && ./server
//	curl -k https://localhost:8443/ && curl http://localhost:6060/ready
//	kill -HUP $(pidof server)
//
// percore-production.service and percore-production.socket are units for systemd. The Containerfile is
// for containers, which are replaced instead of restarted: a container ends with its first process.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/debug"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/metrics/prometheus"
	"github.com/percore/percore/tlsfiles"
)

func main() {
	address := flag.String("addr", "localhost:8443", "address to listen on")
	admin := flag.String("admin", "localhost:6060", "address for operators")
	cert := flag.String("cert", "cert.pem", "file with the certificate; it is watched")
	key := flag.String("key", "key.pem", "file with its key")
	delay := flag.Duration("drain-delay", 0, "how long to serve on when /ready fails already")
	drain := flag.Duration("drain", 30*time.Second, "how long requests may go on after that")
	anyParent := flag.Bool("any-parent", false, "restart at SIGHUP whatever has started this process, not only systemd or a shell")
	flag.Parse()

	files, err := tlsfiles.Open(tlsfiles.Paths{Cert: *cert, Key: *key}, nil)
	if err != nil {
		log.Fatal(err)
	}
	go files.Watch(context.Background(), 5*time.Second)
	server := httpadapter.Wrap(&http.Server{
		Handler:           newHandler(),
		TLSConfig:         files.Config(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
	})
	var leaving atomic.Bool
	service := handover.Service{
		Parts: []handover.Part{{
			Name: "https", Address: *address, Server: server,
			Config:  &percore.ListenConfig{MaxConns: 100_000}, // fewer than LimitNOFILE= of the unit
			Serve:   func(l net.Listener) error { return server.ServeTLS(l, "", "") },
			State:   files.State,
			Restore: files.Restore,
		}, {
			Name: "admin", Address: *admin, Server: httpadapter.Wrap(newAdmin(&leaving)),
		}},
		Restart:    syscall.SIGHUP,
		AnyParent:  *anyParent,
		DrainDelay: *delay,
		Drain:      *drain,
		Leaving:    func() { leaving.Store(true) },
		Ready: func(listeners []net.Listener) {
			log.Print("process ", os.Getpid(), " serves https://", listeners[0].Addr())
			log.Print("pages for operators: http://", listeners[1].Addr(), "/debug/percore")
		},
	}
	if err := service.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// newHandler returns what the program is for.
func newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello from process", os.Getpid())
	})
	return mux
}

// newAdmin returns the server of the pages for operators.
func newAdmin(leaving *atomic.Bool) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", prometheus.Handler()) // prometheus.NewCollector: beside metrics of your own
	mux.Handle("/debug/percore", debug.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			http.Error(w, "leaving", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return &http.Server{Handler: debug.RefuseCrossOrigin(mux), ReadHeaderTimeout: 10 * time.Second}
}
