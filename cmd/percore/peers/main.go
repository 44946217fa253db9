// Command peers runs servers of gnet, nbio and netpoll for "percore bench", where they are arms:
//
//	go build -o "$(go env GOPATH)/bin/percore-peers" ./cmd/percore/peers
//	percore bench -arms percore+reactor,gnet,nbio,netpoll -run '^(echo|idle/echo|broadcast|resp)/'
//
// Each is written as the examples and the documentation of its library have it, with as many loops
// as its documentation recommends: a loop per processor with gnet (WithMulticore) and nbio (NPoller),
// whose handlers run on the loops, and the default with netpoll, whose handlers run on goroutines.
//
// The folder migrate has programs for each library, before and after their migration to package
// reactor. The module's tests also check the names in docs/MIGRATING.md.
package main

import (
	"fmt"
	"os"

	"github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != child.ServerArg {
		fmt.Fprintln(os.Stderr, "percore-peers: percore bench starts this, for its arms gnet, nbio and netpoll")
		os.Exit(2)
	}
	register()
	os.Exit(child.Serve(new(target.Process)))
}

func register() {
	target.RegisterPeer(scenario.Gnet, serveGnet)
	target.RegisterPeer(scenario.Nbio, serveNbio)
	target.RegisterPeer(scenario.Netpoll, serveNetpoll)
}
