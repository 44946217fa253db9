package handover_test

import (
	"context"
	"log"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// A server that replaces itself by a new process on SIGHUP, and that stops, on SIGTERM, only after its
// load balancer has had five seconds to see that it is not ready.
func ExampleService() {
	var leaving atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if leaving.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	service := handover.Service{
		Parts: []handover.Part{{
			Name: "web", Address: ":8080",
			Server: httpadapter.Wrap(&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}),
		}},
		Restart:    syscall.SIGHUP,
		DrainDelay: 5 * time.Second,
		Drain:      time.Minute,
		Leaving:    func() { leaving.Store(true) },
	}
	if err := service.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
