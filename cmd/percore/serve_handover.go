package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/handover"
)

// This file lets another process take the place of "percore serve": on SIGHUP, or with "percore
// serve -upgrade".

// handOverLimit is how long a handover may take. After that, requests still in progress stay with
// the predecessor, which then shuts down, and has -drain for that.
const handOverLimit = 30 * time.Second

// freedLimit is how long the successor waits for the addresses that the predecessor frees at the
// end of a handover, and freedPause is the time between two attempts.
const (
	freedLimit = 5 * time.Second
	freedPause = 20 * time.Millisecond
)

// acceptPause is how long a process that can't accept a successor waits before it tries again.
const acceptPause = 100 * time.Millisecond

// failedLimit is how much longer than -drain a successor may run after a failed handover: it shuts down
// within that time, unless it hangs.
const failedLimit = 10 * time.Second

// listenerName names the HTTP listener for a successor. The name includes the protocol: a successor
// that speaks the other one must not get the listener.
func (o *serveOptions) listenerName() string {
	if o.tls {
		return "https"
	}
	return "http"
}

// takeOver returns what a predecessor leaves, and its pid, or nil if this process doesn't have one.
// isChild reports whether the predecessor started this process.
func takeOver(ctx context.Context, opts serveOptions) (a *handover.Successor, pid int, isChild bool, err error) {
	c, err := handover.Inherited()
	if err != nil {
		return nil, 0, false, err
	}
	isChild = c != nil
	if !isChild && opts.upgrade {
		if c, err = opts.dialPredecessor(); err != nil {
			return nil, 0, false, err
		}
	}
	if c == nil {
		return nil, 0, false, nil
	}
	if p, err := handover.CheckPeer(c); err == nil { // otherwise Take says why not
		pid = p.PID
	}
	a, err = handover.Take(ctx, c)
	return a, pid, isChild, err
}

// becomeReady makes the predecessor leave, if there is one, and waits until it has given up
// everything. Then it starts the admin server, if the predecessor had its address. If only that
// fails, it logs a warning: the predecessor is gone, and the connections are here.
func (d *demo) becomeReady(ctx context.Context) error {
	if d.predecessor == nil {
		return nil
	}
	err := d.predecessor.Ready(ctx)
	if errors.Is(err, handover.ErrGone) {
		d.log.Warn("the predecessor ended in the middle of the handover", "err", err)
		d.isOrphan = true
		err = nil
	}
	if err != nil || d.admin != nil {
		return err
	}
	if err := d.onceFree(ctx, func() error { return d.listenAdmin(ctx) }); err != nil {
		d.log.Warn("no admin server", "err", err)
	}
	d.startAdmin()
	return nil
}

// onceFree calls listen until it succeeds, as long as a predecessor may still have the address and
// until ctx ends.
func (d *demo) onceFree(ctx context.Context, listen func() error) error {
	for deadline := time.Now().Add(freedLimit); ; {
		err := listen()
		if d.predecessor == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
		if !pause(ctx, freedPause) {
			return err
		}
	}
}

// pause waits for d. If ctx ends first, it returns false at once.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// successors lets other processes take over.
type successors struct {
	d       *demo
	hangups <-chan os.Signal
	control *handover.Control // nil if there isn't one
	handed  chan struct{}     // closed when a successor has everything
	giving  atomic.Int32      // handovers to successors that this process has started
	refused refusals

	end  context.CancelFunc
	once sync.Once
	all  sync.WaitGroup
}

// watchHangups returns a channel that receives SIGHUP from now on, so that a signal that comes too
// early or too late doesn't end the process. It returns nil if SIGHUP is ignored, as under
// nohup(1): the server then outlives its terminal.
func watchHangups() <-chan os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// awaitSuccessors starts to let other processes take over.
func (d *demo) awaitSuccessors(ctx context.Context, hangups <-chan os.Signal, terminal bool) *successors {
	s := &successors{d: d, hangups: hangups, handed: make(chan struct{}), refused: refusals{log: d.log}}
	ctx, s.end = context.WithCancel(ctx)
	s.all.Go(func() { s.restartOnHangup(ctx, terminal) })
	if s.control = d.listenControl(ctx); s.control != nil {
		s.all.Go(func() { s.acceptSuccessors(ctx) })
	}
	return s
}

// restartOnHangup starts a successor for each SIGHUP. If the terminal is gone, SIGHUP means just
// that, and the process ends as other programs do.
func (s *successors) restartOnHangup(ctx context.Context, terminal bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hangups:
		}
		if terminal && !hasTerminal() {
			s.d.failed <- errors.New("the terminal was closed")
			return
		}
		if s.giving.Load() > 0 {
			s.d.log.Warn("a handover is under way: SIGHUP has no effect")
			continue
		}
		s.d.manager.Reloading()
		if err := s.restart(ctx); err != nil {
			s.d.log.Error("restarting failed", "err", err)
			s.d.manager.Ready()
		}
	}
}

// restart starts a successor and hands over to it, in the background.
func (s *successors) restart(ctx context.Context) error {
	if err := s.d.mayHandOver(false); err != nil {
		return err
	}
	if s.d.executable == "" {
		return errors.New("the path of this program is not known")
	}
	cmd := exec.Command(s.d.executable, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	s.d.watchdog.PassOn(cmd)
	if s.d.link != nil {
		f, err := s.d.link.passOn(cmd)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	c, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	s.d.log.Info("starting a successor", "pid", cmd.Process.Pid)
	s.giving.Add(1)
	s.all.Go(func() {
		err := s.give(ctx, c, cmd.Process.Pid)
		s.giving.Add(-1) // before the log says so: an operator may try again at once
		s.report(cmd.Process.Pid, err)
		// A successor that has everything becomes the child of another process, which reaps it with
		// its exit status.
		if err != nil {
			s.d.manager.Ready()
			go func() { _ = cmd.Wait() }() // the successor itself reports why it failed
			// A successor that hangs may hold copies of connections, and their clients wouldn't see
			// them closed here.
			time.AfterFunc(s.d.opts.drain+failedLimit, func() { _ = cmd.Process.Kill() })
		}
	})
	return nil
}

// acceptSuccessors hands over to processes that connect. It refuses those that may not take over
// before it calls Give. Give refuses them too, but each failure of Give is a line in the log.
func (s *successors) acceptSuccessors(ctx context.Context) {
	for {
		c, err := s.control.Accept()
		switch {
		case err == nil:
			s.acceptSuccessor(ctx, c)
		case errors.Is(err, net.ErrClosed) || !pause(ctx, acceptPause): // no descriptors: this passes
			return
		}
	}
}

// acceptSuccessor hands over to the process at the other end of c, in the background, or refuses it.
func (s *successors) acceptSuccessor(ctx context.Context, c *net.UnixConn) {
	p, err := handover.CheckPeer(c)
	if err != nil {
		_ = c.Close()
		s.refused.add(p, err)
		return
	}
	if err := s.d.mayHandOver(true); err != nil {
		_ = handover.Refuse(c, err)
		s.refused.add(p, err)
		return
	}
	s.all.Go(func() { s.report(p.PID, s.give(ctx, c, p.PID)) })
}

// mayHandOver returns the reason why another process must not take the place of this one, or nil.
func (d *demo) mayHandOver(isOutside bool) error {
	return d.parents.check(d.opts.handover, os.Getppid(), isOutside)
}

// give hands over to the process with that pid, which is at the other end of c.
func (s *successors) give(ctx context.Context, c *net.UnixConn, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := handover.Give(ctx, c, s.d.servers()...); err != nil {
		return err
	}
	s.d.manager.HandedOver(pid) // first, since this process may end right after
	s.once.Do(func() { close(s.handed) })
	return nil
}

// report logs why a handover has failed, if it has.
func (s *successors) report(pid int, err error) {
	switch {
	case errors.Is(err, handover.ErrOvertaken):
		s.d.log.Info("a handover has come too late", "pid", pid, "err", err)
	case err != nil:
		s.d.log.Error("handing over failed", "err", err)
	}
}

// servers returns the parts that a successor gets.
func (d *demo) servers() []handover.Server {
	source, _ := d.httpServer.(handover.Source)
	calls, _ := d.grpcServer.(handover.Source)
	servers := []handover.Server{
		{
			Name: d.opts.listenerName(), Listener: d.httpListener.Listener, Source: source,
			State: d.ticketState(), Conns: &d.webSockets.conns,
		},
		{Name: "grpc", Listener: d.grpcListener.Listener, Source: calls},
	}
	if d.movesAdmin() {
		servers = append(servers, handover.Server{Name: d.opts.adminName(), Listener: d.admin})
	}
	return servers
}

// movesAdmin reports whether a successor gets the admin listener.
func (d *demo) movesAdmin() bool { return d.admin != nil && d.engine.group != nil }

// close stops accepting successors and ends handovers in progress.
func (s *successors) close() {
	s.end()
	if s.control != nil {
		_ = s.control.Close()
	}
	s.all.Wait()
}

// hasTerminal reports whether the process has a controlling terminal that is still there (tty(4)).
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

// inherit returns the listener that the predecessor calls name.
func (e *serveEngine) inherit(from *handover.Successor, name string) (openListener, error) {
	l, err := from.Listener(name, &e.lc)
	if err != nil {
		return openListener{}, err
	}
	return e.open(l), nil
}
