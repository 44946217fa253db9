package target

import (
	"fmt"
	"net"
)

// PeerServer serves an app, one of the App constants, with another library of event handlers. It
// serves l, or closes it and serves its address. It calls ready when it accepts connections, and
// returns only if it fails.
type PeerServer func(app string, l net.Listener, ready func()) error

// peers are the servers of RegisterPeer, by name.
var peers = map[string]PeerServer{}

// RegisterPeer makes a server known, by the name of Engine.Peer. Call it before Main. This program
// has none, so that who builds it doesn't need their modules; see cmd/percore/peers.
func RegisterPeer(name string, serve PeerServer) { peers[name] = serve }

// peerServer is the server of a peer. It runs in this process.
type peerServer struct {
	app     string
	serve   PeerServer
	started chan struct{} // closed when it accepts connections
}

func newPeerServer(spec Spec) (server, error) {
	serve, ok := peers[spec.Engine.Peer]
	if !ok {
		return nil, fmt.Errorf("this program is built without %s", spec.Engine.Peer)
	}
	return &peerServer{app: spec.App, serve: serve, started: make(chan struct{})}, nil
}

func (s *peerServer) Serve(l net.Listener) error {
	return s.serve(s.app, l, func() { close(s.started) })
}

func (s *peerServer) ready() <-chan struct{} { return s.started }
