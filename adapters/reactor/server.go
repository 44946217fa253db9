package reactor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
)

// Server serves connections, from any number of listeners, with one handler. Make it with New. Its
// methods are safe for concurrent use.
type Server struct {
	// immutable
	config  config
	handler Handler

	engine    engine
	functions functions
	closing   atomic.Uint32 // how: askEnd by Shutdown, askClose by Close, 0; written under mu

	mu struct {
		sync.Mutex
		listeners map[*percore.Listener]bool
		loops     []*Loop       // replaced, never changed
		made      int           // loops
		conns     int           // not closed or detached, opening ones included
		empty     chan struct{} // closed when conns becomes 0 while closing; nil if nothing waits for it
	}
}

// New makes a server. It fails if an option makes no sense, or there is neither a handler nor
// the option PerLoop.
func New(h Handler, options ...Option) (*Server, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if h == nil && c.perLoop == nil {
		return nil, errors.New("reactor: there is no handler; pass one, or the option PerLoop")
	}
	s := &Server{config: c, handler: h}
	s.functions.waitingMax = c.waitingMax
	s.functions.pool.Max, s.functions.pool.Work = c.workers, s.functions.run
	s.mu.listeners = make(map[*percore.Listener]bool)
	return s, nil
}

// Serve makes a server, and serves l with it: see [Server.Serve].
func Serve(l net.Listener, h Handler, options ...Option) error {
	s, err := New(h, options...)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Serve accepts connections from l and passes their bytes to the handler, until l or the server is
// closed. It blocks, and always returns an error: Accept's, or [ErrServerClosed]. Connections
// that are open then stay open. It may be called for several listeners at the same time. Where package
// net stands in for the engine, Accept fails, and Serve ends, when the process has no descriptors left;
// the engine's Accept waits for one.
//
// l must be a *[percore.Listener], as percore.Listen returns. Others, as tls.NewListener returns them,
// hide the socket from the loops: Serve refuses them.
func (s *Server) Serve(l net.Listener) error {
	pl, ok := l.(*percore.Listener)
	if !ok {
		return fmt.Errorf("reactor: Serve needs a *percore.Listener, not a %T: pass percore.Listen's, unwrapped, and don't set PERCOREDEBUG=engine=net", l)
	}
	if !s.addListener(pl) {
		pl.Close()
		return ErrServerClosed
	}
	defer s.removeListener(pl)
	for {
		c, err := pl.AcceptConn()
		if err == nil {
			err = s.attach(c)
		}
		switch {
		case s.closing.Load() != 0:
			return ErrServerClosed
		case err != nil && c == nil:
			return err
		}
	}
}

// Attach gives the server a connection that other code has used until now, bytes that were read from
// it and not used, which Data gets first, and the handler's value for it, as SetContext does, which
// Open and Data find already; nil if there is none. c must be a *[percore.Conn], or a connection that
// [Conn.Detach] has returned, or one that a handler on package httpadapter has hijacked, not over
// TLS; buffered is what its bufio.Reader has then. The server owns it from then on, on the loop that
// it is on: no other code may use it. The handler's Open is called soon. If Attach fails c is as it
// was.
func (s *Server) Attach(c net.Conn, buffered []byte, context any) (*Conn, error) {
	switch c := c.(type) {
	case *percore.Conn:
		return s.attachOrFail(c, arriving{buffered: buffered, context: context})
	case *sendingConn:
		return c.attach(s, buffered, context)
	case attacher:
		return s.attachWrapped(c, buffered, context)
	}
	return nil, fmt.Errorf("reactor: Attach needs a connection of percore's, not a %T: loops need the socket itself", c)
}

// attacher is a wrapper around a *percore.Conn that may hold bytes back: it calls attach with the
// connection and the bytes, and gives both up if that succeeds.
type attacher interface {
	AttachTo(attach func(pc *percore.Conn, unread []byte) error) error
}

func (s *Server) attachWrapped(from attacher, buffered []byte, context any) (c *Conn, err error) {
	err = from.AttachTo(func(pc *percore.Conn, unread []byte) (err error) {
		c, err = s.attachOrFail(pc, arriving{buffered: slices.Concat(buffered, unread), context: context})
		return err
	})
	return c, err
}

func (s *Server) addListener(l *percore.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() != 0 {
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

// attach takes an accepted connection over, or closes it.
func (s *Server) attach(pc *percore.Conn) error {
	_, err := s.attachOrFail(pc, arriving{})
	if err != nil {
		pc.Close()
	}
	return err
}

// arriving is what a connection brings that is not new.
type arriving struct {
	buffered []byte   // read from it, for Data
	context  any      // as SetContext keeps it
	unsent   *backlog // bytes that go before all that is written; may be nil
	ends     bool     // our stream ends with them
}

// attachOrFail takes a connection over. If it fails the caller still owns it, and what it brings.
func (s *Server) attachOrFail(pc *percore.Conn, with arriving) (*Conn, error) {
	sock, e, err := s.engine.newSock(pc)
	if err != nil {
		return nil, err
	}
	l, err := s.enter(e)
	if err != nil {
		return nil, err
	}
	c := newConn(l, sock, with)
	c.owe(with.unsent, with.ends)
	if err := c.sock.claim(c); err != nil {
		c.dropUnused()
		s.left()
		return nil, err
	}
	l.figures.opened.Add(1)
	l.engine.Submit(c.open)
	return c, nil
}

// enter counts a connection in, and returns the server's part of its loop.
func (s *Server) enter(e engineLoop) (*Loop, error) {
	s.mu.Lock()
	defer s.mu.Unlock() // the option PerLoop's function may panic
	if s.closing.Load() != 0 {
		return nil, ErrServerClosed
	}
	l := s.loopLocked(e)
	s.mu.conns++
	return l, nil
}

// loopLocked returns the server's part of a loop. It forgets loops that have ended.
func (s *Server) loopLocked(e engineLoop) *Loop {
	for _, l := range s.mu.loops {
		if l.engine == e {
			return l
		}
	}
	l := newLoop(s, e, s.mu.made)
	s.mu.made++
	loops := make([]*Loop, 0, len(s.mu.loops)+1) // another array: see loops
	for _, l := range s.mu.loops {
		if l.engine.Retain() {
			l.engine.Release()
			loops = append(loops, l)
		}
	}
	s.mu.loops = append(loops, l)
	return l
}

// left counts a connection out.
func (s *Server) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.conns--
	s.endWhenEmptyLocked()
}

// endWhenEmptyLocked ends what a server that is being closed has, once no connection is left.
func (s *Server) endWhenEmptyLocked() {
	if s.mu.conns > 0 || s.closing.Load() == 0 {
		return
	}
	s.functions.pool.Close()
	if s.mu.empty != nil {
		close(s.mu.empty)
		s.mu.empty = nil
	}
}

// Shutdown closes the listeners, and each connection, as CloseAfterWrite does, as soon as the callback
// under way and the functions of Go have run; Data isn't called any more. It waits until the
// last handler's Close has returned, or ctx is done, and then returns ctx's error. Close closes the
// connections that are left. A callback or a function of Go must not call Shutdown: it would wait for
// itself.
func (s *Server) Shutdown(ctx context.Context) error { return s.shut(ctx, askEnd) }

// Close closes the listeners and all connections at once, and waits until the last handler's
// Close has returned. It must not be called by a callback or a function of Go.
func (s *Server) Close() error { return s.shut(context.Background(), askClose) }

func (s *Server) shut(ctx context.Context, how uint32) error {
	s.mu.Lock()
	s.closing.Or(how)
	for l := range s.mu.listeners {
		l.Close()
	}
	loops := s.mu.loops
	var empty chan struct{}
	if s.mu.conns > 0 {
		if s.mu.empty == nil {
			s.mu.empty = make(chan struct{})
		}
		empty = s.mu.empty
	}
	s.endWhenEmptyLocked()
	s.mu.Unlock()
	if empty == nil {
		return nil
	}
	for _, l := range loops {
		l.walkSoon(func(c *Conn) {
			if how == askClose || c.asked.Load()&askEnd == 0 {
				c.end(how, ErrServerClosed)
			}
		}, nil)
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loops returns the loops that have had connections.
func (s *Server) loops() []*Loop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.loops
}
