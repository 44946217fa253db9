// Command cluster is a WebSocket hub in several processes. Members join a room at any of them, and
// everyone in the room gets every message, once and in the same order. A member whose process has died
// goes on at another one where it left off. NATS carries the messages: its JetStream keeps them and
// gives them their order.
//
//	nats-server -js &                                   # from github.com/nats-io/nats-server/v2
//	go build && for i in 1 2 3; do ./cluster -addr localhost:808$i & done
//	./cluster -load localhost:8081,localhost:8082,localhost:8083
//
// The last are members that talk, and check what they hear; kill a process meanwhile. Or open
// http://localhost:8081/?room=garden in two windows.
package main

import (
	"context"
	_ "embed"
	"flag"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// maxConns limits the open connections of a process. Members stay: further clients wait to be accepted.
const maxConns = 10_000

//go:embed page.html
var page []byte

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	url := flag.String("nats", nats.DefaultURL, "URLs of the NATS servers")
	replicas := flag.Int("replicas", 1, "how many of them keep each message")
	to := flag.String("load", "", "be members of the processes at these addresses instead")
	members := flag.Int("members", 300, "how many")
	duration := flag.Duration("duration", 30*time.Second, "how long they talk")
	flag.Parse()

	ctx := context.Background()
	if *to != "" {
		const rooms = 10
		if err := talk(ctx, newClients(strings.Split(*to, ","), *members, rooms), rooms, *duration); err != nil {
			log.Fatal(err)
		}
		log.Print("every message came once and in order to every member of its room")
		return
	}
	h, err := newHub(ctx, *url, *replicas)
	if err != nil {
		log.Fatal("NATS: ", err)
	}
	defer h.close()
	config := &percore.ListenConfig{MaxConns: maxConns}
	if err := serve(ctx, handover.Part{Address: *address, Config: config}, h); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes. Then it tells the members to go elsewhere, spread over
// some seconds, so that they don't all join the other processes at the same moment.
func serve(ctx context.Context, part handover.Part, h *hub) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { w.Write(page) })
	mux.HandleFunc("GET /hub", h.join)
	part.Name = "hub"
	part.Server = httpadapter.Wrap(&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute})
	service := handover.Service{
		Parts: []handover.Part{part},
		Conns: &h.conns,
		Drain: 10 * time.Second,
		Ready: func(listeners []net.Listener) { log.Print("serving http://", listeners[0].Addr()) },
	}
	return service.Run(ctx)
}
