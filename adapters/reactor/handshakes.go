package reactor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/workers"
)

// handshake is an accepted connection before its handler knows it.
//
//	state    where                                 leaves by
//	silent   on its loop: no goroutine             bytes come: queued; the deadline passes, or it is
//	                                               closed: ended
//	queued   in the pool's queue                   a goroutine is free: running
//	running  on a goroutine                        the handshake is done: attached; it fails, also since
//	                                               the deadline has passed or it is closed: ended
//
// One deadline counts for all of it. Off Linux a connection has a goroutine from the beginning.
type handshake struct {
	server *Server
	conn   *percore.Conn
}

// shakers are the goroutines for the handshakes of a server.
type shakers struct {
	*layer.Handshakes
	gate *layer.Gate
	pool workers.Pool[*handshake]
}

// failedHandshakes counts for the figures.
var failedHandshakes atomic.Uint64

func (s *shakers) init(h *layer.Handshakes) {
	s.Handshakes, s.gate = h, layer.NewGate(runtime.GOMAXPROCS(0))
	s.pool.Max, s.pool.Work = h.Max, (*handshake).run
}

// shakeHands makes an accepted connection the server's once its handshake is done.
func (s *Server) shakeHands(pc *percore.Conn) {
	h := &handshake{s, pc}
	if !s.enterHandshake(h) {
		pc.Close()
		return
	}
	_ = pc.SetDeadline(time.Now().Add(s.shakers.Timeout))
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
	h.server.shakers.pool.Serve(h)
}

// run performs the handshake.
func (h *handshake) run() {
	done := false
	defer func() {
		if done {
			return
		}
		v := recover() // of a function of the tls.Config; nil if it has ended the goroutine
		h.server.config.log.Error("reactor: a handshake panicked; its connection is closed",
			"peer", h.conn.RemoteAddr(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		h.fail(&PanicError{v})
	}()
	upper, err := h.shake()
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

func (h *handshake) shake() (layer.Upper, error) {
	s := &h.server.shakers
	s.gate.Enter()
	defer s.gate.Leave()
	upper := s.Wrap(h.conn, s.gate)
	return upper, upper.HandshakeContext(context.Background())
}

// fail ends the connection, whose handler learns nothing of it.
func (h *handshake) fail(err error) {
	failedHandshakes.Add(1)
	h.server.config.log.Debug("reactor: a handshake failed", "peer", h.conn.RemoteAddr(), "error", err)
	_ = h.conn.Close()
	h.leave()
}
