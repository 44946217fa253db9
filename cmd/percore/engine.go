package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
)

// The values of -engine.
const (
	enginePercore = "percore"
	engineNet     = "net"
)

// loopsMax is the most that -loops takes, as loop.Config does.
const loopsMax = 1024

// serveEngine is where the servers' listeners come from: the one place of this
// command that tells percore from net. Everything above it is the same code for
// both, which is what makes them comparable.
type serveEngine struct {
	name  string
	group *loop.Group // nil with net, and where percore itself runs on net
}

// newServeEngine starts the engine called name. loops is the number of event
// loops of the percore engine, 0 for one per GOMAXPROCS; net has none.
func newServeEngine(name string, loops int) (*serveEngine, error) {
	e := &serveEngine{name: name}
	if name == engineNet {
		return e, nil
	}
	group, err := loop.NewGroup(loop.Config{Loops: loops})
	if errors.Is(err, errors.ErrUnsupported) {
		return e, nil
	}
	if err != nil {
		return nil, fmt.Errorf("starting the engine: %w", err)
	}
	e.group = group
	return e, nil
}

// listen opens a TCP listener. Its errors are net's on both engines.
func (e *serveEngine) listen(ctx context.Context, address string) (net.Listener, error) {
	if e.name == engineNet {
		return net.Listen("tcp", address)
	}
	lc := percore.ListenConfig{Group: e.group}
	return lc.Listen(ctx, "tcp", address)
}

// String names the engine for people.
func (e *serveEngine) String() string {
	switch {
	case e.group != nil:
		return fmt.Sprintf("%s, %s", e.name, plural(e.group.Len(), "loop"))
	case e.name != engineNet:
		return fmt.Sprintf("%s (which is net on %s)", e.name, runtime.GOOS)
	}
	return e.name
}

// eventsPerWakeup tells how well wake-ups were shared: the more events one of
// them brings, the less each request costs.
func (e *serveEngine) eventsPerWakeup() string {
	switch {
	case e.group == nil && e.name == engineNet:
		return "not available with -engine net"
	case e.group == nil:
		return "not available on " + runtime.GOOS
	}
	stats := e.group.Stats()
	if stats.Wakeups == 0 {
		return "none (no wake-ups)"
	}
	return fmt.Sprintf("%.2f (%d events, %d wake-ups, %s)",
		float64(stats.Events)/float64(stats.Wakeups), stats.Events, stats.Wakeups, plural(stats.Loops, "loop"))
}

// close lets the engine stop. It does so when the last listener and the last
// connection are gone, too.
func (e *serveEngine) close() {
	if e.group != nil {
		e.group.Close()
	}
}

// plural is n and its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
