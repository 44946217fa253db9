package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/handover/internal/systemd"
)

// Service runs the servers of a process, from start to end.
type Service struct {
	// Parts are the servers, and where they listen.
	Parts []Part

	// Restart is the signal on which the process starts a successor, from the program that is then at its
	// path, and hands over to it: usually syscall.SIGHUP. nil means that no signal does. A signal that is
	// ignored when Run begins, as SIGHUP is under nohup(1), has no effect. If the terminal is gone,
	// SIGHUP ends the process, as it does other programs.
	Restart os.Signal

	// AnyParent allows a restart whatever has started this process. The process that was started first
	// ends then, so without AnyParent a restart works only below systemd with Type=notify, in an
	// interactive shell, or if the parent has ended: docs/OPERATIONS.md has a list of supervisors. It
	// never works as pid 1.
	AnyParent bool

	// DrainDelay is how long the parts go on serving after Leaving was called, so that a load balancer
	// notices before connections are refused. With a successor there is no delay. In the last second of
	// it, parts whose Server is a [Drainer] drain.
	DrainDelay time.Duration

	// Drain is how long running requests may go on after that, or after a successor has taken over; a
	// handover first waits a second for them, because then their connections can move. 0 means 10 seconds.
	Drain time.Duration

	// Conns, if not nil, has the hijacked connections. Connections that a carrier can move go to a
	// successor (see [Conns.Carry]). The others also have the time of Drain to end.
	Conns *Conns

	// The functions below are called if they are not nil. Run itself calls them, so they hold it up.

	// Ready: all listeners accept, and the predecessor, if there was one, has left them. They are in
	// the order of Parts.
	Ready func(listeners []net.Listener)

	// Leaving: this process is about to stop without a successor. Make readiness checks fail.
	Leaving func()

	// HandedOver: the process with that pid has taken over.
	HandedOver func(pid int)
}

// Part is a server of a [Service].
type Part struct {
	// Name is the part's name in a handover, and in errors. It has 1 to 100 bytes, and no other part may
	// have it.
	Name string

	// Address is the TCP address to listen on, unless a predecessor has a listener of that Name, or
	// systemd has opened sockets for it. It must be set if Listener is nil.
	Address string

	// Config has the options of the listener at Address. nil: none. It must be nil if Listener is set.
	Config *percore.ListenConfig

	// Listener, if not nil, is used instead of Address. Run owns it. If the Service restarts, it must be
	// a *percore.Listener. If a predecessor has a listener of that Name, Run makes a listener of the
	// predecessor's sockets with the options of Listener, and closes Listener unused.
	Listener net.Listener

	// Server serves the listener, and must be set even if Serve is. If it has *httpadapter.Server's method
	// HandOver, its connections move to a successor. If it is a [Drainer], which *httpadapter.Server also
	// is, clients whose connections stay are told to leave before Shutdown closes them.
	Server Lifecycle

	// Serve, if not nil, is called instead of Server.Serve:
	//
	//	Serve: func(l net.Listener) error { return server.ServeTLS(l, "cert.pem", "key.pem") }
	Serve func(net.Listener) error

	// State, if not nil, returns data for a successor, at most 4 KiB, which are not stored. It could be
	// the secret of the TLS session ticket keys, so that clients resume their sessions after a restart.
	// Run calls State when a successor has been started.
	State func() []byte

	// Restore, if not nil, gets what State returned in the predecessor's part of that Name. Run calls it
	// once, before any part serves. state is empty if there is no predecessor, or if the predecessor has
	// no such part or no State: then create the data to share. The handover may still fail, and the
	// predecessor may go on serving with the same state.
	Restore func(state []byte)
}

// Lifecycle is the part of *http.Server and *httpadapter.Server that starts and ends them.
type Lifecycle interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// Drainer is a server that can tell its clients to open their next connections elsewhere, while it
// goes on serving the ones it has, such as *httpadapter.Server. Run calls Drain up to a second before
// Shutdown, at the end of DrainDelay and after a handover. Otherwise waiting connections would be
// closed without notice, some while their client sends a request. Drain returns when ctx ends or no
// connection is left, or at once, and must not close the listener. Run ignores its error. After a
// handover it gives an *http.Server the same time, with keep-alives off.
type Drainer interface {
	Drain(ctx context.Context) error
}

const (
	// defaultDrain is long enough for what a person waits for, and as long as Docker waits.
	defaultDrain = 10 * time.Second

	// giveLimit is how long a successor may take to start, and to take over.
	giveLimit = 30 * time.Second

	// busyLimit is how long a handover waits for the requests of connections that could move. Few take
	// longer, and the successor isn't ready before the handover ends. Requests that take longer have the
	// time of Drain to end here.
	busyLimit = time.Second

	// drainLimit is how long Drain may take. It is more than most busy clients wait between two requests.
	// Clients that wait longer rarely send a request at the very moment when their connection is closed.
	drainLimit = time.Second

	// killAfter is how much longer than Drain a successor may run after it could not take over: it shuts
	// down, unless it hangs.
	killAfter = 10 * time.Second
)

// Run serves until ctx ends, SIGINT or SIGTERM comes, a server fails, or a successor has taken over.
// Then it shuts down the parts, and returns nil, or the first error: of a listener, of a server, or
// context.DeadlineExceeded if requests were cut off. Another signal during the shutdown ends the
// process at once; after a handover only the second one does, since the first may have been meant for
// the successor.
//
//	while             signal, end of ctx         Restart                      a server fails
//	taking over       gives up; the predecessor  nothing                      gives up, the same
//	                  serves on
//	serving           delaying                   hands over; if that works:   shutting down
//	                                             shutting down
//	handing over      serving goes on, then      another try, if it fails     serving goes on, then
//	                  delaying                                                shutting down
//	delaying          the process ends           nothing                      shutting down
//	shutting down     the process ends           nothing                      nothing
//
// A Service that can't work fails at once, with an error that says what to change; otherwise it would
// fail at its first restart, or in the middle of a shutdown.
//
// Run works with systemd (docs/OPERATIONS.md has units). It reports when the parts serve, after Ready
// has returned, and what follows (sd_notify(3)). Twice per WatchdogSec= it reports that the listeners'
// loops are running. A part with an Address gets the sockets with its Name as FileDescriptorName=; the
// first such part also gets sockets without a name. Run fails if a socket has a name that no such part
// has.
//
// A program calls Run once, early: until then, the signal Restart would end the process. Failed
// handovers are logged to slog's default logger.
func (s *Service) Run(ctx context.Context) error {
	switch {
	case s == nil:
		return errNil("Service.Run", "the Service", "one with Parts")
	case ctx == nil:
		return errNil("Service.Run", "ctx", aContext)
	}
	if err := s.check(); err != nil {
		return s.decline(fmt.Errorf("handover: this Service can't run: %w", err))
	}
	r := &run{
		Service: s, failed: make(chan error, len(s.Parts)), restart: make(chan os.Signal, 1),
		terminal: hasTerminal(),
	}
	r.failures, r.kill = context.WithCancel(context.Background())
	r.parents = findParentage(r.terminal)
	if err := r.manager.InheritWatchdog(); err != nil {
		slog.Warn("handover: the service manager's watchdog", "error", err)
	}
	if s.Restart != nil && !signal.Ignored(s.Restart) {
		signal.Notify(r.restart, s.Restart) // first: it must not end a process that is taking over
		defer signal.Stop(r.restart)
	}
	signalled, rearm := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer rearm()
	defer r.endSuccessors()
	if err := r.start(signalled); err != nil {
		rearm()
		return errors.Join(err, r.shutdown(false))
	}
	defer background(r.watch)()
	handedOver, err := r.wait(signalled)
	if handedOver {
		defer background(r.logRestarts)()
		defer context.AfterFunc(signalled, rearm)()
	} else {
		rearm()
		r.manager.Stopping(r.DrainDelay + r.drain())
		r.leave(err == nil)
	}
	return errors.Join(err, r.shutdown(handedOver))
}

// decline gives up before anything has begun: the predecessor, if there is one, learns why, and serves
// on.
func (s *Service) decline(why error) error {
	for _, p := range s.Parts {
		if !isNil(p.Listener) {
			p.Listener.Close()
		}
	}
	if c, err := inherited(); c != nil && err == nil {
		w := newWire(c)
		w.refuse(why)
		w.close()
	}
	return why
}

// run is a call of Service.Run.
type run struct {
	*Service
	listeners []net.Listener // of the parts that have begun to serve
	serving   sync.WaitGroup
	failed    chan error         // Serve of a part has returned too early
	stopping  atomic.Bool        // shutdown was called
	restart   chan os.Signal     // keeps a signal that comes during a restart
	failures  context.Context    // of successors that have failed, and may still run
	kill      context.CancelFunc // ends failures
	killing   sync.WaitGroup     // for the end of each
	parents   parentage
	terminal  bool // there was one when Run began

	manager systemd.Notifier
}

// start opens the listeners, serves, and takes over from the predecessor if there is one.
func (r *run) start(ctx context.Context) (err error) {
	predecessor, err := inheritFrom(ctx)
	if err != nil {
		return err
	}
	orphaned := false
	if predecessor != nil {
		defer func() {
			if err != nil {
				predecessor.giveUp(err)
			}
		}()
		r.parents.isSuccessor = true
	}
	listeners, err := r.open(ctx, predecessor)
	if err != nil {
		return err
	}
	r.restore(predecessor)
	for i, l := range listeners {
		r.serve(&r.Parts[i], l)
	}
	if predecessor != nil {
		if err := predecessor.ready(ctx, r.Conns); errors.Is(err, errGone) {
			slog.Warn("handover: the predecessor has ended in the middle of it", "error", err)
			orphaned = true
		} else if err != nil {
			return err
		}
	}
	if r.Ready != nil {
		r.Ready(listeners)
	}
	switch {
	case orphaned:
		r.manager.Orphaned()
	case predecessor != nil:
		r.manager.Succeeded()
	default:
		r.manager.Ready()
	}
	return nil
}

func inheritFrom(ctx context.Context) (*successor, error) {
	c, err := inherited()
	if c == nil || err != nil {
		return nil, err
	}
	return take(ctx, c)
}

// open opens the listeners of all parts, or none.
func (r *run) open(ctx context.Context, predecessor *successor) (listeners []net.Listener, err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, l := range listeners {
			l.Close()
		}
		for _, p := range r.Parts[len(listeners):] {
			if p.Listener != nil {
				p.Listener.Close()
			}
		}
		listeners = nil
	}()
	sockets, err := r.sockets()
	if err != nil {
		return nil, err
	}
	defer sockets.close()
	for i := range r.Parts {
		p := &r.Parts[i]
		l, err := p.open(ctx, predecessor.offer(p.Name), sockets[p.Name])
		if err != nil {
			return listeners, fmt.Errorf("handover: part %q: %w", p.Name, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// open opens a part's listener, takes the one that the predecessor offers, if any, or makes it of
// sockets that systemd has opened.
func (p *Part) open(ctx context.Context, offer *offered, sockets []*os.File) (net.Listener, error) {
	config := p.Config
	if config == nil {
		config = new(percore.ListenConfig)
	}
	switch {
	case offer != nil && p.Listener != nil:
		return p.replaceListener(offer)
	case offer != nil:
		return offer.open(config.FileListeners)
	case p.Listener != nil:
		return p.Listener, nil
	case sockets != nil:
		return config.FileListeners(sockets...)
	}
	return config.Listen(ctx, "tcp", p.Address)
}

// replaceListener returns a listener like p.Listener on the predecessor's sockets, and closes
// p.Listener.
func (p *Part) replaceListener(offer *offered) (net.Listener, error) {
	own, err := movingListener(p.Listener)
	if err != nil {
		return nil, err
	}
	l, err := offer.open(own.Alike)
	if err == nil {
		p.Listener.Close()
	}
	return l, err
}

func (r *run) restore(predecessor *successor) {
	for _, p := range r.Parts {
		if p.Restore == nil {
			continue
		}
		var state []byte
		if offer := predecessor.offer(p.Name); offer != nil {
			state = offer.State
		}
		p.Restore(state)
	}
}

func (r *run) serve(p *Part, l net.Listener) {
	r.listeners = append(r.listeners, l)
	serveOn := p.Serve
	if serveOn == nil {
		serveOn = p.Server.Serve
	}
	r.serving.Go(func() {
		err := serveOn(l)
		switch {
		case r.stopping.Load(): // servers have their own errors for that, such as net/http's ErrServerClosed
		case err != nil:
			r.failed <- fmt.Errorf("handover: part %q: %w", p.Name, err)
		default:
			r.failed <- nil // the program has stopped it
		}
	})
}

// wait serves until there is a reason to stop.
func (r *run) wait(ctx context.Context) (handedOver bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case err := <-r.failed:
			return false, err
		case <-r.restart:
		}
		if r.Restart == os.Signal(syscall.SIGHUP) && r.terminal && !hasTerminal() {
			return false, errors.New("handover: the terminal was closed")
		}
		r.manager.Reloading()
		pid, err := r.give(ctx)
		if err == nil {
			r.manager.HandedOver(pid)
			if r.HandedOver != nil {
				r.HandedOver(pid)
			}
			return true, nil
		}
		r.manager.Ready()
		slog.Error("handover: restarting failed", "error", err)
	}
}

// logRestarts logs a line for each signal to restart that comes too late, until ctx ends.
func (r *run) logRestarts(ctx context.Context) {
	for {
		select {
		case s := <-r.restart:
			slog.Warn("handover: this process has a successor, which a signal to restart must be sent to", "signal", s)
		case <-ctx.Done():
			return
		}
	}
}

// background runs f until the function that it returns is called, which ends f's ctx and waits.
func background(f func(ctx context.Context)) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		end()
		running.Wait()
	}
}

func (r *run) give(ctx context.Context) (pid int, err error) {
	if err := r.parents.check(os.Getppid(), r.AnyParent); err != nil {
		return 0, err
	}
	servers, err := r.servers()
	if err != nil {
		return 0, err
	}
	cmd, err := successorCommand()
	if err != nil {
		return 0, fmt.Errorf("handover: starting the successor: %w", err)
	}
	r.manager.PassOn(cmd)
	c, err := start(cmd)
	if err != nil {
		return 0, fmt.Errorf("handover: starting the successor: %w", err)
	}
	slog.Info("handover: starting a successor", "pid", cmd.Process.Pid)
	for i := range servers {
		if state := r.Parts[i].State; state != nil {
			servers[i].state = state()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, giveLimit)
	defer cancel()
	if err := give(ctx, c, busyLimit, r.Conns, servers...); err != nil {
		r.endLater(cmd)
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release() // which forgets the pid
}

// servers returns the parts for give, without their states.
func (r *run) servers() (all []server, err error) {
	for i, l := range r.listeners {
		p := &r.Parts[i]
		s := server{name: p.Name, listener: l}
		if s.moving, err = movingListener(l); err != nil {
			return nil, err
		}
		s.source, _ = p.Server.(source)
		all = append(all, s)
	}
	return all, nil
}

// endLater gives a successor that has failed the time to shut down by itself. If it hangs it has copies
// of sockets, whose clients wouldn't see this process close them.
func (r *run) endLater(cmd *exec.Cmd) {
	r.killing.Go(func() {
		ctx, cancel := context.WithTimeout(r.failures, r.drain()+killAfter)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
		_ = cmd.Wait() // the successor itself reports why it failed
	})
}

// endSuccessors kills successors that have failed and still run: if they hung, new connections of the
// listeners that they have copies of would wait for them forever once this process has ended.
func (r *run) endSuccessors() {
	r.kill()
	r.killing.Wait()
}

// leave makes readiness checks fail, and lets the parts serve on for a while, unless one has failed.
func (r *run) leave(intact bool) {
	if r.Leaving != nil {
		r.Leaving()
	}
	if !intact || r.DrainDelay <= 0 {
		return
	}
	// One wait after the other, with no timer for both: a process that was stopped for so long finds both
	// times over, and drains nevertheless.
	if !r.serveFor(max(r.DrainDelay-drainLimit, 0)) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var draining sync.WaitGroup
	for i := range r.listeners {
		draining.Go(func() { r.Parts[i].drain(ctx) })
	}
	r.serveFor(min(r.DrainDelay, drainLimit)) // new connections come until then, even if none is left for a moment
	cancel()
	draining.Wait()
}

// serveFor lets the parts serve on for d. If one fails it reports false at once.
func (r *run) serveFor(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case err := <-r.failed:
		if err != nil { // the program may have stopped the server
			slog.Error("handover: a server failed before the end of the delay", "error", err)
		}
		return false
	}
}

// drain tells the part's clients to leave, if its server can, until ctx ends or none is left.
func (p *Part) drain(ctx context.Context) {
	if d, ok := p.Server.(Drainer); ok {
		_ = d.Drain(ctx)
	}
}

// drainMoved is drain for a part whose listener l a successor has. An *http.Server is no Drainer, and
// after Shutdown was called it closes connections unanswered whose first request it reads only then.
// Some were accepted just before the handover, so it gets the time to answer them.
func (p *Part) drainMoved(ctx context.Context, l net.Listener) {
	s, ok := p.Server.(interface{ SetKeepAlivesEnabled(bool) })
	if _, drains := p.Server.(Drainer); drains || !ok {
		p.drain(ctx)
		return
	}
	s.SetKeepAlivesEnabled(false) // closes connections that wait, as Shutdown does
	for openConns(l) > 0 {
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return
		}
	}
}

func (r *run) drain() time.Duration { return cmp.Or(r.Drain, defaultDrain) }

// shutdown ends the parts that serve, and the hijacked connections, and cuts off what takes too long.
// After a handover the parts drain first: no new connections come.
func (r *run) shutdown(handedOver bool) error {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), r.drain())
	defer cancel()
	errs := make([]error, len(r.listeners)+1)
	var stopping sync.WaitGroup
	endConns := func() {
		if r.Conns == nil {
			return
		}
		if err := r.Conns.Shutdown(ctx); err != nil {
			errs[len(r.listeners)] = fmt.Errorf("handover: %d hijacked connections were left: %w", r.Conns.Len(), err)
		}
	}
	for i := range r.listeners {
		p := &r.Parts[i]
		stopping.Go(func() {
			if handedOver {
				some, cancel := context.WithTimeout(ctx, min(drainLimit, r.drain()/2))
				p.drainMoved(some, r.listeners[i])
				cancel()
			}
			if err := p.Server.Shutdown(ctx); err != nil {
				errs[i] = fmt.Errorf("handover: shutting down %q: %w", p.Name, err)
				_ = p.Server.Close()
			}
		})
	}
	stopping.Go(endConns)
	stopping.Wait()
	endConns() // those of handlers that were running
	r.serving.Wait()
	return errors.Join(errs...)
}
