package h2

// This file has streams that go on after their handler's Serve has returned, without a goroutine.
//
//	state     meaning                                           leaves by
//	attached  the stream ends when Serve returns                Detach: detached; Serve returns: served;
//	                                                            Move: served, and its successor detached
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
	s.setDetachedLocked(!s.served)
}

func (s *Stream) setDetachedLocked(detached bool) {
	switch {
	case detached && !s.detached:
		s.conn.detached++
	case s.detached && !detached:
		s.conn.detached--
	}
	s.detached = detached
}

// Move is Detach, and lets go of s and its handler: to.Stream(), which must be new, is the stream from
// then on, with its deadlines and what was not read, and to is its handler, whose Serve is not called.
// The methods of s fail as if Serve had returned, and neither Serve's return nor its panic ends the
// stream. Call it once, in Serve. It waits for a Send that is under way.
//
// If the stream has ended early before, to.Stream().Err() says so, and Cancelled is called for s's
// handler, and not for to.
func (s *Stream) Move(to Resumer) {
	if to == nil {
		panic("h2: Move was called with a nil Resumer")
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c, next := s.conn, to.Stream()
	c.mu.Lock()
	defer c.unlock()
	if s.err != nil && c.phase == alive && !s.core.Ended() { // it waits for its reset: see partLocked
		c.lendLocked()
		c.core.Reset(&s.core, NoError)
		c.flushSoonLocked()
	}
	next.core.User = next
	c.core.Move(&s.core, &next.core)
	next.conn, next.handler = c, to
	next.body, next.err, next.readErr, next.extras = s.body, s.err, s.readErr, s.extras
	next.answered, next.served, next.cancelled, next.hurried = s.answered, s.served, s.cancelled, s.hurried
	next.expects = s.expects
	s.setDetachedLocked(false)
	next.setDetachedLocked(!s.served)
	s.body, s.extras, s.served = nil, nil, true
	if x := next.extras; x != nil {
		x.stream = next
		if x.filling.into != nil { // it is of a goroutine that reads from s
			s.extras = &extras{filling: x.filling}
			x.filling = filling{}
		}
	}
	s.wakeLocked()
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
	s.setDetachedLocked(false)
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
