package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// Successor is the part of this process in a handover in which it takes over. Its methods are safe
// for concurrent use.
type Successor struct {
	mu sync.Mutex // also for as long as Ready waits

	// guarded by mu
	wire      *wire // nil: the handover has ended
	listeners []*offered
	held      held
	carriers  map[string]*taking
	ended     func(error) // counts the result, at the first call
}

// offered is a listener that the predecessor has offered.
type offered struct {
	offeredListener
	files    []*os.File // until Listener is called
	place    place
	listener seam.Listener // nil: Listener has not been called
	dropped  bool          // by Drop
}

// held are connections that the predecessor has sent and not yet committed. This process doesn't read
// from them. Closing the descriptors does them no harm.
type held struct {
	isPart  bool        // more conns come
	waits   bool        // for commit
	fds     descriptors // -1: has ended
	conns   []movedConn
	carrier *taking // nil: they come out of Accept
	more    bool    // for the carrier
}

// Take receives the listeners of the process at the other end of c, which calls Give. The caller
// makes its own listeners from them with Listener, starts its servers, and calls Ready. Until then
// the predecessor serves as usual, also if Take fails.
//
// Take fails if the process may not have as many descriptors as the predecessor has connections, if
// the predecessor refuses, for example because another handover is under way, if ctx ends, or if
// the predecessor doesn't answer for 10 seconds.
//
// Take owns c. The Successor closes it at the end of Ready, or by Close.
func Take(ctx context.Context, c *net.UnixConn) (*Successor, error) {
	if err := checkArguments("Take", aContext(ctx), aSocket(c)); err != nil {
		return nil, errors.Join(err, closeIfAny(c))
	}
	if !isSupported() {
		c.Close()
		return nil, errUnsupported
	}
	w, err := newWire(c)
	if err != nil {
		return nil, takeError("the socket", err)
	}
	ended := countTake()
	s := &Successor{wire: w, ended: func(err error) { ended(err); ended = func(error) {} }}
	if step, err := s.receiveOffer(ctx); err != nil {
		s.abandon(err)
		s.ended(err)
		return nil, takeError(step, err)
	}
	w.beat()
	return s, nil
}

// takeError is an error of Take, Ready or Start.
func takeError(step string, err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("handover: %s: %w", step, err)
}

// receiveOffer receives the listeners. It returns the step at which it failed.
func (s *Successor) receiveOffer(ctx context.Context) (step string, err error) {
	s.wire.session = newNonce()
	if err := s.tell(hello); err != nil {
		return "greeting the predecessor", err
	}
	m, fds, err := s.wire.receive(ctx, stepTimeout())
	fds.close()
	if err == nil && m.Kind != offer {
		err = errUnexpected(m, offer)
	}
	if err == nil {
		err = m.checkOffer()
	}
	if err != nil {
		return "waiting for the predecessor's offer", err
	}
	total := 0
	for _, l := range m.Listeners {
		s.listeners = append(s.listeners, &offered{offeredListener: l})
		total += l.Sockets
	}
	if err := checkDescriptors(uint64(2*total) + uint64(m.Open) + descriptorsSpare); err != nil {
		return "taking over", err
	}
	return "receiving the listeners", s.receiveSockets(ctx)
}

// descriptorsSpare is how many descriptors a server needs, at least, besides its connections: for
// logs, epoll, pipes, files.
const descriptorsSpare = 64

// receiveSockets receives the listeners' sockets.
func (s *Successor) receiveSockets(ctx context.Context) error {
	var fds descriptors
	defer func() { fds.close() }()
	next := func() (int, error) {
		if len(fds) == 0 {
			m, more, err := s.wire.receive(ctx, stepTimeout())
			if err != nil {
				return -1, err
			}
			if fds = more; m.Kind != sockets || len(fds) == 0 {
				return -1, errUnexpected(m, sockets)
			}
		}
		fd := fds[0]
		fds = fds[1:]
		return fd, nil
	}
	for _, l := range s.listeners {
		for len(l.files) < l.Sockets {
			fd, err := next()
			if err != nil {
				return err
			}
			l.files = append(l.files, os.NewFile(uintptr(fd), l.Name))
			if l.place, err = placeOf(fd); err != nil {
				return fmt.Errorf("listener %v: %w", l, err)
			}
		}
	}
	if len(fds) > 0 {
		return fmt.Errorf("%d sockets more than the offer has", len(fds))
	}
	return nil
}

// tell sends a message without content.
func (s *Successor) tell(k kind) error { return s.say(&message{Kind: k}) }

// say sends a message. If the predecessor has closed its end the error is the reason that it gave.
func (s *Successor) say(m *message) error { return s.wire.lastWords(s.wire.send(m)) }

// Names returns the names of the listeners, in the order in which Give got them.
func (s *Successor) Names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		names = append(names, l.Name)
	}
	return names
}

// State returns the named listener's [Server.State] of the predecessor. It is empty if that has none, or
// is of a version that knows none.
func (s *Successor) State(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.Name == name {
			return slices.Clone(l.offeredListener.State)
		}
	}
	return nil
}

// Listener makes a *percore.Listener of the named listener's sockets, as FileListeners does, with
// the options of lc, which may be nil. It can be called once for each name. The caller owns the
// listener; its Addr says where it listens.
//
// Once Ready has been called, Accept returns the connections that the predecessor accepted, as if
// they were new.
func (s *Successor) Listener(name string, lc *percore.ListenConfig) (net.Listener, error) {
	if lc == nil {
		lc = new(percore.ListenConfig)
	}
	return s.listenerBy(name, lc.FileListeners)
}

// listenerBy is Listener with a function that makes the listener of its sockets.
func (s *Successor) listenerBy(name string, open func(...*os.File) (net.Listener, error)) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.Name != name {
			continue
		}
		if l.files == nil {
			return nil, fmt.Errorf("handover: listener %q has been taken already, or dropped", name)
		}
		nl, err := open(l.files...)
		if err != nil {
			return nil, err
		}
		if l.listener, err = movingListener(nl); err != nil {
			nl.Close()
			return nil, err
		}
		l.closeFiles()
		return nl, nil
	}
	return nil, fmt.Errorf("handover: the predecessor has no listener %q", name)
}

// Drop says that this process doesn't want the named listener, for a version without that port. The
// predecessor accepts there, and keeps the connections, until it shuts down; then the port is closed.
// Ready fails unless each listener was made with Listener or dropped.
func (s *Successor) Drop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		switch {
		case l.Name != name:
		case l.listener != nil || s.wire == nil:
			return fmt.Errorf("handover: listener %q has been taken already", name)
		default:
			l.dropped = true
			l.closeFiles()
			return nil
		}
	}
	return fmt.Errorf("handover: the predecessor has no listener %q", name)
}

// dropped returns the indexes of the listeners that were dropped. It fails if a listener was
// neither made nor dropped.
func (s *Successor) dropped() (indexes []int, err error) {
	for i, l := range s.listeners {
		switch {
		case l.dropped:
			indexes = append(indexes, i)
		case l.listener == nil:
			return nil, fmt.Errorf("listener %v was neither taken nor dropped: its connections would find no server", &l.offeredListener)
		}
	}
	if len(indexes) == len(s.listeners) {
		return nil, errors.New("all listeners were dropped: there is nothing to take over")
	}
	return indexes, nil
}

func (l *offered) closeFiles() {
	for _, f := range l.files {
		f.Close()
	}
	l.files = nil
}

// Ready says that this process accepts. From then on the predecessor accepts no more, and Accept of
// this process's listeners returns its connections: those that wait for a request at once, and the
// others when their requests end. Ready returns nil when the predecessor has no more connections to
// give, or has waited long enough for them; it then shuts down.
//
// Ready fails, and the predecessor goes on serving, if a listener was neither made with Listener nor
// dropped, if ctx ends, or if one of the processes finds something wrong. This process then has the
// connections that have come so far, and should shut its servers down.
//
// If the error is [ErrGone] the predecessor has ended without notice, for example because it
// crashed, or has given no sign of life for 10 seconds. This process has the listeners, and goes on
// serving. A predecessor that wakes up notices this, and shuts down.
func (s *Successor) Ready(ctx context.Context) error {
	if err := checkArguments("Successor.Ready", aContext(ctx)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == nil {
		return errors.New("handover: Ready was called already, or Close")
	}
	dropped, err := s.dropped()
	if err != nil {
		s.abandon(err)
		s.ended(err)
		return takeError("getting ready", err)
	}
	err = s.takeOver(ctx, dropped)
	s.endCarriers()
	s.ended(err)
	if err != nil {
		return takeError("taking over connections", err)
	}
	return nil
}

// takeOver is Ready once all listeners are made, or dropped:
//
//	step      waits for      for as long as        leaves by
//	ready     conns, done    silenceLimit, ctx     conns: took sent; done: over sent, the end
//	in parts  conns          stepTimeout, ctx      conns, the last part: took sent
//	holding   commit         stepTimeout, ctx      commit: the connections are this process's
//	(any)                                          refuse, a bad message, ctx: failure, see end
//	                                               the predecessor's end: ErrGone, this process serves on
//	                                               no sign of life: over sent, the same
func (s *Successor) takeOver(ctx context.Context, dropped []int) error {
	s.wire.hears = true
	if err := s.say(&message{Kind: ready, Dropped: dropped, Carriers: s.carrierNames()}); err != nil {
		return s.end(err)
	}
	for {
		timeout := stepTimeout()
		if !s.held.waits && !s.held.isPart {
			timeout = 0 // a request may take long
		}
		m, fds, err := s.wire.receive(ctx, timeout)
		if err != nil {
			return s.end(err)
		}
		finished, err := s.handle(m, fds)
		if finished {
			s.abandon(nil)
			return nil
		}
		if err != nil {
			return s.end(err)
		}
	}
}

// handle acts on a message, and reports whether it is the last.
func (s *Successor) handle(m *message, fds descriptors) (finished bool, err error) {
	if !slices.Contains(s.due(), m.Kind) {
		fds.close()
		return false, errUnexpected(m, s.due()...)
	}
	switch m.Kind {
	case conns:
		if err := s.hold(m, fds); err != nil || m.More {
			return false, err
		}
		return false, s.tell(took)
	case commit:
		return false, s.adopt()
	case done:
		if err := s.tell(over); err != nil {
			return false, err
		}
		s.own()
	}
	return true, nil
}

// due returns the messages that may come.
func (s *Successor) due() []kind {
	switch {
	case s.held.waits:
		return []kind{commit}
	case s.held.isPart:
		return []kind{conns}
	}
	return []kind{conns, done}
}

// hold keeps the connections of a message until they are committed, if all are valid.
func (s *Successor) hold(m *message, fds descriptors) (err error) {
	defer func() {
		if err != nil {
			fds.close()
		}
	}()
	moved, carrier := m.Conns, s.carriers[m.Carrier]
	if m.Carrier != "" && carrier == nil {
		return fmt.Errorf("connections for carrier %q, which this process doesn't have", oneLine(m.Carrier))
	}
	if s.held.isPart && carrier != s.held.carrier {
		return fmt.Errorf("parts for different carriers, one of them %q", oneLine(m.Carrier))
	}
	if n := len(s.held.fds) + len(fds); n > descriptorsMax {
		return fmt.Errorf("%d connections at once, more than %d", n, descriptorsMax)
	}
	for i, c := range moved {
		if c.Listener < 0 || c.Listener >= len(s.listeners) {
			return fmt.Errorf("connection %d of %d is of listener %d of %d", i+1, len(moved), c.Listener, len(s.listeners))
		}
		l := s.listeners[c.Listener]
		if l.dropped {
			return fmt.Errorf("connection %d of %d is of listener %v, which this process has dropped", i+1, len(moved), &l.offeredListener)
		}
		if !l.listener.IsOpen() {
			return fmt.Errorf("connection %d of %d is of listener %v, which this process has closed", i+1, len(moved), &l.offeredListener)
		}
		ended, err := l.place.check(fds[i])
		if err != nil {
			return fmt.Errorf("connection %d of %d, of listener %v: %w", i+1, len(moved), &l.offeredListener, err)
		}
		if ended {
			fds[i : i+1].close()
		}
	}
	s.held = held{m.More, !m.More, append(s.held.fds, fds...), append(s.held.conns, moved...), carrier, m.Hold}
	return nil
}

// adopt gives the held connections, which have been committed, to the listeners.
func (s *Successor) adopt() error {
	h := s.held
	s.held = held{}
	lost, firstErr := 0, error(nil)
	var carried []CarriedConn
	for i, fd := range h.fds {
		c := &h.conns[i]
		if fd < 0 {
			continue // ended
		}
		l := s.listeners[c.Listener].listener
		var err error
		if h.carrier == nil {
			err = l.Adopt(fd, c.info())
		} else if conn, asideErr := l.AdoptAside(fd, c.info()); conn != nil {
			carried = append(carried, CarriedConn{conn, c.State})
		} else {
			err = asideErr
		}
		if err == nil || errors.Is(err, syscall.ENOTCONN) { // or it has ended just now
			continue
		}
		if lost++; firstErr == nil {
			firstErr = err
		}
	}
	if h.carrier != nil {
		h.carrier.takeOver(carried, h.more)
	}
	if lost > 0 {
		return fmt.Errorf("%d of %d connections are lost: %w", lost, len(h.fds), firstErr)
	}
	return nil
}

// own makes Close of the listeners remove the files of their unix sockets, which no longer belong
// to the predecessor.
func (s *Successor) own() {
	for _, l := range s.listeners {
		if l.Unlink && l.listener != nil {
			l.listener.SetUnlinkOnClose(true)
		}
	}
}

// end gives up after ready, because of err, and returns Ready's error.
//
// The predecessor may have committed the held connections without this process knowing yet, and
// then it won't serve them. So the messages that it has sent until now still count. From now on
// none arrives, and the predecessor's sends fail.
//
// If the predecessor gives no sign of life, it is sent over: this process goes on. If that can't be
// sent the predecessor has stopped receiving: it is dead, or has given this process up at the same
// time. Then its refusal is the reason. If none comes, it was stopped before it could send one, and
// will go on serving.
func (s *Successor) end(err error) error {
	var overErr error
	if errors.Is(err, errSilent) {
		overErr = s.wire.send(&message{Kind: over})
	} else {
		s.wire.refuse(err)
	}
	if overErr == nil {
		s.wire.stopReceiving()
	}
	for {
		m, fds, receiveErr := s.wire.receive(context.Background(), stepTimeout())
		if receiveErr != nil {
			if overErr != nil {
				err = receiveErr
			}
			if overErr != nil && errors.Is(receiveErr, errSilent) {
				err = errGivenUp
			}
			break
		}
		if m.Kind == commit {
			_, _ = s.handle(m, fds)
			continue
		}
		fds.close() // no commit follows it, except from a process that doesn't wait for answers
	}
	if errors.Is(err, ErrGone) {
		s.own()
	}
	s.abandon(nil)
	return err
}

// errGivenUp is about a predecessor that has stopped receiving, and was then stopped itself.
var errGivenUp = errors.New("the other process has given this one up, and gives no sign of life")

// Close gives the handover up, unless Ready has returned; the predecessor goes on serving. The
// caller must close the listeners that it has made. While Ready waits, Close waits, too; the end of
// the ctx passed to Ready ends both.
func (s *Successor) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	closed := errors.New("the successor has called Close")
	s.abandon(closed)
	if s.ended != nil { // as it is in a Successor that Take has not made
		s.ended(closed)
	}
	return nil
}

// abandon ends the exchange. If there is a reason, it is sent to the predecessor.
func (s *Successor) abandon(reason error) {
	if s.wire == nil {
		return
	}
	if reason != nil {
		s.wire.refuse(reason)
	}
	s.wire.close()
	s.wire = nil
	s.held.fds.close()
	s.held = held{}
	for _, l := range s.listeners {
		l.closeFiles()
	}
}
