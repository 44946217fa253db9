package target

import (
	"context"
	"fmt"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
)

// listen opens the listener under test on a free loopback port. The engines differ only here.
func listen(e Engine) (net.Listener, error) {
	const network, addr = "tcp", "127.0.0.1:0"
	e.FastPath, e.NewServer, e.Detach, e.FastHTTP, e.Bare = false, false, false, false, false // for newServer
	e.Nginx, e.Nghttpd, e.Reactor, e.Peer = false, false, false, ""
	switch {
	case e == Engine{Name: EngineNet}:
		return net.Listen(network, addr)
	case e == Engine{Name: EnginePercore}:
		return percore.Listen(network, addr)
	case e.Name == EnginePercore:
		return e.listen(network, addr)
	case e.Name == EngineNet:
		return nil, fmt.Errorf("engine %s has no options", e.Name)
	}
	return nil, fmt.Errorf("unknown engine %q", e.Name)
}

// listen opens a percore listener with options.
func (e Engine) listen(network, addr string) (net.Listener, error) {
	c := loop.Config{Loops: e.Loops, Pin: e.Pin}
	if e.Thread {
		c.Strategy = loop.Thread
	}
	g, err := loop.NewGroup(c)
	if err != nil {
		return nil, err
	}
	lc := percore.ListenConfig{Group: g, LeastLoaded: e.LeastLoaded, NetBuffers: e.NetBuffers}
	lc.SetMultipathTCP(e.MPTCP)
	return lc.Listen(context.Background(), network, addr)
}

// loopStats returns the counters of the engine's loops. They are zero if the engine doesn't have
// loops.
func loopStats(l net.Listener) loop.Stats {
	if pl, ok := l.(*percore.Listener); ok {
		group := pl.Stats().Group
		for _, s := range loop.ReadStats().Groups {
			if s.Group == group {
				return s
			}
		}
	}
	return loop.Stats{}
}
