package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// Server serves connections, from any number of listeners, with one handler. Make it with New. Its
// methods are safe for concurrent use.
type Server struct {
	// immutable
	config  Config // complete
	handler Handler

	engine  engine
	workers workers.Pool[*Conn] // for functions of Go
	shakers shakers

	broadcasts broadcasts

	closing atomic.Uint32 // how: askEnd by Shutdown, askClose by Close, 0; written under mu
	empty   chan struct{} // closed when no connection is left while closing

	mu struct {
		sync.Mutex
		listeners map[*percore.Listener]bool
		loops     []*Loop // replaced, never changed: see Server.loops
		made      int     // loops
		conns     int     // not closed or hijacked, opening and handshaking ones included
		over      bool    // empty is closed
	}
}

// New makes a server. It fails if a field of config makes no sense, or there is neither a handler nor
// Config.LoopHandler.
func New(h Handler, config Config) (*Server, error) {
	c, err := config.complete()
	if err != nil {
		return nil, err
	}
	if h == nil && c.LoopHandler == nil {
		return nil, errors.New("reactor: there is no handler; pass one, or set Config.LoopHandler")
	}
	s := &Server{config: c, handler: h, empty: make(chan struct{})}
	s.workers.Max, s.workers.Work = c.Workers, func(c *Conn) { (*functions)(c).run() }
	s.broadcasts.highWaterMark = int64(c.WriteHighWaterMark)
	if c.TLS != nil {
		s.shakers.init(&c.TLS.handshakes)
	}
	s.mu.listeners = make(map[*percore.Listener]bool)
	return s, nil
}

// Serve makes a server, and serves l with it: see [Server.Serve].
func Serve(l net.Listener, h Handler, config Config) error {
	s, err := New(h, config)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Serve accepts connections from l and passes their bytes to the handler, until l or the server is
// closed. It blocks, and always returns an error: Accept's, or [ErrServerClosed]. Open connections
// stay open. It may be called for several listeners at the same time. A temporary error of Accept is
// logged and Accept is tried again, as in net/http.
//
// l must be a *[percore.Listener], as percore.Listen returns it. Serve refuses other listeners, such
// as those of tls.NewListener, because they hide the socket from the loops. For TLS there is package
// reactortls. With PERCOREDEBUG=engine=net in the environment, Serve fails with an error that wraps
// [errors.ErrUnsupported]; to take the engine out of a server, use the build tag percore_net.
func (s *Server) Serve(l net.Listener) error {
	if l == nil {
		return errNil("Serve", "net.Listener")
	}
	pl, ok := l.(*percore.Listener)
	switch {
	case !ok && isOffEngine():
		return errOffEngine("Serve", l)
	case !ok:
		return fmt.Errorf("reactor: Serve needs a *percore.Listener, not a %T: pass percore.Listen's, unwrapped", l)
	}
	if !s.addListener(pl) {
		pl.Close()
		return ErrServerClosed
	}
	defer s.removeListener(pl)
	err := serving.Accept(pl, s.isClosing, func(err error, in time.Duration) {
		s.config.Log.Error("reactor: Accept failed", "error", err, "retry", in)
	}, func(nc net.Conn) { s.attach(nc.(*percore.Conn)) })
	if s.isClosing() {
		return ErrServerClosed
	}
	return err
}

func (s *Server) isClosing() bool { return s.closing.Load() != 0 }

// Attach gives the server a connection that other code has used until now. Data first gets buffered,
// bytes that were read from it and not used. user is the handler's value, as with SetUser; Open and
// Data already find it. c must be a *[percore.Conn], or a connection that [Conn.Hijack] has returned,
// or one without TLS that a handler on package httpadapter has hijacked; then buffered is what its
// bufio.Reader has. From then on the server owns c: no other code may use it. It stays on its loop,
// which belongs to the listener that accepted it, or to the Group of the percore.Dialer that dialed it
// (without one, to the default group). The handler's Open is called soon. If Attach fails, c is
// unchanged.
func (s *Server) Attach(c net.Conn, buffered []byte, user any) (*Conn, error) {
	with := arriving{buffered: buffered, user: user}
	switch c := c.(type) {
	case *tls.Conn:
		return s.attachTLS(c, with)
	case attacher:
		var attached *Conn
		err := c.AttachTo(func(pc *percore.Conn, unread []byte) (err error) {
			with.buffered = slices.Concat(with.buffered, unread)
			attached, err = s.attachOrFail(pc, with)
			return err
		})
		return attached, err
	}
	return s.attachAny(c, with)
}

func (s *Server) attachAny(c net.Conn, with arriving) (*Conn, error) {
	switch c := c.(type) {
	case *percore.Conn:
		return s.attachOrFail(c, with)
	case *sendingConn:
		return c.attach(s, with)
	}
	if c != nil && isOffEngine() {
		return nil, errOffEngine("Attach", c)
	}
	return nil, fmt.Errorf("reactor: Attach needs a connection of percore's, not a %T: loops need the socket itself", c)
}

// isOffEngine reports whether the environment has taken the engine out of this process. Only package
// reactor can't work without it: its loops are the engine's, or in another build its own.
func isOffEngine() bool { return !onGoroutines && features.EngineIsNet() }

func errOffEngine(call string, arg any) error {
	return fmt.Errorf("reactor: %s got a %T since the environment has PERCOREDEBUG=engine=net, and needs percore's loops:"+
		" unset that, or build with the tag percore_net, which runs reactor on package net: %w", call, arg, errors.ErrUnsupported)
}

// attacher is a wrapper around a *percore.Conn that may hold bytes back: it calls attach with the
// connection and the bytes, and gives both up if that succeeds.
type attacher interface {
	AttachTo(attach func(pc *percore.Conn, unread []byte) error) error
}

func (s *Server) addListener(l *percore.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.mu.listeners[l] = true
	return true
}

func (s *Server) removeListener(l *percore.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.listeners, l)
}

// attach takes over an accepted connection, or closes it.
func (s *Server) attach(pc *percore.Conn) {
	if s.config.TLS != nil {
		s.shakeHands(pc)
	} else if _, err := s.attachOrFail(pc, arriving{}); err != nil {
		pc.Close()
	}
}

// arriving is what a connection brings that is not new.
type arriving struct {
	buffered []byte   // read from it, for Data
	user     any      // as SetUser keeps it
	unsent   *backlog // bytes that go before all that is written; may be nil
	ends     bool     // our stream ends with them
	layer    *layered // may be nil
}

// attachOrFail takes over a connection. If it fails, the caller still owns the connection, and what it
// brings.
func (s *Server) attachOrFail(pc *percore.Conn, with arriving) (*Conn, error) {
	sock, e, err := s.engine.newSock(pc)
	if err != nil {
		return nil, err
	}
	l, err := s.enter(e)
	if err != nil {
		return nil, err
	}
	c := &Conn{loop: l, sock: sock, user: with.user}
	if n := len(with.buffered); n > 0 {
		c.unused = pool.Get(n)
		copy(c.unused.Bytes(), with.buffered)
	}
	(*output)(c).owe(with.unsent, with.ends)
	if err := c.sock.claim(c); err != nil {
		(*input)(c).drop()
		s.left()
		return nil, err
	}
	if with.layer != nil {
		c.addLayer(with.layer)
	}
	l.counts.Add(countOpened, 1)
	l.engine.Submit(c.open)
	return c, nil
}

// enter counts a connection, and returns the server's part of its loop. left counts it out again.
func (s *Server) enter(e engineLoop) (*Loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock() // Config.LoopHandler may panic
	if s.isClosing() {
		return nil, ErrServerClosed
	}
	l := s.loopLocked(e)
	s.mu.conns++
	return l, nil
}

// loopLocked returns the server's part of a loop. A new one takes the place, the number and the
// handler of one that has ended, if there is any: if connections come one after the other, each on a
// group that ends with it, the server has one loop. The ended loop runs nothing for the server any
// more: a reference to it is held for as long as a callback may run.
func (s *Server) loopLocked(e engineLoop) *Loop {
	free := -1
	for i, l := range s.mu.loops {
		switch {
		case l.engine == e:
			return l
		case free >= 0:
		case l.engine.Retain():
			l.engine.Release()
		default:
			free = i
		}
	}
	loops := slices.Clone(s.mu.loops)
	if free >= 0 {
		loops[free] = newLoop(s, e, free, loops[free].handler)
		s.mu.loops = loops
		return loops[free]
	}
	h := s.handler
	if s.config.LoopHandler != nil {
		h = s.config.LoopHandler(len(loops))
	}
	l := newLoop(s, e, len(loops), h)
	s.mu.loops = append(loops, l)
	return l
}

func (s *Server) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.conns--
	s.endWhenEmptyLocked()
}

// endWhenEmptyLocked ends the rest of a closing server once no connection is left.
func (s *Server) endWhenEmptyLocked() {
	if s.mu.conns > 0 || !s.isClosing() {
		return
	}
	if !s.mu.over {
		s.mu.over = true
		s.workers.Close()
		close(s.empty)
	}
}

// Shutdown closes the listeners. It closes each connection, as Conn.Close does, as soon as the running
// callback and the functions of Go have ended; Data isn't called any more. It returns nil when the
// last handler's Close has returned, or ctx's error when ctx is done. Close closes the connections
// that are left. After Close, Shutdown only waits. A callback or a function of Go must not call
// Shutdown: it would wait for itself.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNil("Shutdown", "context.Context")
	}
	empty := s.end(askEnd)
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the listeners and all connections at once. It drops functions of Go that have not
// begun, and waiting broadcasts and calls of Each. As in net/http, Close doesn't wait, so callbacks
// may call it; Shutdown waits for running callbacks, and for the handler's Close of each connection.
// Close returns nil.
func (s *Server) Close() error {
	s.end(askClose)
	return nil
}

// end begins to end the server, and returns a channel that is closed when that is done.
func (s *Server) end(how uint32) (empty <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Or(how)
	for l := range s.mu.listeners {
		l.Close()
	}
	s.shakers.end()
	end := (*Conn).endNow
	if how == askEnd {
		end = func(c *Conn) {
			if c.asked.Load()&askEnd == 0 {
				c.end(how, ErrServerClosed)
			}
		}
	}
	for _, l := range s.mu.loops {
		l.submitJob(job{end, func() {}}, how == askClose) // askEnd: behind what was written to all before
	}
	s.endWhenEmptyLocked()
	return s.empty
}

// endNow ends a connection of a server that is closed.
func (c *Conn) endNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	(*functions)(c).lostLocked(ErrServerClosed, true) // first: a function that sees its context end may make room for the next
	c.endLocked(askClose, ErrServerClosed)
	c.loop.remind(c, false) // it may have waited for functions
}

// loops returns the loops that have had connections. The slice doesn't change.
func (s *Server) loops() []*Loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.loops
}
