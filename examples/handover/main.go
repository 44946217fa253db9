// Command handover replaces itself and keeps its clients' connections. On SIGHUP it starts its
// successor. The successor gets the listener and the connections that wait for a request at once,
// and the others when their requests have been answered.
//
//	go build -o server ./handover && ./server
//	kill -HUP $(pidof server)
//
// The process that was started first ends. If it is the first process of a container, or runs under
// a supervisor or systemd without Type=notify, the service ends with it. docs/OPERATIONS.md says
// which of them can follow the successor.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

// giveLimit is how long a successor may take to start, and requests may take to end.
const giveLimit = 30 * time.Second

// shutdownLimit is how long the remaining requests may take.
const shutdownLimit = time.Minute

// killAfter is how long a successor that has failed may keep answering the requests that it has
// received.
const killAfter = 10 * time.Second

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	if err := run(*address); err != nil {
		log.Fatal(err)
	}
}

func run(address string) error {
	// This comes first: a second SIGHUP must not end a process that is taking over.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	ln, predecessor, err := listen(ctx, address)
	if err != nil {
		return err
	}
	server := httpadapter.Wrap(&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "hello from process", os.Getpid())
		}),
	}, httpadapter.FastPath())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()

	if predecessor != nil {
		// Now the connections arrive through the listener. If the predecessor has crashed, at least
		// the listener is left.
		err := predecessor.Ready(ctx)
		if err != nil && !errors.Is(err, handover.ErrGone) {
			return errors.Join(err, shutdown(server)) // the predecessor keeps the other connections
		}
	}
	log.Print("process ", os.Getpid(), " serves http://", ln.Addr())
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			stop() // another signal ends the process at once
			return shutdown(server)
		case <-hangup:
		}
		err := give(ctx, handover.Server{Name: "http", Listener: ln, Source: server})
		if err == nil {
			// The remaining requests took too long, or their connections use TLS or were upgraded.
			return shutdown(server)
		}
		log.Print(err) // the error says that this process continues
	}
}

// shutdown waits for requests to end, and closes their connections.
func shutdown(server *httpadapter.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	return server.Shutdown(ctx)
}

// listen takes over the predecessor's listener, if there is a predecessor, and otherwise opens one.
func listen(ctx context.Context, address string) (net.Listener, *handover.Successor, error) {
	c, err := handover.Inherited()
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		ln, err := percore.Listen("tcp", address)
		return ln, nil, err
	}
	predecessor, err := handover.Take(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	ln, err := predecessor.Listener("http", nil)
	if err != nil {
		return nil, nil, errors.Join(err, predecessor.Close())
	}
	return ln, predecessor, nil
}

// give starts the successor and gives it the server's listener and connections.
func give(ctx context.Context, server handover.Server) error {
	exe, err := handover.Executable() // of the release that a symbolic link points to now
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	c, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, giveLimit)
	defer cancel()
	err = handover.Give(ctx, c, server)
	if err != nil {
		select {
		case <-ended:
		case <-time.After(killAfter):
			// It hangs, and has copies of descriptors: clients would not notice that this process
			// closes them.
			_ = cmd.Process.Kill()
		}
	}
	return err
}
