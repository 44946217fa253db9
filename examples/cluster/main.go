// Command cluster is a WebSocket hub on several machines. Members join a room at any of its
// processes, and everyone in the room gets every message, once and in the same order. A member whose
// process has died goes on at another one where it left off.
//
// NATS carries the messages: JetStream keeps them and gives them their order. Each process has a NATS
// server within it, which is a cluster of one, or one of three:
//
//	go run . -local 3       three processes at localhost:8081 to 8083
//	go run ./load           members that talk, and check what they hear; kill a process meanwhile
//
// On three machines, each command names its own addresses and the routes to the others:
//
//	cluster -addr :8080 -cluster 10.0.0.1:6222 -routes 10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222 -store /var/lib/hub -secret-file /etc/hub/secret
//
// With -nats the processes use a NATS cluster that runs elsewhere.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// maxConns limits the open connections of a process. Members stay: further clients wait to be accepted.
const maxConns = 10_000

//go:embed page.html
var page []byte

func main() {
	log.SetFlags(log.Ltime)
	var config backboneConfig
	address := flag.String("addr", "localhost:8080", "address to listen on")
	drain := flag.Duration("drain", 5*time.Second, "time over which members are told to go elsewhere when the process stops")
	local := flag.Int("local", 0, "start this number of processes on this machine instead, at port 8081 and on")
	flag.StringVar(&config.url, "nats", "", "URLs of a NATS cluster to use, instead of a server within the process")
	flag.StringVar(&config.cluster, "cluster", "", "address for the other processes' NATS servers; none: a cluster of one")
	flag.StringVar(&config.routes, "routes", "", "those addresses of all processes, with commas")
	flag.StringVar(&config.secretFile, "secret-file", "", "file with the secret that the processes' NATS servers share")
	flag.StringVar(&config.store, "store", "", "folder for messages; none: a temporary one")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if *local > 0 {
		err = startLocal(ctx, *local)
	} else {
		err = run(ctx, *address, *drain, config)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves at address until ctx ends.
func run(ctx context.Context, address string, drain time.Duration, config backboneConfig) error {
	lc := percore.ListenConfig{MaxConns: maxConns}
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer ln.Close()
	b, err := openBackbone(ctx, config)
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	defer b.close()
	h, err := newHub(b)
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	log.Print("serving http://", ln.Addr())
	return serve(ctx, ln, h, drain)
}

// serve serves until ctx ends. Then it closes the members' connections, spread over drain, so that
// they don't all join the other processes at the same moment.
func serve(ctx context.Context, ln net.Listener, h *hub, drain time.Duration) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	mux.HandleFunc("GET /hub", h.join)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil || !h.backbone.ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	server := httpadapter.Wrap(&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute})
	defer h.close(0) // if the server has failed
	service := handover.Service{
		Parts:   []handover.Part{{Name: "hub", Listener: ln, Server: server}},
		Leaving: func() { h.close(drain) },
	}
	return service.Run(ctx)
}
