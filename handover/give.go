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

// Give hands servers over to the process at the other end of c, which calls Take. It returns nil
// when that process has the listeners and all connections that could move before ctx ended. The
// caller then shuts its servers down, which waits for the connections that stayed. The listeners
// accept no more, and closing them no longer removes the files of unix sockets.
//
// Before the successor is ready this process serves as usual, and if ctx ends Give fails. After
// that, the end of ctx is when Give stops waiting for busy connections, so pass a ctx that ends.
// The successor must call Take within 10 seconds of the call of Give, and give each answer during
// the move within 10 seconds; only ctx limits how long it may take from Take to Ready, and how long
// requests may take. Both processes send signs of life: a successor that hangs, at any step, is
// given up after 10 seconds. At the end it says that it has taken over.
//
// A listener that the successor drops stays with this process, accepts, and keeps its connections
// until the caller shuts down.
//
// The program must go on calling Accept during Give, and its server must know a connection before
// it calls Accept again, as with http.Server. That call is how Give learns that the last connection
// has reached the [Source]. Several goroutines may call Accept: Give expects as many as have ever
// waited in Accept at the same time. If one of them has stopped calling Accept, or holds a
// connection for longer, Give waits for 10 seconds, logs a line to slog's default logger, and goes
// on: it can't tell the two cases apart. While it waits, the successor gets the new connections.
//
// If Give fails this process goes on serving, with all its connections except those that the
// successor already has; the error says at which step. Only one handover of a listener is possible
// at a time: others fail at once. If a handover has already succeeded, their error wraps
// [ErrOvertaken], and this process must stop serving. If this process hangs for 10 seconds, the
// successor goes on without it: Give then returns nil, and the connections that had not moved are
// left here.
//
// Give owns c, and has closed it when it returns.
func Give(ctx context.Context, c *net.UnixConn, servers ...Server) error {
	return give(ctx, c, 0, servers)
}

// give is Give with a patience for busy connections: see giver.
func give(ctx context.Context, c *net.UnixConn, patience time.Duration, servers []Server) (err error) {
	if err := checkArguments("Give", aContext(ctx), aSocket(c)); err != nil {
		return errors.Join(err, closeIfAny(c))
	}
	ended := countGive()
	defer func() { ended(err) }()
	w, err := newWire(c)
	if err != nil {
		return giveError("the socket", err)
	}
	defer w.close()
	g := &giver{wire: w, servers: servers, patience: patience}
	if step, err := g.run(ctx); err != nil {
		g.wire.refuse(err)
		return giveError(step, err)
	}
	return nil
}

// giveError is an error of Give.
func giveError(step string, err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if errors.Is(err, ErrOvertaken) {
		return fmt.Errorf("handover: %s: %w", step, err)
	}
	return fmt.Errorf("handover: %s: %w; this process serves on", step, err)
}

// giver is the predecessor's part of a handover:
//
//	step        the listeners accept   waits for            for as long as         leaves by
//	greeting    yes                    hello                stepTimeout, ctx       offer and sockets sent
//	offered     yes                    ready                silenceLimit, ctx      ready received: Pause
//	moving      no                     the sources; took    silenceLimit, ctx;     done sent
//	                                                        stepTimeout
//	ending      no                     over                 stepTimeout            over received
//	(success)   no: SetMoved
//	(failure)   yes: Resume, End
//
// At any step the successor's refusal or end, or an invalid message, leads to failure. From ready
// on, over leads to success: the successor sends it unasked if this process gives no sign of life
// for silenceLimit. A process that fails first stops receiving, and looks for over among the
// messages that have come: whether over was sent in time decides which of the two goes on serving,
// and both know.
//
// And for each batch of connections, which nothing in this process reads at that time:
//
//	step        they belong to   if this process or the other ends, or fails
//	conns sent  this process     this process has them; the successor closes its copies, unread
//	took came   this process     the same
//	commit sent the successor    the successor has them, also if it hasn't received commit yet
//
// So at any time at most one process reads from a connection. The successor, which can't know whether
// commit is under way, doesn't give up before it has found out: see Successor.end.
type giver struct {
	wire     *wire
	servers  []Server
	patience time.Duration // for a source that gives nothing more, but has busy connections; 0: until ctx ends

	listeners []seam.Listener // of servers, as far as Begin has succeeded
	dropped   map[int]bool    // indexes of listeners that the successor doesn't take
	carriers  []string        // that the successor has

	// The batches of all sources go one after the other.
	mu sync.Mutex

	// guarded by mu
	broken error // not nil: nothing moves any more, for this reason

	// immutable while the sources run
	stop    context.CancelFunc // of the sources
	answers chan *message      // from the reader, one at a time
	lost    chan struct{}      // closed by the reader: there will be no answer
	lostWhy error              // set before lost is closed
}

// run returns the step at which it failed.
func (g *giver) run(ctx context.Context) (step string, err error) {
	defer func() {
		for i, l := range g.listeners {
			if err != nil || g.dropped[i] {
				l.End()
			} else {
				l.SetMoved()
			}
		}
	}()
	beginErr := g.begin()
	if errors.Is(beginErr, errors.ErrUnsupported) {
		return "beginning", beginErr
	}
	if _, err := g.await(ctx, hello, stepTimeout()); err != nil {
		if beginErr != nil && g.isOvertaken() {
			err = ErrOvertaken // and ctx may have ended because of that
		}
		return "waiting for the successor", err
	}
	if beginErr != nil {
		return "beginning", beginErr
	}
	if err := g.offer(); err != nil {
		return "sending the listeners", err
	}
	g.wire.hears = true
	m, err := g.await(ctx, ready, 0)
	if err == nil {
		g.wire.beat()
		err = g.heed(m)
	}
	if err != nil && !g.isOver() {
		return "waiting for the successor to be ready", err
	}
	if err != nil {
		g.stopAccepting()
		return "", nil
	}
	return g.move(ctx)
}

// heed notes what ready says.
func (g *giver) heed(m *message) error {
	g.carriers = m.Carriers
	return g.drop(m.Dropped)
}

// begin begins to move the listeners.
func (g *giver) begin() error {
	if len(g.servers) == 0 || len(g.servers) > listenersMax {
		return fmt.Errorf("%d servers, want 1 to %d", len(g.servers), listenersMax)
	}
	names := make(map[string]bool)
	for _, s := range g.servers {
		if len(s.State) > stateBytesMax {
			return fmt.Errorf("the state of listener %q has %d bytes, more than %d", s.Name, len(s.State), stateBytesMax)
		}
		if names[s.Name] {
			return fmt.Errorf("two servers are named %q", s.Name)
		}
		names[s.Name] = true
		if isNil(s.Listener) {
			return fmt.Errorf("the Listener of server %q is nil", s.Name)
		}
		l, err := movingListener(s.Listener)
		if err != nil {
			return err
		}
		if !l.Begin() {
			if l.IsMoved() {
				return fmt.Errorf("listener %q: %w", s.Name, ErrOvertaken)
			}
			return fmt.Errorf("a handover of listener %q is under way", s.Name)
		}
		g.listeners = append(g.listeners, l)
	}
	return nil
}

// isOvertaken reports whether another handover of one of the listeners has succeeded.
func (g *giver) isOvertaken() bool {
	return slices.ContainsFunc(g.servers, func(s Server) bool {
		l, err := movingListener(s.Listener)
		return err == nil && l.IsMoved()
	})
}

// await waits for one message without descriptors.
func (g *giver) await(ctx context.Context, want kind, timeout time.Duration) (*message, error) {
	m, fds, err := g.wire.receive(ctx, timeout)
	fds.close()
	if err == nil && m.Kind != want {
		err = errUnexpected(m, want)
	}
	return m, err
}

// drop excludes the listeners with these indexes.
func (g *giver) drop(indexes []int) error {
	g.dropped = make(map[int]bool)
	for _, i := range indexes {
		if i < 0 || i >= len(g.listeners) {
			g.dropped = nil
			return fmt.Errorf("the successor drops listener %d of %d", i, len(g.listeners))
		}
		g.dropped[i] = true
	}
	return nil
}

// moves returns the listeners that the successor takes.
func (g *giver) moves() (all []seam.Listener) {
	for i, l := range g.listeners {
		if !g.dropped[i] {
			all = append(all, l)
		}
	}
	return all
}

// offer sends the listeners.
func (g *giver) offer() error {
	m := &message{Kind: offer}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for i, l := range g.listeners {
		all, err := l.Files()
		if err != nil {
			return err
		}
		files = append(files, all...)
		s := g.servers[i]
		addr := s.Listener.Addr()
		m.Listeners = append(m.Listeners, offeredListener{s.Name, addr.Network(), addr.String(), len(all), l.UnlinkOnClose(), s.State})
		if s.Source != nil || s.Conns != nil {
			m.Open += openConns(s.Listener)
		}
	}
	if err := g.send(m); err != nil {
		return err
	}
	for part := range slices.Chunk(files, descriptorsMax) {
		var fds []int
		for _, f := range part {
			fds = append(fds, int(f.Fd()))
		}
		if err := g.send(&message{Kind: sockets}, fds...); err != nil {
			return err
		}
	}
	return nil
}

// openConns returns how many connections a listener has.
func openConns(l net.Listener) int {
	if l, ok := l.(*percore.Listener); ok {
		return l.Stats().Conns
	}
	return 0
}

// isOver reports whether the successor has gone on by itself. It makes this process stop receiving,
// and looks at all messages that have come.
func (g *giver) isOver() bool {
	g.wire.stopReceiving()
	for {
		m, fds, err := g.wire.receive(context.Background(), stepTimeout())
		if err == nil && m.Kind == ready && g.lost == nil { // and not a second one, which is invalid
			_ = g.heed(m)
		}
		fds.close()
		switch {
		case err != nil:
			return false
		case m.Kind == over:
			return true
		}
	}
}

// stopAccepting pauses the listeners, and leaves the files of unix sockets to the successor. It
// returns the listeners whose Close would have removed theirs.
func (g *giver) stopAccepting() (unlinked []seam.Listener) {
	for _, l := range g.moves() {
		l.Pause()
	}
	return g.keepFiles()
}

// move hands the connections over, after the successor has the listeners and is ready.
func (g *giver) move(ctx context.Context) (step string, err error) {
	unlinked := g.stopAccepting()
	defer func() {
		if err != nil {
			for _, l := range unlinked {
				l.SetUnlinkOnClose(true)
			}
			for _, l := range g.moves() {
				l.Resume()
			}
		}
	}()
	sourcesCtx, stop := context.WithCancel(ctx)
	defer stop()
	g.stop, g.answers, g.lost = stop, make(chan *message, 1), make(chan struct{})
	go g.read()
	step, err = "handing over connections", g.drain(sourcesCtx)
	if err == nil {
		step, err = "ending", g.finish()
	}
	g.wire.stopReceiving() // ends the reader
	<-g.lost
	switch {
	case g.lostWhy != errOver && !g.isOver(): // after the message that ended the reader
		return step, err
	case err != nil:
		slog.Warn("handover: the successor has gone on without this process, which gave no sign of life:"+
			" connections that had not moved stay behind", "limit", silenceLimit())
	}
	return "", nil
}

// errOver ends the successor's messages when the handover has succeeded.
var errOver = errors.New("the successor has taken over")

// finish tells the successor that it has everything, and waits until it confirms that.
func (g *giver) finish() error {
	if err := g.send(&message{Kind: done}); err != nil {
		return err
	}
	switch answered, err := g.awaitAnswer(); {
	case err == errOver:
		return nil
	case err != nil:
		return err
	case answered:
		return fmt.Errorf("a message %q came where %q is due", took, over)
	}
	return fmt.Errorf("the successor has not said for %v that it has everything", stepTimeout())
}

// awaitAnswer waits for the successor's next answer, for stepTimeout in ticks: see patience.
func (g *giver) awaitAnswer() (answered bool, err error) {
	for left := stepTimeout(); left > 0; {
		tick := min(beatPause(), left)
		select {
		case <-g.answers:
			return true, nil
		case <-g.lost:
			return false, g.lostWhy
		case <-time.After(tick):
			left -= tick
		}
	}
	return false, nil
}

// keepFiles makes Close leave the files of unix sockets, which the successor owns from done on. It
// returns the listeners whose Close would have removed theirs.
func (g *giver) keepFiles() (unlinked []seam.Listener) {
	for _, l := range g.moves() {
		if l.UnlinkOnClose() {
			l.SetUnlinkOnClose(false)
			unlinked = append(unlinked, l)
		}
	}
	return unlinked
}

// read receives the successor's answers until the last.
func (g *giver) read() {
	defer g.stop()
	defer close(g.lost)
	for {
		m, fds, err := g.wire.receive(context.Background(), 0)
		fds.close()
		switch {
		case err == nil && m.Kind == over:
			err = errOver
		case err == nil && m.Kind != took:
			err = errUnexpected(m, took, over)
		}
		if err == nil {
			select {
			case g.answers <- m:
				continue
			default:
				err = errors.New("more answers came than there were questions")
			}
		}
		g.lostWhy = err
		return
	}
}

// drain makes all sources give their connections. The end of ctx ends it, and is no failure.
func (g *giver) drain(ctx context.Context) error {
	var sources sync.WaitGroup
	for i, s := range g.servers {
		if g.dropped[i] {
			continue
		}
		sources.Go(func() {
			if err := g.drainServer(ctx, i); err != nil && ctx.Err() == nil {
				g.fail(fmt.Errorf("server %q: %w", s.Name, err))
			}
		})
	}
	carry := func() {
		for _, c := range g.carried() {
			sources.Go(func() {
				if err := g.drainCarrier(ctx, c); err != nil && ctx.Err() == nil {
					g.fail(fmt.Errorf("carrier %q: %w", c.name, err))
				}
			})
		}
		sources.Wait()
	}
	carry()
	carry() // connections that were hijacked in the meantime, by the last requests
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failedLocked()
}

// settlePause is the time between two checks of a listener that has not settled.
const settlePause = 5 * time.Millisecond

// drainServer makes server i give its connections until none is left and none is on its way to the
// source, as those are that Accept took from the backlog before the listener was paused. It waits
// for these no longer than for an answer, since a program that has stopped calling Accept never
// gets them.
func (g *giver) drainServer(ctx context.Context, i int) error {
	patient, progress := g.patient(ctx)
	give := func(batch []percore.WaitingConn) error {
		err := g.give(i, batch)
		if len(batch) == descriptorsMax { // or these may be the last, or busy ones that wait now
			progress()
		}
		return err
	}
	for begin := time.Now(); ; {
		settled := g.listeners[i].Settled()
		if !settled && time.Since(begin) > stepTimeout() {
			slog.Warn("handover: the server does not come back to Accept: a connection that it has from there may stay behind",
				"listener", g.servers[i].Name, "waited", stepTimeout())
			settled = true
		}
		if source := g.servers[i].Source; source != nil { // after Settled, so that it has them all
			if err := source.HandOver(patient, g.servers[i].Listener, give); err != nil && patient.Err() == nil {
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
	if g.patience == 0 {
		return ctx, func() {}
	}
	patient, cancel := context.WithCancel(ctx) // which ends with ctx, after the move
	timer := time.AfterFunc(g.patience, cancel)
	return patient, func() { timer.Reset(g.patience) }
}

// fail stops the move: nothing moves any more.
func (g *giver) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.failLocked(err)
}

// failLocked returns the first error.
func (g *giver) failLocked(err error) error {
	if err != nil && g.broken == nil {
		g.broken = err
		g.stop()
	}
	return g.broken
}

// failedLocked returns the error after which nothing moves any more, or nil.
func (g *giver) failedLocked() error {
	select {
	case <-g.lost:
		return g.failLocked(g.lostWhy)
	default:
		return g.broken
	}
}

// give hands over a batch of connections of server i. If it fails, they stay.
func (g *giver) give(i int, batch []percore.WaitingConn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.failedLocked(); err != nil {
		return err
	}
	return g.failLocked(g.giveLocked(i, batch))
}

func (g *giver) giveLocked(i int, batch []percore.WaitingConn) error {
	if len(batch) > descriptorsMax {
		return fmt.Errorf("a batch of %d connections, more than %d", len(batch), descriptorsMax)
	}
	out := make([]outgoing, len(batch))
	for j, c := range batch {
		out[j] = outgoing{conn: c.Conn, about: movedConnOf(i, c.Served, seam.ConnInfoOf(c.Conn))}
	}
	return g.transferLocked(&message{}, out)
}

// outgoing is a connection that is about to be sent.
type outgoing struct {
	conn  net.Conn
	about movedConn
}

// transferLocked hands over connections, or none if it fails, in messages like m.
func (g *giver) transferLocked(m *message, all []outgoing) error {
	if len(g.answers) > 0 {
		return errors.New("an answer came before its question")
	}
	if err := g.sendConns(m, all, nil); err != nil || m.isEmpty() {
		return err // nil if all have been closed since
	}
	if err := g.awaitTook(); err != nil {
		return err
	}
	return g.send(&message{Kind: commit})
}

// sendConns sends the connections in m, whose descriptors are fds, and those of all, which it adds to
// m. It sends within nested calls of Control, one for each connection, so that none is closed before
// the kernel has it. It skips connections that are already closed.
func (g *giver) sendConns(m *message, all []outgoing, fds []int) (err error) {
	if len(all) == 0 {
		return g.sendParts(m, fds)
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

// sendParts sends m's connections in as few messages as they fit in: nearly always one.
func (g *giver) sendParts(m *message, fds []int) error {
	for all, sent := m.Conns, false; len(all) > 0 || !sent && !m.isEmpty(); sent = true {
		n := m.fitting(all)
		part := &message{Kind: conns, Conns: all[:n], More: n < len(all), Carrier: m.Carrier, Hold: m.Hold}
		if err := g.send(part, fds[:n]...); err != nil {
			return err
		}
		all, fds = all[n:], fds[n:]
	}
	return nil
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

// send sends a message. If the successor has closed its end the error is the reason that it gave.
func (g *giver) send(m *message, fds ...int) error {
	err := g.wire.send(m, fds...)
	if !errors.Is(err, ErrGone) {
		return err
	}
	if g.lost == nil {
		return g.wire.lastWords(err)
	}
	select {
	case <-g.lost:
		return g.lostWhy
	case <-time.After(stepTimeout()):
		return err
	}
}

// awaitTook waits for the successor to hold the connections that were sent.
func (g *giver) awaitTook() error {
	answered, err := g.awaitAnswer()
	if err == nil && !answered {
		err = fmt.Errorf("the successor does not take connections for %v", stepTimeout())
	}
	return err
}
