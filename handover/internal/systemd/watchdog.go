package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/percore/percore/loop"
)

const watchdogVariable = "WATCHDOG_USEC"

// InheritWatchdog takes the watchdog that the environment asks for, in WATCHDOG_USEC and WATCHDOG_PID,
// and removes them from it: they are not for other programs that this process starts. It fails if
// WATCHDOG_USEC is no positive number. systemd restarts a service that says nothing for that time.
func (n *Notifier) InheritWatchdog() error {
	usec, pid := os.Getenv(watchdogVariable), os.Getenv("WATCHDOG_PID")
	os.Unsetenv(watchdogVariable)
	os.Unsetenv("WATCHDOG_PID")
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil
	}
	interval, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || interval <= 0 || interval > int64(math.MaxInt64/time.Microsecond) {
		return fmt.Errorf("systemd: %s=%q: want microseconds", watchdogVariable, usec)
	}
	n.watchdog = time.Duration(interval) * time.Microsecond
	return nil
}

// PassOn makes the watchdog of a command that has not been started the same: a successor is the process
// that is watched next, and its pid is not known before it starts.
func (n *Notifier) PassOn(cmd *exec.Cmd) {
	if n.watchdog > 0 {
		cmd.Env = append(cmd.Environ(), watchdogVariable+"="+strconv.FormatInt(n.watchdog.Microseconds(), 10))
	}
}

// Watch calls Alive twice in the watchdog's time, each time after all loops of the groups that have
// started have run a task, until ctx ends. It returns at once if there is no watchdog. It begins with a
// pause: the service manager counts from READY=1 or MAINPID= on, and may not know this process before.
// While a loop doesn't turn, because a callback or a task of it doesn't return, slog's default logger
// gets a line, once, and Watch reports nothing. Groups that are nil, or have ended, don't count.
func (n *Notifier) Watch(ctx context.Context, groups ...*loop.Group) {
	if n.watchdog <= 0 {
		return
	}
	pause := time.NewTicker(max(n.watchdog/2, 1))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		var rounds []round
		for _, g := range groups {
			if g != nil {
				rounds = append(rounds, begin(g))
			}
		}
		isLate := false
		for _, r := range rounds {
			for !r.wait(ctx, pause.C) {
				if !isLate {
					slog.Error("a loop does not turn: the service manager's watchdog hears nothing until it does",
						"interval", n.watchdog)
				}
				isLate = true
			}
		}
		if ctx.Err() == nil {
			n.Alive()
		}
	}
}

// round is a task for each loop of a group.
type round struct {
	group *loop.Group
	done  chan struct{} // closed when all tasks have run
}

// begin submits the tasks to all loops that have started.
func begin(g *loop.Group) round {
	r := round{g, make(chan struct{})}
	loops := g.Stats().PerLoop
	if len(loops) == 0 {
		close(r.done)
	}
	var left atomic.Int64
	left.Store(int64(len(loops)))
	for _, l := range loops {
		g.Loop(l.Loop).Submit(func() {
			if left.Add(-1) == 0 {
				close(r.done)
			}
		})
	}
	return r
}

// wait waits for the end of the round, of its group, which drops tasks, or of ctx. It reports false if
// none has come before late.
func (r round) wait(ctx context.Context, late <-chan time.Time) bool {
	select {
	case <-r.done:
	case <-r.group.Stopped():
	case <-ctx.Done():
	case <-late:
		return false
	}
	return true
}
