package main

import (
	"context"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/percore/percore/loop"
)

// watchdog tells the service manager that the server works: that its loops turn. With WatchdogSec= in
// the unit systemd restarts a service that says nothing for that time.
type watchdog struct {
	interval time.Duration // 0: there is none
}

// watchdogVariable is the environment variable with the interval. The process that is watched unsets
// it, and WATCHDOG_PID.
const watchdogVariable = "WATCHDOG_USEC"

// inheritWatchdog returns the watchdog that the environment asks for.
func inheritWatchdog() (watchdog, error) {
	interval, err := daemon.SdWatchdogEnabled(true)
	return watchdog{interval}, err
}

// passOn makes a command's watchdog the same: a successor is the process that is watched next, and its
// pid is not known before it starts.
func (w watchdog) passOn(cmd *exec.Cmd) {
	if w.interval > 0 {
		cmd.Env = append(cmd.Environ(), watchdogVariable+"="+strconv.FormatInt(w.interval.Microseconds(), 10))
	}
}

// run reports twice per interval that all loops have turned, until ctx ends. It begins with a pause: the
// service manager counts from READY=1 or MAINPID= on, and may not know this process before. While a loop
// doesn't turn, because a callback or a task of it doesn't return, run says so in the log, once, and
// reports nothing.
func (w watchdog) run(ctx context.Context, d *demo) {
	if w.interval == 0 {
		return
	}
	pause := time.NewTicker(w.interval / 2)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		turned := d.engine.turned()
		select {
		case <-turned:
		case <-ctx.Done():
		case <-pause.C:
			d.log.Error("a loop does not turn: the service manager's watchdog hears nothing until it does", "interval", w.interval)
			select {
			case <-turned:
			case <-ctx.Done():
			}
		}
		if ctx.Err() == nil {
			d.manager.alive()
		}
	}
}

// turned returns a channel that is closed once all loops that have started have run a task. On package
// net, which has no loops, that is at once.
func (e *serveEngine) turned() <-chan struct{} {
	var loops []*loop.Loop
	for _, g := range []*loop.Group{e.group, e.adminConfig.Group} {
		if g == nil {
			continue
		}
		for _, l := range g.Stats().PerLoop {
			loops = append(loops, g.Loop(l.Loop))
		}
	}
	turned := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(loops)))
	for _, l := range loops {
		l.Submit(func() {
			if left.Add(-1) == 0 {
				close(turned)
			}
		})
	}
	if len(loops) == 0 {
		close(turned)
	}
	return turned
}
