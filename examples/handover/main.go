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
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	server := httpadapter.Wrap(&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "hello from process", os.Getpid())
		}),
	})
	service := handover.Service{
		Parts:     []handover.Part{{Name: "http", Address: *address, Server: server}},
		Restart:   syscall.SIGHUP,
		AnyParent: true,        // no process waits for this one
		Drain:     time.Minute, // for requests that take longer than the handover
		Ready: func(listeners []net.Listener) {
			log.Print("process ", os.Getpid(), " serves http://", listeners[0].Addr())
		},
	}
	if err := service.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
