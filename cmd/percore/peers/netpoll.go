package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/cloudwego/netpoll"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// serveNetpoll serves an app with netpoll.
func serveNetpoll(app string, l net.Listener, ready func()) error {
	var loop netpoll.EventLoop
	var err error
	switch app {
	case scenario.AppEcho:
		loop, err = netpoll.NewEventLoop(netpollEcho)
	case scenario.AppBroadcast:
		s := &netpollBroadcast{conns: make(map[netpoll.Connection]*netpollWriter)}
		loop, err = netpoll.NewEventLoop(s.request, netpoll.WithOnConnect(s.connect))
	case scenario.AppRESP:
		s := &netpollRESP{target.NewStore()}
		loop, err = netpoll.NewEventLoop(s.request)
	default:
		return fmt.Errorf("netpoll has no server %q here", app)
	}
	if err != nil {
		return err
	}
	ready() // the kernel accepts until Serve does
	return loop.Serve(l)
}

// netpollEcho sends back everything that it receives.
func netpollEcho(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	defer r.Release()
	p, err := r.Next(r.Len())
	if err != nil {
		return err
	}
	w.WriteBinary(p)
	return w.Flush()
}

// netpollBroadcast sends what it receives to all connections.
type netpollBroadcast struct {
	mu    sync.Mutex
	conns map[netpoll.Connection]*netpollWriter // guarded by mu
}

// netpollWriter is a connection that several goroutines write to, which a Writer doesn't allow.
type netpollWriter struct {
	mu   sync.Mutex
	conn netpoll.Connection // its Writer is guarded by mu
}

func (s *netpollBroadcast) connect(ctx context.Context, c netpoll.Connection) context.Context {
	c.AddCloseCallback(func(netpoll.Connection) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = &netpollWriter{conn: c}
	return ctx
}

func (s *netpollBroadcast) request(_ context.Context, c netpoll.Connection) error {
	r := c.Reader()
	defer r.Release()
	p, err := r.Next(r.Len())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == scenario.Greeting {
		s.conns[c].write(p)
		return nil
	}
	for _, w := range s.conns {
		w.write(p)
	}
	return nil
}

func (w *netpollWriter) write(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn.Writer().WriteBinary(p)
	w.conn.Writer().Flush()
}

// netpollRESP answers commands.
type netpollRESP struct{ store *target.Store }

func (s *netpollRESP) request(_ context.Context, c netpoll.Connection) error {
	r, w := c.Reader(), c.Writer()
	defer r.Release()
	p, err := r.Peek(r.Len())
	if err != nil {
		return err
	}
	answers, used, err := s.store.Answer(nil, p)
	if err != nil {
		c.Close()
		return err
	}
	r.Skip(used)
	w.WriteBinary(answers)
	return w.Flush()
}
