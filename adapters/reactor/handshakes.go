package reactor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// handshake is an accepted connection before its handler knows it.
//
//	state    where                                 leaves by
//	silent   on its loop: no goroutine             bytes come: waiting; the deadline passes, or it is
//	                                               closed: ended
//	waiting  in places                             there is a place for it: running
//	running  in places, on a goroutine             the handshake is done: attached; it fails, also since
//	                                               the deadline has passed or it is closed: ended
//
// One deadline counts for all of it, and is that of the context, too, that functions of the tls.Config
// get. Off Linux a connection has a goroutine from the beginning, and needs no place.
type handshake struct {
	// immutable
	server   *Server
	conn     *percore.Conn
	peer     netip.Prefix // see accepting.Peer
	deadline time.Time

	// atomic
	over atomic.Bool // it is done, or was given up

	// atomic, and written by its goroutine
	waits    atomic.Int64 // the time that it has waited for its peer, without the wait under way
	waitedAt atomic.Int64 // when that began, or 0; of monotime
}

// shakers are the goroutines for the handshakes of a server.
type shakers struct {
	*layer.Handshakes
	turns  turns
	places places
	pool   workers.Pool[*handshake]
	ctx    context.Context // ends with the server
	stop   context.CancelFunc
}

// failedHandshakes counts for the figures.
var failedHandshakes atomic.Uint64

func (s *shakers) init(h *layer.Handshakes) {
	s.Handshakes = h
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.turns.init(runtime.GOMAXPROCS(0))
	s.places.init(h.Max, s.pool.Serve)
	s.pool.Work = (*handshake).runInPlace
}

// shakeHands makes an accepted connection the server's once its handshake is done.
func (s *Server) shakeHands(pc *percore.Conn) {
	h := &handshake{
		server: s, conn: pc, peer: accepting.Peer(pc.RemoteAddrPort().Addr()),
		deadline: time.Now().Add(s.shakers.Timeout),
	}
	if !s.enterHandshake(h) {
		pc.Close()
		return
	}
	_ = pc.SetDeadline(h.deadline)
	switch err := pc.OnReadable(h.ready); {
	case errors.Is(err, errors.ErrUnsupported):
		go h.run()
	case err != nil:
		h.fail(err)
	}
}

func (s *Server) enterHandshake(h *handshake) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() != 0 {
		return false
	}
	if s.mu.shaking == nil {
		s.mu.shaking = make(map[*handshake]bool)
	}
	s.mu.shaking[h] = true
	s.mu.conns++
	return true
}

// giveUp closes the connection, of which the handshake's goroutine learns, unless the handshake is
// done: a handler may have the connection then.
func (h *handshake) giveUp() {
	if !h.over.Swap(true) {
		_ = h.conn.Close()
	}
}

// leave counts the connection out, after Attach has counted it in again, or at its end.
func (h *handshake) leave() {
	h.server.mu.Lock()
	delete(h.server.mu.shaking, h)
	h.server.mu.Unlock()
	h.server.left()
}

// ready is called on the connection's loop when the client has sent something, or never will.
func (h *handshake) ready(err error) {
	if err != nil {
		h.fail(err)
		return
	}
	h.server.shakers.places.enter(h)
}

// runInPlace is run of a handshake that has a place.
func (h *handshake) runInPlace() {
	defer h.server.shakers.places.leave(h) // also if a function of the tls.Config ends the goroutine
	h.run()
}

// run performs the handshake.
func (h *handshake) run() {
	done := false
	defer func() {
		if done {
			return
		}
		v := recover() // of a function of the tls.Config; nil if it has ended the goroutine
		h.server.config.Log.Error("reactor: a handshake panicked; its connection is closed",
			"peer", h.conn.RemoteAddr(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		h.fail(&PanicError{v})
	}()
	upper, err := h.shake()
	if h.over.Swap(true) {
		err = net.ErrClosed
	}
	if err == nil {
		_, err = h.server.Attach(upper, nil, nil)
	}
	done = true
	if err != nil {
		h.fail(err)
		return
	}
	h.leave()
}

// shake performs the handshake. Its context is for functions of the tls.Config: the deadline of the
// connection ends its reads and writes.
func (h *handshake) shake() (layer.Upper, error) {
	s := &h.server.shakers
	s.turns.compute(h)
	defer s.turns.rest(h)
	ctx, cancel := context.WithDeadline(s.ctx, h.deadline)
	defer cancel()
	upper := s.Wrap(h.conn, h)
	return upper, upper.HandshakeContext(ctx)
}

// Wait implements layer.Turn.
func (h *handshake) Wait() {
	h.waitedAt.Store(monotime.Now())
	h.server.shakers.turns.rest(h)
}

// Resume implements layer.Turn.
func (h *handshake) Resume() {
	h.waits.Add(monotime.Now() - h.waitedAt.Swap(0)) // in this order: see waited
	h.server.shakers.turns.compute(h)
}

// waited returns for how long the handshake has waited for its peer, or 0 while it doesn't.
func (h *handshake) waited(now int64) int64 {
	before := h.waits.Load() // first, or a wait that ends here would count twice
	if at := h.waitedAt.Load(); at != 0 {
		return before + now - at
	}
	return 0
}

// fail ends the connection, whose handler learns nothing of it.
func (h *handshake) fail(err error) {
	failedHandshakes.Add(1)
	h.server.config.Log.Debug("reactor: a handshake failed", "peer", h.conn.RemoteAddr(), "error", err)
	_ = h.conn.Close()
	h.leave()
}
