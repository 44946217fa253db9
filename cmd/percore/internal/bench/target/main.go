// Package target is the process under test. It runs one small server, with the same code on any
// engine, and reports what that costs.
package target

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// Process is a process under test. The harness calls its methods, one at a time. It doesn't shut
// anything down: the process ends with the harness's input.
type Process struct{ server *server }

// Start starts the server, and returns when it accepts connections.
func (p *Process) Start(order scenario.Order, started *scenario.Started) error {
	if p.server != nil {
		return errors.New("the server runs already")
	}
	srv, err := newServer(&order)
	if err != nil {
		return err
	}
	if order.MaxProcs > 0 {
		runtime.GOMAXPROCS(order.MaxProcs) // before the engine counts them
	}
	l, err := listen(&order)
	if err != nil {
		return err
	}
	p.server = srv
	serve := func(l net.Listener) {
		fmt.Fprintf(os.Stderr, "serve: %v\n", srv.serve(l))
		os.Exit(1)
	}
	addr := l.Addr().String()
	*started = scenario.Started{Addr: addr, GOMAXPROCS: runtime.GOMAXPROCS(0)}
	if order.Engine.Peer() { // its library listens there
		l.Close()
	}
	go serve(l)
	for order.Engine.Peer() && !accepts(addr) {
		time.Sleep(time.Millisecond)
	}
	for i := 1; i < order.Hosts; i++ {
		addr = nextHost(addr)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		go serve(l)
	}
	if order.Computing {
		for range runtime.GOMAXPROCS(0) {
			go compute()
		}
	}
	return nil
}

func accepts(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// listen opens the listener under test at a free address of this machine's own.
func listen(order *scenario.Order) (net.Listener, error) {
	switch {
	case order.Engine.Percore:
		return percore.Listen("tcp", "127.0.0.1:0")
	case order.Unix: // in the abstract namespace, where no file is left (unix(7))
		return net.Listen("unix", fmt.Sprintf("@percore-bench-%d", os.Getpid()))
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// Usage takes a snapshot of the server's process.
func (p *Process) Usage(_ scenario.None, u *scenario.Usage) (err error) {
	if *u, err = usage(); err == nil && p.server.fastPath != nil {
		u.FastPath = p.server.fastPath()
	}
	return err
}

// Memory measures the lasting memory of the server's process.
func (p *Process) Memory(_ scenario.None, m *scenario.Memory) (err error) {
	*m, err = memory()
	return err
}

// Await returns when n handlers have begun to wait.
func (p *Process) Await(n int, _ *scenario.None) error {
	p.server.poll.await(n)
	return nil
}

// Release ends the waits.
func (p *Process) Release(scenario.None, *scenario.None) error {
	p.server.poll.release()
	return nil
}
