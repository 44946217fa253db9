package h2

// This file has streams that go on after their handler's Serve has returned, without a goroutine.
//
//	state     meaning                                           leaves by
//	attached  the stream ends when Serve returns                Detach: detached; Serve returns: served
//	detached  it ends with Finish; Resume queues calls of the   Finish: served
//	          handler's Resume
//	served    the stream has ended for its handler              (final)

// A Resumer is a StreamHandler whose stream may be detached.
type Resumer interface {
	StreamHandler

	// Resume is called once for each call of the stream's Resume, on a goroutine of the pool. It may
	// block. If it panics the stream ends.
	Resume()
}

// Detach lets the stream of a server go on when Serve returns, until Finish is called. Call it in Serve.
// The stream counts as one whose handler runs: Config.Streams limits both together. [StreamHandler]'s
// Cancelled is called if the stream ends early.
//
// It panics if the handler is no [Resumer].
func (s *Stream) Detach() {
	if _, ok := s.handler.(Resumer); !ok {
		panic("h2: Detach was called on a stream whose handler is no Resumer")
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.detached = !s.served
}

// Resume makes a goroutine of the pool call the Resume of the handler, which must be a [Resumer]. It
// doesn't block.
func (s *Stream) Resume() {
	c := s.conn
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.workers.Serve(item{c: c, s: s, kind: itemResume})
}

// Finish ends a stream that is detached, as Serve's return ends others. Calls after the first have no
// effect.
func (s *Stream) Finish() {
	c := s.conn
	c.mu.Lock()
	detached := s.detached
	s.detached = false
	c.mu.Unlock()
	if detached {
		s.finish(true)
	}
}

// resume calls the handler's Resume.
func (s *Stream) resume() {
	c := s.conn
	c.mu.Lock()
	c.queued--
	c.mu.Unlock()
	returned := false
	defer s.finishAbrupt(&returned)
	s.handler.(Resumer).Resume()
	returned = true
	s.finish(true) // or it goes on
}
