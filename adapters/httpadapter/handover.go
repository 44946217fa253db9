package httpadapter

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore"
)

// HandOver moves the connections of a listener to another process: it calls give with those that wait
// for a request, or for their first byte, up to 253 at a time, the busy ones among them as soon as they
// have their answer. It returns nil when no connection is left that can move, or else ctx's error when
// that is done. Package handover calls it. Most programs use that package.
//
// l is the listener that Serve was called with, itself, not one inside it or around it. The connections
// of the Server's other listeners stay. Where Serve was not called with l nothing moves.
//
// # Give
//
// give passes the descriptors on. Meanwhile nothing reads from the connections, and they stay open:
// a Close takes effect afterwards. give must not keep the slice.
//
//   - If it returns nil the connections belong to the other process. The Server closes its
//     descriptors, of which the clients notice nothing, and ConnState gets StateClosed.
//   - If it fails, or panics, the connections go on here with the deadlines that they had, and
//     bytes that came in the meantime are served. HandOver ends, with the error.
//
// Calls of give follow one another. A Server that waits in give serves all connections except those that
// give has, and up to 253 that have come to wait since. give should heed ctx, because HandOver waits
// for it, and so does Shutdown.
//
// # Connections that move
//
// Connections over plain HTTP/1 move, each as soon as it waits. Answers are as usual. These stay, and
// HandOver doesn't wait for them: connections over TLS or with HTTP/2, hijacked ones, and those that
// are no *percore.Conn. HandOver waits for a connection with a request under way, or a part of its
// header.
//
// Clients of HTTP/2 are told at once to open their next streams elsewhere
// (GOAWAY), in clear and over TLS. Their streams go on, and Shutdown waits for them; a connection
// without streams ends as soon as its client has seen that. Handshakes of TLS that are under way have
// up to a second to end, since their clients are about to send requests. The functions of
// [Server.RegisterOnDrain] are called at once, too.
//
// Off Linux, with the build tag percore_net, and where net/http serves ([Stats] has Foreign) nothing
// moves, and HandOver returns nil at once.
//
// Connections that are accepted during HandOver move, too, so the listener should not accept any.
// HandOver may be called at any time, also for several listeners at once, but fails while another
// HandOver of the same listener is under way. Afterwards the Server goes on. Shutdown, after
// HandOver or during it, closes the connections that are left, once they are idle.
func (s *Server) HandOver(ctx context.Context, l net.Listener, give func(conns []percore.WaitingConn) error) error {
	if ctx == nil || l == nil || give == nil {
		return errors.New("httpadapter: HandOver was called with a nil context, listener or function: pass all three")
	}
	h := &handoverOut{server: s, listener: l, ctx: ctx, give: give, wake: make(chan struct{}, 1), began: time.Now()}
	if !h.begin() {
		return errHandOver
	}
	defer h.end()
	s.tellDraining()
	for _, call := range h.calls() {
		if call.streams != nil {
			call.streams.Drain()
		}
	}
	return h.run()
}

var errHandOver = errors.New("httpadapter: HandOver: another HandOver of the listener is under way: call it again when that has returned")

// handoverOut is a HandOver that is under way. It takes connections out of service in two ways.
//
// The goroutine that lets a connection wait offers it first: the worker, or the accept loop. So a
// client whose next request follows each answer at once moves as well as others: its connection may
// wait for microseconds only, too short a time for a look now and then to find it. And the handoverOut
// looks at all connections when it begins, and from time to time: for those that wait already, and
// those that found no room.
//
// The offer costs a request the load of a pointer that is nil, from memory that it uses anyway.
type handoverOut struct {
	// immutable
	server   *Server
	listener net.Listener
	ctx      context.Context
	give     func([]percore.WaitingConn) error
	wake     chan struct{} // has a token if taken may have changed
	began    time.Time

	// mu is taken before conn.mu.
	mu struct {
		sync.Mutex
		taken []*conn // to be given next, in takenOut or closing; up to handOverMost
		over  bool
	}
}

const (
	// handOverMost is how many connections are given at once. The kernel passes on as many
	// descriptors with a message (SCM_MAX_FD; unix(7)).
	handOverMost = 253

	// handshakeTime is how long HandOver waits for handshakes that are under way.
	handshakeTime = time.Second

	// lookPause is the time between two looks at all connections, if they are few.
	lookPause = 5 * time.Millisecond

	// pausePerConn keeps looks apart if there are many connections: a look at one takes some 20 ns.
	pausePerConn = time.Microsecond
)

// begin registers h. It reports false if another HandOver of the listener is under way.
func (h *handoverOut) begin() bool {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handoverLocked(h.listener) != nil {
		return false
	}
	s.mu.handovers = append(s.mu.handovers, h)
	h.setLocked(h)
	return true
}

// end returns all connections that were not given.
func (h *handoverOut) end() {
	s := h.server
	s.mu.Lock()
	s.mu.handovers = slices.DeleteFunc(s.mu.handovers, func(other *handoverOut) bool { return other == h })
	h.setLocked(nil)
	s.mu.Unlock()
	h.mu.Lock()
	h.mu.over = true
	h.mu.Unlock()
	for _, c := range h.takeAll() {
		c.putBack()
	}
}

// setLocked makes the listener's connections leave with to: h, or nil. The Server's mu is held.
func (h *handoverOut) setLocked(to *handoverOut) {
	for call := range h.server.mu.calls {
		if call.accepts(h.listener) {
			call.setHandover(to)
		}
	}
}

// calls returns the calls of Serve with the listener.
func (h *handoverOut) calls() (all []*serveCall) {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for call := range s.mu.calls {
		if call.accepts(h.listener) {
			all = append(all, call)
		}
	}
	return all
}

// handoverLocked returns the HandOver of l that is under way, or nil.
func (s *Server) handoverLocked(l net.Listener) *handoverOut {
	for _, h := range s.mu.handovers {
		if isSame(h.listener, l) {
			return h
		}
	}
	return nil
}

// accepts reports whether the call serves a listener: the one that Serve was called with, or percore's
// below one of tls.NewListener.
func (call *serveCall) accepts(l net.Listener) bool {
	return isSame(call.listener, l) || isSame(call.below, l)
}

// isSame reports whether a and b are one listener. Values that Go can't compare never are.
func isSame(a, b net.Listener) bool { return reflect.ValueOf(a).Comparable() && a == b }

// setHandover makes the call's connections leave with h, if they can.
func (call *serveCall) setHandover(h *handoverOut) {
	call.leaving.Store(h != nil)
	if !call.keeps || call.overTLS {
		return
	}
	for _, q := range call.queues {
		q.handover.Store(h)
	}
}

// run gives connections until none is left.
func (h *handoverOut) run() error {
	for {
		if err := h.look(); err != nil {
			return err
		}
		pause := time.After(max(lookPause, time.Duration(h.left())*pausePerConn))
		for look := false; !look; {
			if err := h.giveTaken(); err != nil {
				return err
			}
			if h.left() == 0 {
				return nil
			}
			select {
			case <-h.wake:
			case <-pause:
				look = true
			case <-h.ctx.Done():
				return h.ctx.Err()
			}
		}
	}
}

// look takes the connections that wait, and gives them away whenever there is no room for more.
func (h *handoverOut) look() error {
	var err error
	for _, q := range h.queues() {
		q.each(func(c *conn) {
			if _, waits := c.load().takeOut(); err == nil && waits && h.take(c, connState.takeOut, true) && h.isFull() {
				err = h.giveTaken()
			}
		})
	}
	return err
}

// queues returns those whose connections can move.
func (h *handoverOut) queues() (all []*connQueue) {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for call := range s.mu.calls {
		for _, q := range call.queues {
			if q.handover.Load() == h {
				all = append(all, q)
			}
		}
	}
	return all
}

// left returns how many connections can move.
func (h *handoverOut) left() (n int) {
	for _, q := range h.queues() {
		if q.admitting.Load() { // first: then the connection is kept
			n++
		}
		q.mu.Lock()
		n += q.mu.kept.len
		q.mu.Unlock()
	}
	return n + h.handshakes()
}

// handshakes returns how many connections may be about to become HTTP/2 over TLS, as long as HandOver
// waits for them.
func (h *handoverOut) handshakes() (n int) {
	if time.Since(h.began) > handshakeTime {
		return 0
	}
	for _, call := range h.calls() {
		if !call.overTLS || call.streams == nil {
			continue
		}
		for _, q := range call.queues {
			if q.admitting.Load() { // first: then the connection is kept
				n++
			}
			q.each(func(c *conn) {
				if c.beginsHTTP2OverTLS() {
					n++
				}
			})
		}
	}
	return n
}

// take takes c out of service by an event, if there is room, and reports whether it did. armed is
// false if the caller has not armed the callback.
func (h *handoverOut) take(c *conn, event func(connState) (connState, bool), armed bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.over || len(h.mu.taken) == handOverMost || !c.takeOut(event, armed) {
		return false
	}
	h.mu.taken = append(h.mu.taken, c)
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return true
}

func (h *handoverOut) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.taken) == handOverMost
}

func (h *handoverOut) takeAll() []*conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.mu.taken
	h.mu.taken = nil
	return taken
}

// giveTaken calls give with the connections that were taken, if there are any.
func (h *handoverOut) giveTaken() error {
	if err := h.ctx.Err(); err != nil {
		return err
	}
	taken := h.takeAll()
	if len(taken) == 0 {
		return nil
	}
	given := false
	defer func() { // give may panic
		for _, c := range taken {
			if given {
				c.closeMoved()
			} else {
				c.putBack()
			}
		}
	}()
	conns := make([]percore.WaitingConn, len(taken))
	for i, c := range taken {
		conns[i] = percore.WaitingConn{Conn: c.Conn, Served: c.load().has(began)}
	}
	err := h.give(conns)
	given = err == nil
	return err
}

// offer offers a connection that waits from now on, and whose callback is not armed, to HandOver. It
// reports whether that has taken it.
func (c *conn) offer() bool {
	h := c.queue.handover.Load()
	return h != nil && h.take(c, connState.takeOut, false)
}

// takeOut takes a connection out of service. It reports false if event doesn't apply to its state, or
// a part of a request was read.
//
// While a connection waits its callback is armed, or about to be, or on its way. A callback that can't
// be cancelled comes, and is noted: putBack arms the callback exactly if it has come, or never will.
func (c *conn) takeOut(event func(connState) (connState, bool), armed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := event(c.load()); !ok || c.kept.hasBytes() {
		return false
	}
	c.change(event)
	if c.Conn.CancelOnReadable() || !armed {
		c.change(connState.disarm)
	}
	return true
}

// putBack makes a connection wait again, or closes it if Close was called in the meantime.
func (c *conn) putBack() {
	c.mu.Lock()
	from := c.load()
	_, stays := c.change(connState.putBack)
	c.mu.Unlock()
	if !stays {
		c.closeTakenOut()
		return
	}
	if from.has(disarmed) {
		c.arm()
	}
	c.rested()
}

// closeMoved closes a connection that belongs to another process now. That takes the descriptor away,
// and says nothing to the client.
func (c *conn) closeMoved() {
	c.queue.counts.Add(countHandedOver, 1)
	c.closeTakenOut()
}

// closeTakenOut closes a connection that HandOver has.
func (c *conn) closeTakenOut() {
	c.mu.Lock()
	c.endLocked(connState.closeTakenOut)
	c.mu.Unlock()
	_ = c.Conn.Close()
	c.notifyClosed()
	c.queue.call.release()
}
