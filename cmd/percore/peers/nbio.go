package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// serveNbio serves an app with nbio.
func serveNbio(app string, l net.Listener, ready func()) error {
	logging.Output = os.Stderr // standard output is the harness's
	engine := nbio.NewEngine(nbio.Config{
		Network: "tcp",
		Addrs:   []string{l.Addr().String()},
		NPoller: runtime.GOMAXPROCS(0),
		Listen:  func(_, _ string) (net.Listener, error) { return l, nil },
	})
	switch app {
	case scenario.AppEcho:
		engine.OnData(func(c *nbio.Conn, p []byte) { c.Write(p) })
	case scenario.AppBroadcast:
		s := &nbioBroadcast{conns: make(map[*nbio.Conn]bool)}
		engine.OnOpen(s.open)
		engine.OnClose(s.close)
		engine.OnData(s.data)
	case scenario.AppRESP:
		s := &nbioRESP{store: target.NewStore()}
		engine.OnOpen(func(c *nbio.Conn) { c.SetSession(new(nbioCommands)) })
		engine.OnData(s.data)
	default:
		return fmt.Errorf("nbio has no server %q here", app)
	}
	if err := engine.Start(); err != nil {
		return err
	}
	ready()
	select {}
}

// nbioBroadcast sends what it receives to all connections.
type nbioBroadcast struct {
	mu    sync.Mutex
	conns map[*nbio.Conn]bool // guarded by mu
}

func (s *nbioBroadcast) open(c *nbio.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
}

func (s *nbioBroadcast) close(c *nbio.Conn, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *nbioBroadcast) data(c *nbio.Conn, p []byte) {
	if len(p) == scenario.Greeting {
		c.Write(p)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Write(p)
	}
}

// nbioRESP answers commands.
type nbioRESP struct{ store *target.Store }

// nbioCommands is a connection's session: nbio keeps nothing of what OnData gets.
type nbioCommands struct{ kept, answers []byte }

func (s *nbioRESP) data(c *nbio.Conn, p []byte) {
	cmds := c.Session().(*nbioCommands)
	if len(cmds.kept) > 0 {
		cmds.kept = append(cmds.kept, p...)
		p = cmds.kept
	}
	var used int
	var err error
	if cmds.answers, used, err = s.store.Answer(cmds.answers[:0], p); err != nil {
		c.Close()
		return
	}
	c.Write(cmds.answers)
	cmds.kept = append(cmds.kept[:0], p[used:]...)
}
