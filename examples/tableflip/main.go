// Command tableflip replaces itself without interruption. On SIGHUP it starts its successor, which
// gets all of the listener's sockets, and then finishes the running requests.
//
//	go build -o server ./tableflip && ./server
//	kill -HUP $(cat server.pid)
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
	"os/signal"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	pidFile := flag.String("pid", "server.pid", "file for the process's number")
	flag.Parse()
	if err := run(*address, *pidFile); err != nil {
		log.Fatal(err)
	}
}

func run(address, pidFile string) error {
	upgrader, err := tableflip.New(tableflip.Options{PIDFile: pidFile})
	if err != nil {
		return err
	}
	defer upgrader.Stop()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for range hangup {
			if err := upgrader.Upgrade(); err != nil {
				log.Print("the successor did not start, so this process goes on: ", err)
			}
		}
	}()

	ln, err := listen(upgrader.Fds, "tcp", address)
	if err != nil {
		return err
	}
	server := httpadapter.Wrap(&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "hello from process", os.Getpid())
		}),
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	if err := upgrader.Ready(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-upgrader.Exit(): // the successor serves
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return server.Shutdown(ctx)
}

// carrier is the part of *tableflip.Fds that listen needs.
type carrier interface {
	AddFile(name string, file *os.File) error
	File(name string) (*os.File, error)
}

// listen takes over the predecessor's listener, if there is a predecessor, and otherwise opens one.
// A listener has one socket per loop, so each is passed on under its own name.
func listen(fds carrier, network, address string) (net.Listener, error) {
	name := func(i int) string { return fmt.Sprintf("%s %s #%d", network, address, i) }
	sockets, err := inherited(fds, name)
	defer closeAll(sockets)
	if err != nil {
		return nil, err
	}
	if len(sockets) > 0 {
		return percore.FileListeners(sockets...)
	}
	ln, err := percore.Listen(network, address)
	if err != nil {
		return nil, err
	}
	files, err := socketsOf(ln)
	defer closeAll(files)
	for i, f := range files {
		err = errors.Join(err, fds.AddFile(name(i), f))
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// socketsOf returns copies of a listener's sockets.
func socketsOf(ln net.Listener) ([]*os.File, error) {
	if ln, ok := ln.(*percore.Listener); ok {
		return ln.Files()
	}
	f, err := ln.(*net.TCPListener).File() // PERCOREDEBUG=engine=net
	return []*os.File{f}, err
}

// inherited returns the sockets that the predecessor has passed on.
func inherited(fds carrier, name func(int) string) (sockets []*os.File, err error) {
	for {
		f, err := fds.File(name(len(sockets)))
		if err != nil || f == nil {
			return sockets, err
		}
		sockets = append(sockets, f)
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
