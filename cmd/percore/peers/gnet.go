package main

import (
	"bytes"
	"fmt"
	"net"
	"sync"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// serveGnet serves an app with gnet, which opens its own listener.
func serveGnet(app string, l net.Listener, ready func()) error {
	server := gnetServer{ready: ready}
	var h gnet.EventHandler
	switch app {
	case scenario.AppEcho:
		h = &gnetEcho{server}
	case scenario.AppBroadcast:
		h = &gnetBroadcast{gnetServer: server, conns: make(map[gnet.Conn]bool)}
	case scenario.AppRESP:
		h = &gnetRESP{server, target.NewStore()}
	default:
		return fmt.Errorf("gnet has no server %q here", app)
	}
	if err := l.Close(); err != nil {
		return err
	}
	log, err := zap.NewProduction() // which is on standard error
	if err != nil {
		return err
	}
	return gnet.Run(h, "tcp://"+l.Addr().String(), gnet.WithMulticore(true), gnet.WithLogger(log.Sugar()))
}

// gnetServer is the part that the handlers share.
type gnetServer struct {
	gnet.BuiltinEventEngine
	ready func()
}

func (s *gnetServer) OnBoot(gnet.Engine) gnet.Action {
	s.ready()
	return gnet.None
}

// gnetEcho sends back everything that it receives.
type gnetEcho struct{ gnetServer }

func (*gnetEcho) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Next(-1)
	c.Write(p)
	return gnet.None
}

// gnetBroadcast sends what it receives to all connections.
type gnetBroadcast struct {
	gnetServer
	mu    sync.Mutex
	conns map[gnet.Conn]bool // guarded by mu
}

func (s *gnetBroadcast) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
	return nil, gnet.None
}

func (s *gnetBroadcast) OnClose(c gnet.Conn, _ error) gnet.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	return gnet.None
}

func (s *gnetBroadcast) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Next(-1)
	if len(p) == scenario.Greeting {
		c.Write(p)
		return gnet.None
	}
	p = bytes.Clone(p) // AsyncWrite keeps it
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.AsyncWrite(p, nil)
	}
	return gnet.None
}

// gnetRESP answers commands.
type gnetRESP struct {
	gnetServer
	store *target.Store
}

func (s *gnetRESP) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Peek(-1)
	answers, used, err := s.store.Answer(nil, p)
	if err != nil {
		return gnet.Close
	}
	c.Discard(used)
	c.Write(answers)
	return gnet.None
}
