package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/handover"
)

// This is how "percore serve" is replaced by another process of itself: on SIGHUP, or by
// "percore serve -upgrade".

// handOverLimit is for how long a hand-over may take. At its end requests that are still under
// way stay with the predecessor, which then shuts down.
const handOverLimit = 30 * time.Second

// freedLimit is for how long the successor waits for the addresses that the predecessor frees at
// the end of a hand-over, and freedPause how often it tries.
const (
	freedLimit = 5 * time.Second
	freedPause = 20 * time.Millisecond
)

// acceptPause is how long a process that can't accept a successor waits before it tries again.
const acceptPause = 100 * time.Millisecond

// refusalsPeriod is the time between two lines about processes of other users.
const refusalsPeriod = time.Minute

// failedLimit is for how long a successor may run after a hand-over to it has failed: for longer than
// it takes to shut down.
const failedLimit = 2 * shutdownLimit

// controlName is the name of the socket by which -upgrade finds the process that serves on the
// options' addresses, or "" if these are not known before they are listened on. It is abstract
// (unix(7)): there is no file that could be left behind, and other users' processes, which could
// take the name or connect, are told apart by SO_PEERCRED.
func (o *serveOptions) controlName() string {
	for _, address := range []string{o.httpAddress, o.grpcAddress} {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
			return ""
		}
	}
	return fmt.Sprintf("@percore-serve/%d/%s/%s", os.Getuid(), o.httpAddress, o.grpcAddress)
}

// listenerName names the HTTP listener for a successor: one that speaks the other protocol must not
// get it.
func (o *serveOptions) listenerName() string {
	if o.tls {
		return "https"
	}
	return "http"
}

// takeOver returns what a predecessor leaves, or nil if this process has none. isChild says that the
// predecessor has started this process.
func takeOver(ctx context.Context, opts serveOptions) (a *handover.Arrival, isChild bool, err error) {
	c, err := handover.Inherited()
	if err != nil {
		return nil, false, err
	}
	isChild = c != nil
	if !isChild && opts.upgrade {
		c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: opts.controlName(), Net: "unixpacket"})
		if err != nil {
			return nil, false, fmt.Errorf("-upgrade: no percore serve of this user with the same -http and -grpc is running (%w)", err)
		}
	}
	if c == nil {
		return nil, false, nil
	}
	a, err = handover.Take(ctx, c)
	return a, isChild, err
}

// becomeReady has the predecessor leave, if there is one, waits until it has given up everything, and
// starts the admin server if the predecessor had its address. A failure of the latter is a warning: the
// predecessor is gone, and the connections are here.
func (d *demo) becomeReady(ctx context.Context) error {
	if d.predecessor == nil {
		return nil
	}
	err := d.predecessor.Ready(ctx)
	if errors.Is(err, handover.ErrGone) {
		d.log.Warn("the predecessor ended in the middle of the hand-over", "err", err)
		err = nil
	}
	if err != nil || d.admin != nil {
		return err
	}
	if err := d.onceFree(ctx, d.listenAdmin); err != nil {
		d.log.Warn("no admin server", "err", err)
	}
	d.startAdmin()
	return nil
}

// onceFree calls listen, again and again while the predecessor, if there is one, has the address, until
// ctx ends.
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

// pause waits. It reports false, at once, when ctx ends.
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
	control *net.UnixListener // nil: there is none
	handed  chan struct{}     // closed when a successor has everything
	refused refusals

	end  context.CancelFunc
	once sync.Once
	all  sync.WaitGroup
}

// watchHangups returns where SIGHUP comes from now on: also one that comes too early, or too late,
// doesn't end the process. It is nil if SIGHUP is ignored, by nohup(1): the server then outlives its
// terminal.
func watchHangups() <-chan os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// awaitSuccessors begins to.
func (d *demo) awaitSuccessors(ctx context.Context, hangups <-chan os.Signal, terminal bool) *successors {
	s := &successors{d: d, hangups: hangups, handed: make(chan struct{}), refused: refusals{log: d.log}}
	ctx, s.end = context.WithCancel(ctx)
	s.all.Go(func() { s.restartOnHangup(ctx, terminal) })
	if s.control = d.listenControl(ctx); s.control != nil {
		s.all.Go(func() { s.acceptSuccessors(ctx) })
	}
	return s
}

// listenControl returns the listener for -upgrade. The server does without if it can't have one.
func (d *demo) listenControl(ctx context.Context) (l *net.UnixListener) {
	name := d.opts.controlName()
	if name == "" || d.engine.group == nil {
		return nil
	}
	err := d.onceFree(ctx, func() (err error) {
		l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
		return err
	})
	if err != nil {
		d.log.Warn("percore serve -upgrade will not find this process", "err", err)
		return nil
	}
	return l
}

// restartOnHangup starts a successor for each SIGHUP. If the terminal is gone, the signal says so, and
// the process ends as programs do.
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
		s.d.manager.reloading()
		if err := s.restart(ctx); err != nil {
			s.d.log.Error("restarting failed", "err", err)
			s.d.manager.ready()
		}
	}
}

// restart starts a successor and hands over to it, in the background.
func (s *successors) restart(ctx context.Context) error {
	if s.d.executable == "" {
		return errors.New("the path of this program is not known")
	}
	cmd := exec.Command(s.d.executable, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c, err := handover.Start(cmd)
	if err != nil {
		return err
	}
	s.d.log.Info("starting a successor", "pid", cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // or it would be a zombie when it has failed; what it failed of, it says itself
	s.all.Go(func() {
		if s.give(ctx, c, cmd.Process.Pid) != nil {
			s.d.manager.ready()
			// One that hangs may hold copies of connections, whose clients wouldn't see them closed here.
			time.AfterFunc(failedLimit, func() { _ = cmd.Process.Kill() })
		}
	})
	return nil
}

// acceptSuccessors hands over to processes that connect. It does not leave other users' to Give, which
// refuses them, too: they can connect as often as they like, and each failure of Give is a line.
func (s *successors) acceptSuccessors(ctx context.Context) {
	for {
		c, err := s.control.AcceptUnix()
		switch {
		case err == nil:
			if p := peerOf(c); p.uid == os.Geteuid() {
				s.all.Go(func() { _ = s.give(ctx, c, p.pid) })
			} else {
				_ = c.Close()
				s.refused.add(p)
			}
		case errors.Is(err, net.ErrClosed) || !pause(ctx, acceptPause): // lack of descriptors passes
			return
		}
	}
}

// refusals logs the processes of other users that have asked to take over: the first at once, and then a
// line with their number per refusalsPeriod, if there are more. Its method is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu    sync.Mutex
	since int  // the last line; guarded by mu
	last  peer // of them; guarded by mu
	waits bool // a line is due at the end of the period; guarded by mu
}

// add counts a process.
func (r *refusals) add(p peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.last = r.since+1, p
	if !r.waits {
		r.tellLocked()
	}
}

// tellLocked logs those since the last line, and comes again after the period as long as there are any.
func (r *refusals) tellLocked() {
	if r.waits = r.since > 0; !r.waits {
		return
	}
	r.log.Warn("refused to hand over to processes of other users", "count", r.since, "uid", r.last.uid, "pid", r.last.pid)
	r.since = 0
	time.AfterFunc(refusalsPeriod, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tellLocked()
	})
}

// give hands over to the process with that pid, which is at the other end of c.
func (s *successors) give(ctx context.Context, c *net.UnixConn, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, handOverLimit)
	defer cancel()
	if err := handover.Give(ctx, c, s.d.servers()...); err != nil {
		s.d.log.Error("handing over failed", "err", err)
		return err
	}
	s.d.manager.handedOver(pid) // first: then this process may end
	s.once.Do(func() { close(s.handed) })
	return nil
}

// servers are the parts that a successor gets.
func (d *demo) servers() []handover.Server {
	source, _ := d.httpServer.(handover.Source)
	return []handover.Server{
		{Name: d.opts.listenerName(), Listener: d.httpListener.Listener, Source: source},
		{Name: "grpc", Listener: d.grpcListener.Listener},
	}
}

// close ends it, and hand-overs that are under way.
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
func (e *serveEngine) inherit(from *handover.Arrival, name string) (openListener, error) {
	l, err := from.Listener(name, &e.lc)
	if err != nil {
		return openListener{}, err
	}
	return e.open(l), nil
}
