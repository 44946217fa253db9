package reactor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/serving"
)

// shakers are the handshakes of a server.
type shakers struct {
	*layer.Handshakes
	all  *serving.Handshakes
	ctx  context.Context // ends with the server
	stop context.CancelFunc
}

func (s *shakers) init(h *layer.Handshakes) {
	s.Handshakes = h
	s.all = serving.NewHandshakes(h.Max, h.Max)
	s.ctx, s.stop = context.WithCancel(context.Background())
}

func (s *shakers) end() {
	if s.all != nil {
		s.stop()
		s.all.Close()
	}
}

// shakeHands performs the handshake of an accepted connection; then the server owns it. One deadline
// counts for all of the handshake, including the context that functions of the tls.Config get.
func (s *Server) shakeHands(pc *percore.Conn) {
	if !s.enterHandshake() {
		pc.Close()
		return
	}
	deadline := time.Now().Add(s.shakers.Timeout)
	_ = pc.SetDeadline(deadline)
	s.shakers.all.Begin(pc, &serving.Handshake{
		Do:   func(h *serving.Handshake) { s.shake(pc, h, deadline) },
		Cut:  func() { _ = pc.Close() },
		Lost: func(err error) { s.handshakeFailed(pc, err) },
	})
}

func (s *Server) enterHandshake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.mu.conns++
	return true
}

// shake performs a handshake. Its context is for functions of the tls.Config: the deadline of the
// connection ends its reads and writes.
func (s *Server) shake(pc *percore.Conn, h *serving.Handshake, deadline time.Time) {
	done := false
	defer func() {
		if done {
			return
		}
		v := recover() // of a function of the tls.Config; nil if it has ended the goroutine
		s.config.Log.Error("reactor: a handshake panicked; its connection is closed",
			"peer", pc.RemoteAddr(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		s.handshakeFailed(pc, &PanicError{v})
	}()
	ctx, cancel := context.WithDeadline(s.shakers.ctx, deadline)
	defer cancel()
	tc := tls.Server(&lower{Conn: pc, shaking: h}, s.shakers.Config)
	err := tc.HandshakeContext(ctx)
	if !h.Finish() {
		err = net.ErrClosed
	}
	if err == nil {
		_, err = s.Attach(tc, nil, nil)
	}
	done = true
	if err != nil {
		s.handshakeFailed(pc, err)
		return
	}
	s.left() // Attach has counted it in again
}

// handshakeFailed ends a connection, without telling the handler.
func (s *Server) handshakeFailed(pc *percore.Conn, err error) {
	process.Cells[0].Add(countFailedHandshakes, 1)
	s.config.Log.Debug("reactor: a handshake failed", "peer", pc.RemoteAddr(), "error", err)
	_ = pc.Close()
	s.left()
}
