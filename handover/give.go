package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// server is a part of a Service that is handed over.
type server struct {
	name     string
	listener net.Listener
	moving   seam.Listener // listener's
	source   source        // nil: only the listener moves
	state    []byte
}

// give hands over servers, and the connections of conns' carriers, to the process at the other end of
// c, which calls take. conns may be nil. give owns c. It returns nil when that process has the
// listeners and all connections that could move. The listeners no longer accept, and closing them no
// longer removes the files of unix sockets. The caller then shuts down its servers, which waits for the
// connections that stayed.
//
// Until the successor is ready this process serves as usual, and give fails if ctx ends. After that
// give waits for busy connections until ctx ends, or until none has moved for the time of patience.
//
// If give fails, this process goes on serving all its connections except those that the successor
// already has; the error says at which step it failed. If this process hangs, the successor goes on
// without it: give then returns nil.
func give(ctx context.Context, c *net.UnixConn, patience time.Duration, conns *Conns, servers ...server) (err error) {
	ended := counters.given.begin()
	defer func() { ended(err) }()
	g := &giver{wire: newWire(c), servers: servers, conns: conns, patience: patience}
	defer g.wire.close()
	if step, err := g.run(ctx); err != nil {
		g.wire.refuse(err)
		return fmt.Errorf("handover: %s: %w; this process serves on", step, err)
	}
	return nil
}

// giver is the predecessor's part of a handover:
//
//	step        the listeners accept   waits for            for as long as         leaves by
//	greeting    yes                    hello                stepTimeout, ctx       offer and sockets sent
//	offered     yes                    ready                ctx                    ready received: Pause
//	moving      no                     the sources; took    patience, ctx;         done sent
//	                                                        stepTimeout
//	ending      no                     over                 stepTimeout            over received
//	(success)   no
//	(failure)   yes: Resume
//
// At any step the handover fails if the successor refuses or ends, or sends an invalid message. From
// ready on it succeeds when over comes: the successor sends that unasked if it hears nothing from this
// process for stepTimeout. A process that fails first stops receiving, and looks for over among the
// messages that have come. Whether over was sent in time decides which of the two goes on serving, and
// both know.
//
// And for each batch of connections, which nothing in this process reads at that time:
//
//	step        they belong to   if this process or the other ends, or fails
//	conns sent  this process     this process has them; the successor closes its copies, unread
//	took came   this process     the same
//	commit sent the successor    the successor has them, also if it hasn't received commit yet
//
// So at any time at most one process reads from a connection. The successor can't know whether commit
// is on its way, so it doesn't give up before it has found out: see successor.end.
type giver struct {
	wire     *wire // used under mu while the sources run
	servers  []server
	conns    *Conns
	patience time.Duration // for a source that gives nothing more, but has busy connections

	dropped  map[int]bool // indexes of servers that the successor doesn't take; nil: ready has not come
	carriers []string     // that the successor has
	stop     func()       // ends the sources

	// The batches of all sources go one after the other.
	mu sync.Mutex

	// guarded by mu
	broken error // not nil: nothing moves any more, for this reason
}

// run returns the step at which it failed.
func (g *giver) run(ctx context.Context) (step string, err error) {
	if _, err := g.wire.await(ctx, stepTimeout(), hello); err != nil {
		return "waiting for the successor", err
	}
	if err := g.offer(); err != nil {
		return "sending the listeners", err
	}
	m, err := g.wire.await(ctx, 0, ready)
	if err == nil {
		err = g.heed(m)
	}
	switch {
	case err == nil:
		return g.move(ctx)
	case g.isOver():
		g.stopAccepting()
		return "", nil
	}
	return "waiting for the successor to be ready", err
}

func (g *giver) offer() error {
	m := &message{Kind: offer}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, s := range g.servers {
		if len(s.state) > stateBytesMax {
			return fmt.Errorf("the state of listener %q has %d bytes, more than %d", s.name, len(s.state), stateBytesMax)
		}
		all, err := s.moving.Files()
		if err != nil {
			return err
		}
		files = append(files, all...)
		addr := s.listener.Addr()
		m.Listeners = append(m.Listeners, offeredListener{s.name, addr.Network(), addr.String(), len(all), s.moving.UnlinkOnClose(), s.state})
		if s.source != nil || g.conns != nil {
			m.Open += openConns(s.listener)
		}
	}
	if err := g.wire.say(m); err != nil {
		return err
	}
	for part := range slices.Chunk(files, descriptorsMax) {
		var fds []int
		for _, f := range part {
			fds = append(fds, int(f.Fd()))
		}
		if err := g.wire.say(&message{Kind: sockets}, fds...); err != nil {
			return err
		}
	}
	return nil
}

func openConns(l net.Listener) int {
	if l, ok := l.(*percore.Listener); ok {
		return l.Stats().Conns
	}
	return 0
}

func (g *giver) heed(m *message) error {
	g.carriers, g.dropped = m.Carriers, make(map[int]bool)
	for _, i := range m.Dropped {
		if i < 0 || i >= len(g.servers) {
			g.dropped = nil
			return fmt.Errorf("the successor drops listener %d of %d", i, len(g.servers))
		}
		g.dropped[i] = true
	}
	return nil
}

// isOver reports whether the successor has gone on by itself. It makes this process stop receiving,
// and looks at all messages that have come.
func (g *giver) isOver() bool {
	g.wire.stopReceiving()
	for {
		m, fds, err := g.wire.receive(context.Background(), stepTimeout())
		fds.close()
		switch {
		case err != nil:
			return false
		case m.Kind == over:
			return true
		case m.Kind == ready && g.dropped == nil: // and not a second one, which is invalid
			_ = g.heed(m)
		}
	}
}

func (g *giver) moves() (all []seam.Listener) {
	for i, s := range g.servers {
		if !g.dropped[i] {
			all = append(all, s.moving)
		}
	}
	return all
}

// stopAccepting pauses the listeners, and makes Close leave the files of unix sockets, which the
// successor owns from done on. It returns the listeners whose Close would have removed theirs.
func (g *giver) stopAccepting() (unlinked []seam.Listener) {
	for _, l := range g.moves() {
		l.Pause()
		if l.UnlinkOnClose() {
			l.SetUnlinkOnClose(false)
			unlinked = append(unlinked, l)
		}
	}
	return unlinked
}

// move hands the connections over to a successor that is ready.
func (g *giver) move(ctx context.Context) (step string, err error) {
	unlinked := g.stopAccepting()
	step, err = "handing over connections", g.drain(ctx)
	if err == nil {
		step, err = "ending", g.finish()
	}
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, errOver), g.isOver():
		slog.Warn("handover: the successor has gone on without this process, which it has not heard from:"+
			" connections that had not moved stay behind", "limit", stepTimeout())
		return "", nil
	}
	for _, l := range unlinked {
		l.SetUnlinkOnClose(true)
	}
	for _, l := range g.moves() {
		l.Resume()
	}
	return step, err
}

// finish tells the successor that it has everything, and waits until it confirms that.
func (g *giver) finish() error {
	err := g.wire.say(&message{Kind: done})
	if err == nil {
		_, err = g.wire.await(context.Background(), stepTimeout(), over)
	}
	return err
}

// drain makes all sources give their connections. The end of ctx ends it, and is no failure.
func (g *giver) drain(ctx context.Context) error {
	ctx, g.stop = context.WithCancel(ctx)
	var sources, watching sync.WaitGroup
	watching.Go(func() { g.watch(ctx) })
	source := func(kind, name string, drain func() error) {
		sources.Go(func() {
			if err := drain(); err != nil && ctx.Err() == nil {
				_ = g.fail(fmt.Errorf("%s %q: %w", kind, name, err))
			}
		})
	}
	for i, s := range g.servers {
		if !g.dropped[i] {
			source("server", s.name, func() error { return g.drainServer(ctx, i) })
		}
	}
	carry := func() {
		for _, name := range g.carried() {
			source("carrier", name, func() error { return g.drainCarrier(ctx, name) })
		}
		sources.Wait()
	}
	carry()
	carry() // connections that were hijacked in the meantime, by the last requests
	g.stop()
	watching.Wait()
	return g.broken
}

// settlePause is the time between two checks of a listener that has not settled, and of the successor.
const settlePause = 5 * time.Millisecond

// watch stops the move when the successor gives up or ends, even if nothing moves at the moment.
func (g *giver) watch(ctx context.Context) {
	for ctx.Err() == nil {
		g.mu.Lock()
		_ = g.failedLocked()
		g.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(settlePause):
		}
	}
}

// drainServer makes server i give its connections until none is left, and none is on its way from
// Accept to the source. The source knows the last one when the server calls Accept again. A program that
// has stopped calling Accept never does, so drainServer waits for settleTimeout at most.
func (g *giver) drainServer(ctx context.Context, i int) error {
	s := g.servers[i]
	patient, progress := g.patient(ctx)
	give := func(batch []percore.WaitingConn) error {
		err := g.give(i, batch)
		if len(batch) == descriptorsMax { // or these may be the last, or busy ones that wait now
			progress()
		}
		return err
	}
	for begin := time.Now(); ; {
		settled := s.moving.Settled()
		if !settled && time.Since(begin) > settleTimeout() {
			slog.Warn("handover: the server does not come back to Accept: a connection that it has from there may stay behind",
				"listener", s.name, "waited", settleTimeout())
			settled = true
		}
		if s.source != nil { // after Settled, so that it has them all
			if err := s.source.HandOver(patient, s.listener, give); err != nil && patient.Err() == nil {
				return err
			}
		}
		if settled {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settlePause):
		}
	}
}

// patient returns a context for a source. It ends when progress was not called for g.patience.
func (g *giver) patient(ctx context.Context) (patient context.Context, progress func()) {
	patient, cancel := context.WithCancel(ctx) // which ends with ctx, after the move
	timer := time.AfterFunc(g.patience, cancel)
	return patient, func() { timer.Reset(g.patience) }
}

// fail stops the move: nothing moves any more. It returns the first error.
func (g *giver) fail(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failLocked(err)
}

func (g *giver) failLocked(err error) error {
	if err != nil && g.broken == nil {
		g.broken = err
		g.stop()
	}
	return g.broken
}

// failedLocked returns the error after which nothing moves any more, or nil. The successor may have
// sent one unasked.
func (g *giver) failedLocked() error {
	if g.broken != nil || !hasCome(g.wire.conn) {
		return g.broken
	}
	_, err := g.wire.await(context.Background(), stepTimeout(), over)
	if err == nil {
		err = errOver
	}
	return g.failLocked(err)
}

// give hands over a batch of connections of server i. If it fails, they stay.
func (g *giver) give(i int, batch []percore.WaitingConn) error {
	if len(batch) > descriptorsMax {
		return g.fail(fmt.Errorf("a batch of %d connections, more than %d", len(batch), descriptorsMax))
	}
	out := make([]outgoing, len(batch))
	for j, c := range batch {
		out[j] = outgoing{conn: c.Conn, about: movedConnOf(i, c.Served, seam.ConnInfoOf(c.Conn))}
	}
	return g.transfer(new(message), out)
}

type outgoing struct {
	conn  net.Conn
	about movedConn
}

// transfer hands over connections, or none if it fails, in messages like m.
func (g *giver) transfer(m *message, all []outgoing) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.failedLocked(); err != nil {
		return err
	}
	return g.failLocked(g.transferLocked(m, all))
}

func (g *giver) transferLocked(m *message, all []outgoing) error {
	if err := g.sendConns(m, all, nil); err != nil || m.isEmpty() {
		return err // nil if all have been closed since
	}
	answer, err := g.wire.await(context.Background(), stepTimeout(), took, over)
	switch {
	case err != nil:
		return err
	case answer.Kind == over:
		return errOver
	}
	return g.wire.say(&message{Kind: commit})
}

// sendConns sends the connections in m, whose descriptors are fds, and those of all, which it adds to
// m. It sends within nested calls of Control, one for each connection, so that none is closed before
// the kernel has it. It skips connections that are already closed.
func (g *giver) sendConns(m *message, all []outgoing, fds []int) (err error) {
	if len(all) == 0 {
		if m.isEmpty() {
			return nil
		}
		m.Kind = conns
		return g.wire.say(m, fds...)
	}
	first, rest := all[0], all[1:]
	open := false
	controlErr := control(first.conn, func(fd int) {
		open = true
		m.Conns = append(m.Conns, first.about)
		err = g.sendConns(m, rest, append(fds, fd))
	})
	switch {
	case open:
		return err
	case errors.Is(controlErr, net.ErrClosed):
		return g.sendConns(m, rest, fds)
	}
	return controlErr
}

// control calls f with the descriptor of c, which stays open during the call.
func control(c any, f func(fd int)) error {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a %T has no descriptor", c)
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Control(func(fd uintptr) { f(int(fd)) })
}
