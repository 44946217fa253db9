// Command caddy is Caddy with a network "percore": percore listens on addresses that begin with
// "percore/". With "transport percore" a reverse_proxy calls its servers on percore's connections.
// Everything else in a Caddyfile works as usual.
//
//	cd caddy && go run . run
//	curl http://localhost:8080/
//
// When Caddy reloads its configuration, the listeners of both configurations share their sockets.
// So no connection that waits to be accepted is reset.
package main

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"

	// The Caddyfile and the modules that it needs. Your own Caddy imports modules/standard, which
	// has all of them.
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/percore/percore"
)

func main() { caddycmd.Main() }

func init() {
	caddy.RegisterNetwork("percore", listen)
	caddyhttp.RegisterNetworkHTTP3("percore", "udp") // is Caddy's own, as usual
}

// listening has the listeners by their addresses. Caddy opens the listeners of a configuration
// before it closes the listeners of the previous one, or of one that has failed.
var listening = struct {
	sync.Mutex
	on map[string][]net.Listener // guarded by Mutex; some are closed
}{on: make(map[string][]net.Listener)}

// Caddy calls listen for each port of each address.
func listen(ctx context.Context, network, host, ports string, offset uint, config net.ListenConfig) (any, error) {
	parsed, err := caddy.ParseNetworkAddress(caddy.JoinNetworkAddress(network, host, ports))
	if err != nil {
		return nil, err
	}
	address := parsed.JoinHostPort(offset)
	lc := percore.ListenConfig{Control: config.Control, KeepAlive: config.KeepAlive, KeepAliveConfig: config.KeepAliveConfig}

	listening.Lock()
	defer listening.Unlock()
	ln, err := share(&lc, address)
	if ln == nil && err == nil {
		ln, err = lc.Listen(ctx, "tcp", address)
	}
	if err != nil {
		return nil, err
	}
	listening.on[address] = append(listening.on[address], ln)
	return ln, nil
}

// share returns a listener on the sockets of an open one, or nil if there isn't any. The caller
// holds listening.
func share(lc *percore.ListenConfig, address string) (net.Listener, error) {
	for len(listening.on[address]) > 0 {
		files, err := sockets(listening.on[address][0])
		if errors.Is(err, net.ErrClosed) {
			listening.on[address] = slices.Delete(listening.on[address], 0, 1)
			continue
		}
		if err != nil {
			return nil, err
		}
		defer closeAll(files) // the listener has its own copies
		return lc.FileListeners(files...)
	}
	return nil, nil
}

func sockets(ln net.Listener) ([]*os.File, error) {
	if ln, ok := ln.(*percore.Listener); ok {
		return ln.Files()
	}
	f, err := ln.(*net.TCPListener).File() // PERCOREDEBUG=engine=net
	return []*os.File{f}, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
