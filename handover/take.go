package handover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/percore/percore/internal/seam"
)

// successor is this process in a handover in which it takes over. It calls take, then open for each
// listener that it wants, then ready or giveUp.
type successor struct {
	wire      *wire // nil: the handover has ended
	listeners []*offered
	held      held
	carriers  map[string]*taking
	ended     func(error) // counts the result
}

type offered struct {
	offeredListener
	files    []*os.File // nil after open
	place    place
	listener seam.Listener // nil: open has not been called
}

// held has the connections that the predecessor has sent and not yet committed. This process doesn't
// read from them. Closing the descriptors does no harm to the connections.
type held struct {
	waits   bool        // for commit
	fds     descriptors // -1: the connection has ended
	conns   []movedConn
	carrier *taking // nil: Accept returns them
	more    bool    // for the carrier
}

// take receives the listeners of the process at the other end of c, which calls give. That process
// serves as usual until ready is called, even if take fails. take owns c.
//
// It fails if this process may not have as many descriptors as the predecessor has connections, if the
// predecessor refuses or hangs, or if ctx ends.
func take(ctx context.Context, c *net.UnixConn) (*successor, error) {
	s := &successor{wire: newWire(c), ended: counters.taken.begin()}
	if step, err := s.receiveOffer(ctx); err != nil {
		s.giveUp(err)
		return nil, fmt.Errorf("handover: %s: %w", step, err)
	}
	return s, nil
}

// receiveOffer receives the listeners. It returns the step at which it failed.
func (s *successor) receiveOffer(ctx context.Context) (step string, err error) {
	if err := s.wire.say(&message{Kind: hello}); err != nil {
		return "greeting the predecessor", err
	}
	m, err := s.wire.await(ctx, stepTimeout(), offer)
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
	return "receiving the listeners", s.receiveSockets(ctx, total)
}

// descriptorsSpare is the least number of descriptors that a server needs besides its connections: for
// logs, epoll, pipes, files.
const descriptorsSpare = 64

// receiveSockets receives the listeners' sockets, total in all.
func (s *successor) receiveSockets(ctx context.Context, total int) error {
	var fds descriptors
	defer func() { fds.close() }()
	for len(fds) < total {
		m, more, err := s.wire.receive(ctx, stepTimeout())
		if err != nil {
			return err
		}
		fds = append(fds, more...)
		if m.Kind != sockets || len(more) == 0 {
			return errUnexpected(m, sockets)
		}
	}
	if more := len(fds) - total; more > 0 {
		return fmt.Errorf("%d sockets more than the offer has", more)
	}
	for _, l := range s.listeners {
		for range l.Sockets {
			fd := fds[0]
			fds = fds[1:]
			l.files = append(l.files, os.NewFile(uintptr(fd), l.Name))
			var err error
			if l.place, err = placeOf(fd); err != nil {
				return fmt.Errorf("listener %v: %w", l, err)
			}
		}
	}
	return nil
}

// offer returns the listener with that name. It returns nil if the predecessor doesn't have it, or if s
// is nil because there is no predecessor.
func (s *successor) offer(name string) *offered {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.listeners, func(l *offered) bool { return l.Name == name }); i >= 0 {
		return s.listeners[i]
	}
	return nil
}

// open makes a listener of the sockets with a function such as FileListeners. After ready, Accept also
// returns the connections that the predecessor accepted, as if they were new.
func (l *offered) open(fileListeners func(...*os.File) (net.Listener, error)) (net.Listener, error) {
	nl, err := fileListeners(l.files...)
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

func (l *offered) closeFiles() {
	for _, f := range l.files {
		f.Close()
	}
	l.files = nil
}

// ready tells the predecessor that this process accepts on the listeners it has opened. The predecessor
// then stops accepting on them. Accept of these listeners, and the carriers of conns, return the
// connections of the predecessor: at once if they wait for a request, else when their request ends.
// ready returns nil when the predecessor has no more connections to give, or has waited long enough for
// them. The predecessor then shuts down, and so closes the ports that this process hasn't opened.
//
// If ctx ends, or one of the processes finds an error, ready fails and the predecessor goes on serving.
// This process then has the connections that have come so far, and should shut down its servers.
//
// If the error is errGone, the predecessor has ended without notice, or hangs. This process has the
// listeners, and goes on serving. A predecessor that wakes up notices this, and shuts down.
func (s *successor) ready(ctx context.Context, conns *Conns) error {
	s.carriers = takers(conns)
	err := s.takeOver(ctx)
	if err != nil {
		err = s.end(err)
	}
	s.endCarriers()
	s.finish(err)
	if err != nil {
		return fmt.Errorf("handover: taking over connections: %w", err)
	}
	return nil
}

// dropped returns the indexes of the listeners that this process doesn't want.
func (s *successor) dropped() (indexes []int, err error) {
	for i, l := range s.listeners {
		if l.listener == nil {
			indexes = append(indexes, i)
		}
	}
	if len(indexes) == len(s.listeners) {
		return nil, errors.New("this process wants none of the predecessor's listeners: there is nothing to take over")
	}
	return indexes, nil
}

// takeOver runs the steps of ready, without its end:
//
//	step      waits for      for as long as        leaves by
//	ready     conns, done    stepTimeout, ctx      conns: took sent; done: over sent, the end
//	holding   commit         stepTimeout, ctx      commit: the connections are this process's
//	(any)                                          refuse, a bad message, ctx: failure, see end
//	                                               the predecessor's end: errGone, this process serves on
//	                                               nothing for stepTimeout: over sent, the same
func (s *successor) takeOver(ctx context.Context) error {
	dropped, err := s.dropped()
	if err == nil {
		err = s.wire.say(&message{Kind: ready, Dropped: dropped, Carriers: slices.Sorted(maps.Keys(s.carriers))})
	}
	for finished := false; err == nil && !finished; {
		var m *message
		var fds descriptors
		if m, fds, err = s.wire.receive(ctx, stepTimeout()); err == nil {
			finished, err = s.handle(m, fds)
		}
	}
	return err
}

// handle handles a message of takeOver, and reports whether it is the last.
func (s *successor) handle(m *message, fds descriptors) (finished bool, err error) {
	if !slices.Contains(s.due(), m.Kind) {
		fds.close()
		return false, errUnexpected(m, s.due()...)
	}
	switch m.Kind {
	case conns:
		if err := s.hold(m, fds); err != nil {
			return false, err
		}
		return false, s.wire.say(&message{Kind: took})
	case commit:
		return false, s.adopt()
	case done:
		if err := s.wire.say(&message{Kind: over}); err != nil {
			return false, err
		}
		s.own()
	}
	return true, nil
}

func (s *successor) due() []kind {
	if s.held.waits {
		return []kind{commit}
	}
	return []kind{conns, done}
}

// hold keeps the connections of a message until they are committed, if all are valid.
func (s *successor) hold(m *message, fds descriptors) (err error) {
	defer func() {
		if err != nil {
			fds.close()
		}
	}()
	moved, carrier := m.Conns, s.carriers[m.Carrier]
	if m.Carrier != "" && carrier == nil {
		return fmt.Errorf("connections for carrier %q, which this process doesn't have", oneLine(m.Carrier))
	}
	for i, c := range moved {
		if c.Listener < 0 || c.Listener >= len(s.listeners) {
			return fmt.Errorf("connection %d of %d is of listener %d of %d", i+1, len(moved), c.Listener, len(s.listeners))
		}
		l := s.listeners[c.Listener]
		if l.listener == nil {
			return fmt.Errorf("connection %d of %d is of listener %v, which this process doesn't want", i+1, len(moved), &l.offeredListener)
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
	s.held = held{true, fds, moved, carrier, m.Hold}
	return nil
}

// adopt gives the held connections, which have been committed, to the listeners or to the carrier.
func (s *successor) adopt() error {
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
		if err == nil || errors.Is(err, syscall.ENOTCONN) { // ENOTCONN: the connection has just ended
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

// own makes Close of the listeners remove the files of their unix sockets: they are this process's now.
func (s *successor) own() {
	for _, l := range s.listeners {
		if l.Unlink && l.listener != nil {
			l.listener.SetUnlinkOnClose(true)
		}
	}
}

// end gives up because of err, and returns ready's error.
//
// The predecessor may have committed the held connections before this process knows, and then won't
// serve them. So the messages that it has sent until now still count. From now on no message arrives,
// and the predecessor fails to send.
//
// If the predecessor hangs, end sends over, and this process goes on. If over can't be sent, the
// predecessor has stopped receiving: it is dead, or has given up this process at the same time. In that
// case its refusal is the reason. If no refusal comes, the predecessor was stopped before it could send
// one, and will go on serving.
func (s *successor) end(err error) error {
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
		switch {
		case receiveErr == nil && m.Kind == commit:
			_, _ = s.handle(m, fds)
			continue
		case receiveErr == nil:
			fds.close() // no commit follows it, except from a process that doesn't wait for answers
			continue
		case overErr != nil && errors.Is(receiveErr, errSilent):
			err = errGivenUp
		case overErr != nil:
			err = receiveErr
		}
		if errors.Is(err, errGone) {
			s.own()
		}
		return err
	}
}

// errGivenUp means that the predecessor has stopped receiving, and was then stopped itself.
var errGivenUp = errors.New("the other process has given this one up, and hangs")

// giveUp ends a handover before ready; later it has no effect. The predecessor gets the reason, and
// goes on serving. The caller must close the listeners that it has opened.
func (s *successor) giveUp(reason error) {
	if s.wire != nil {
		s.wire.refuse(reason)
		s.finish(reason)
	}
}

func (s *successor) finish(err error) {
	s.wire.close()
	s.wire = nil
	s.held.fds.close()
	for _, l := range s.listeners {
		l.closeFiles()
	}
	s.ended(err)
}
