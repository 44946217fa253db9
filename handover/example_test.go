package handover_test

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// A server that replaces itself by a new process on SIGHUP: `kill -HUP` after the program was
// installed anew.
func Example() {
	// First of all: a second SIGHUP must not end a process that is taking over.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)

	ctx := context.Background()
	c, err := handover.Inherited()
	if err != nil {
		log.Fatal(err)
	}
	var successor *handover.Successor
	var ln net.Listener
	if c == nil {
		ln, err = percore.Listen("tcp", ":8080")
	} else if successor, err = handover.Take(ctx, c); err == nil {
		ln, err = successor.Listener("web", nil)
	}
	if err != nil {
		log.Fatal(err) // the predecessor serves on, if there is one
	}
	server := httpadapter.Wrap(&http.Server{})
	go server.Serve(ln)
	if successor != nil {
		if err := successor.Ready(ctx); err != nil && !errors.Is(err, handover.ErrGone) {
			server.Shutdown(ctx)
			log.Fatal(err)
		}
	}

	for range hangup {
		if err := replace(server, ln); err != nil {
			log.Print(err) // this process serves on
			continue
		}
		server.Shutdown(ctx) // waits for the connections that stayed
		return
	}
}

// replace starts a successor and hands the server over to it.
func replace(server *httpadapter.Server, ln net.Listener) error {
	cmd := &exec.Cmd{Stdout: os.Stdout, Stderr: os.Stderr} // this program
	c, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = handover.Give(ctx, c, handover.Server{Name: "web", Listener: ln, Source: server})
	if err != nil {
		select {
		case <-ended:
		case <-time.After(10 * time.Second): // for the requests that it has got
			// It hangs, and has copies of descriptors: clients would not see this process close them.
			cmd.Process.Kill()
		}
	}
	return err
}

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
