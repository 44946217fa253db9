package httpadapter

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// HandOver moves the connections of a listener to another process. It calls give with connections that
// wait for a request, or for their first byte, up to 253 at a time. Busy connections follow as soon as
// they have their answer. HandOver returns nil when no connection is left that can move, or ctx's
// error when ctx is done. Package handover calls it, and most programs use that package.
//
// l must be the very listener that Serve was called with, not one inside or around it. The connections
// of the Server's other listeners stay. If Serve was not called with l, nothing moves.
//
// # Give
//
// give passes on the descriptors. Until it returns, nothing reads from the connections, and they stay
// open: a Close takes effect afterwards. give must not keep the slice.
//
//   - If it returns nil, the connections belong to the other process. The Server closes its
//     descriptors, which the clients don't notice, and ConnState gets StateClosed.
//   - If it fails or panics, the connections go on here with the deadlines that they had, and bytes
//     that came in the meantime are served. HandOver returns the error.
//
// Calls of give follow one another. While give runs, the Server serves all connections except give's
// own, and up to 253 that have become idle since. give should return when ctx is done, because
// HandOver and Shutdown wait for it.
//
// # Connections that move
//
// Plain HTTP/1 connections move, each as soon as it waits. Answers are as usual. Connections with TLS
// or HTTP/2, hijacked connections, and connections that are not a *percore.Conn stay, and HandOver
// doesn't wait for them. It waits for connections that have a running request, or part of its header.
//
// HTTP/2 clients are told at once to open their next streams elsewhere (GOAWAY), in cleartext and over
// TLS. Their streams go on, and Shutdown waits for them; a connection without streams ends as soon as
// its client has seen the GOAWAY. Running TLS handshakes have up to a second to finish, since their
// clients are about to send requests. The functions of [Server.RegisterOnDrain] are also called at once.
//
// Off Linux, with the build tag percore_net, and where net/http serves ([Stats] has Foreign), nothing
// moves, and HandOver returns nil at once.
//
// Connections that are accepted during HandOver also move, so the listener should not accept any.
// HandOver may be called at any time, even for several listeners at once, but fails while another
// HandOver of the same listener is running. Afterwards the Server goes on. Shutdown, during or after
// HandOver, closes the remaining connections once they are idle.
func (s *Server) HandOver(ctx context.Context, l net.Listener, give func(conns []percore.WaitingConn) error) error {
	if ctx == nil || l == nil || give == nil {
		return errors.New("httpadapter: HandOver was called with a nil context, listener or function: pass all three")
	}
	h := &handoverOut{Mover: h1.NewMover(handOverMost), server: s, listener: l, ctx: ctx, give: give, began: time.Now()}
	if !h.begin() {
		return errHandOver
	}
	defer h.end()
	s.drains.Call()
	for _, call := range h.calls() {
		if call.streams != nil {
			call.streams.GoAway()
		}
	}
	return h.run()
}

var errHandOver = errors.New("httpadapter: HandOver: another HandOver of the listener is under way: call it again when that has returned")

// handoverOut is a HandOver that is under way. Connections come to its Mover.
type handoverOut struct {
	*h1.Mover // of the connections that are given next

	// immutable
	server   *Server
	listener net.Listener
	ctx      context.Context
	give     func([]percore.WaitingConn) error
	began    time.Time
}

const (
	// handOverMost is how many connections are given at once: as many descriptors as the kernel passes with
	// a message (SCM_MAX_FD; unix(7)).
	handOverMost = 253

	// handshakeTime is how long HandOver waits for handshakes.
	handshakeTime = time.Second

	// lookPause is the time between two looks at all connections, if they are few.
	lookPause = 5 * time.Millisecond

	// pausePerConn makes the pause longer if they are many: a look at one takes some 20 ns.
	pausePerConn = time.Microsecond
)

// begin registers h. It reports false if another HandOver of the listener is under way.
func (h *handoverOut) begin() bool {
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.mu.handovers, func(other *handoverOut) bool { return isSame(other.listener, h.listener) }) {
		return false
	}
	s.mu.handovers = append(s.mu.handovers, h)
	for _, call := range h.callsLocked() {
		call.setHandover(h)
	}
	return true
}

// end returns all connections that were not given.
func (h *handoverOut) end() {
	s := h.server
	s.mu.Lock()
	s.mu.handovers = slices.DeleteFunc(s.mu.handovers, func(other *handoverOut) bool { return other == h })
	for _, call := range h.callsLocked() {
		call.setHandover(nil)
	}
	s.mu.Unlock()
	h.Mover.End()
}

// calls returns the calls of Serve with the listener.
func (h *handoverOut) calls() []*serveCall {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	return h.callsLocked()
}

func (h *handoverOut) callsLocked() []*serveCall {
	return slices.DeleteFunc(h.server.callsLocked(), func(call *serveCall) bool { return !call.accepts(h.listener) })
}

// accepts reports whether the call serves a listener: the one that Serve was called with, or percore's
// below one of tls.NewListener.
func (call *serveCall) accepts(l net.Listener) bool {
	return isSame(call.listener, l) || isSame(call.below, l)
}

// isSame reports whether a and b are one listener. Values that Go can't compare never are.
func isSame(a, b net.Listener) bool { return reflect.ValueOf(a).Comparable() && a == b }

// moves reports whether the call's connections can move to another process.
func (call *serveCall) moves() bool { return call.keeps && !call.overTLS }

// setHandover makes the call's connections leave with h, if they can; nil: they stay.
func (call *serveCall) setHandover(h *handoverOut) {
	call.leaving.Store(h != nil)
	switch {
	case !call.moves():
	case h == nil:
		call.http1.SetMover(nil)
	default:
		call.http1.SetMover(h.Mover)
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
			case <-h.Wake:
			case <-pause:
				look = true
			case <-h.ctx.Done():
				return h.ctx.Err()
			}
		}
	}
}

// look takes the connections that wait, and gives them away whenever there is no room for more.
func (h *handoverOut) look() (err error) {
	for _, call := range h.calls() {
		if call.moves() && err == nil {
			h.Mover.Look(call.http1, func() bool {
				err = h.giveTaken()
				return err == nil
			})
		}
	}
	return err
}

// left returns how many connections can move, or may be about to become HTTP/2 over TLS, as long as
// HandOver waits for handshakes.
func (h *handoverOut) left() (n int) {
	shaking := time.Since(h.began) <= handshakeTime
	for _, call := range h.calls() {
		switch {
		case call.moves():
			n += call.http1.Left()
		case shaking && call.streams != nil:
			n += call.http1.Shaking()
		}
	}
	return n
}

// giveTaken calls give with the connections that were taken, if there are any.
func (h *handoverOut) giveTaken() error {
	if err := h.ctx.Err(); err != nil {
		return err
	}
	taken := h.TakeAll()
	if len(taken) == 0 {
		return nil
	}
	given := false
	defer func() { // give may panic
		for _, c := range taken {
			if given {
				c.CloseMoved()
			} else {
				c.PutBack()
			}
		}
	}()
	conns := make([]percore.WaitingConn, len(taken))
	for i, c := range taken {
		conns[i] = c.Waiting()
	}
	err := h.give(conns)
	given = err == nil
	return err
}
