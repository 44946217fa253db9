package h2

import (
	"context"
	"fmt"
	"slices"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
)

// Room returns how many streams can be opened now, or 0 if bodies that are not read have taken most of
// ConnWindow: the answers of more streams might wait for their readers.
func (c *Conn) Room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isChokedLocked() {
		return 0
	}
	return c.roomLocked()
}

// Reserve reserves a stream on a client's connection, which is not idle from then on: neither
// IdleTimeout nor DrainIfIdle ends it. It reports false if Room is 0. Once that has changed State is
// called with Roomy, or with Leaving. The next Open that succeeds uses the reservation up, so all
// streams of a connection should have one, or none. A call that doesn't open its stream must call
// Unreserve.
func (c *Conn) Reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock() // nothing has changed that others wait for
	if c.isRoomyLocked() {
		c.makeWaiting().reserved++
		return true
	}
	c.makeWaiting().roomless = true
	return false
}

// Unreserve gives up a reservation that Open has not used. It does not block.
func (c *Conn) Unreserve() {
	c.mu.Lock()
	defer c.unlock()
	if c.waiting.unreserve(); c.waiting.reservations() == 0 {
		c.setAlarmLocked() // IdleTimeout counts again
	}
}

// Reserved returns how many reservations Open has not used.
func (c *Conn) Reserved() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.reservations()
}

// isRoomyLocked reports whether a stream can be reserved.
func (c *Conn) isRoomyLocked() bool {
	return c.roomLocked() > 0 && !c.isChokedLocked() && !c.waiting.hasOpeners()
}

// isChokedLocked reports whether bodies that are not read have taken three quarters of ConnWindow.
func (c *Conn) isChokedLocked() bool {
	return c.core.Held() > int(c.server.limits.ConnWindowBytes)/4*3
}

// roomLocked leaves out what is reserved, and what is kept for calls of Open that have waited.
func (c *Conn) roomLocked() int {
	if !c.takesStreamsLocked() {
		return 0
	}
	room := c.core.Room() - c.waiting.taken()
	if end := c.clock.ends; end != nil {
		room -= end.resets
	}
	return max(0, room)
}

// TakesStreams reports whether more streams can be opened, now or when others have ended.
func (c *Conn) TakesStreams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takesStreamsLocked()
}

func (c *Conn) takesStreamsLocked() bool {
	return c.phase == alive && c.core.TakesStreams() && c.clock.cut() == nil && !c.clock.ending().hungUp
}

// look looks for the server's end before the first stream of a while is opened. Servers hang up
// without GOAWAY right behind an answer, or when they have waited for long enough, and a stream that is
// sent to one may not be tried again. The reader, which is about to find that, takes what came before
// the end. look releases mu while it asks the kernel.
func (clientSide) look(c *Conn) {
	if c.open > 0 || !c.takesStreamsLocked() {
		return // other streams would be lost as well
	}
	c.mu.Unlock()
	hungUp := c.below.hungUp()
	c.mu.Lock()
	if hungUp && c.takesStreamsLocked() {
		c.clock.makeEnding().hungUp = true
		c.changedLocked(Leaving)
	}
}

// Open opens a stream on a client's connection: it sends the header of a request, the pseudo-header
// fields of r that are not empty, :authority also if HasAuthority is set, and r.Fields, and then what
// m has, whose Status and Fields are not used. s must be new, and must be closed in the end: see
// [Stream.Close]. Neither r nor m are kept.
//
// If the connection has as many streams as the server allows Open waits, until ctx ends; with a nil
// ctx, or a reservation, it returns ErrNoRoom. After that it waits as Send does if m has a body, but
// not for ctx. Its errors are ErrLeaving, ErrNoRoom, ctx's, one about a field that is not valid, and
// those of Send. With the last the stream was opened.
func (c *Conn) Open(ctx context.Context, s *Stream, r *Request, m Message) error {
	switch {
	case s == nil:
		return errNil("Open", "*Stream")
	case r == nil:
		return errNil("Open", "*Request")
	}
	if err := r.check(); err != nil {
		return err
	}
	m.Status, m.Fields = 0, r.Fields
	if err := m.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	var side clientSide
	side.look(c)
	if err := side.await(ctx, c); err != nil {
		return err
	}
	s.conn, s.core.User = c, s
	part := makeClientPart(s)
	part.heard = c.heard
	part.cond.L, s.cond = (*releaser)(c), &part.cond
	c.lend()
	bare := len(m.Body) == 0 && m.Trailers == nil
	if err := c.core.Begin(&s.core, r.core(), r.Fields, bare && m.End); err != nil {
		s.conn, s.cond = nil, nil
		return err
	}
	c.waiting.unreserve()
	c.workers.counts.Add(countStreams, 1)
	if c.open++; c.open == 1 {
		c.workers.counts.Add(countActive, 1)
		c.clock.quietAt = 0
		if c.server.config.PingAfter > 0 {
			c.clock.heardAt = c.below.now() // silence counts from here
			c.setAlarmLocked()
		}
		c.changedLocked(Active)
	}
	m.Fields = nil
	if !bare {
		if err := s.sendLocked(&m); err != nil {
			return err
		}
	}
	if !m.Hold {
		side.lend(s)
	}
	return nil
}

// core returns what the core needs of a request.
func (r *Request) core() *http2.Request {
	to := &http2.Request{Method: r.Method, Scheme: r.Scheme, Authority: r.Authority, Path: r.Path, Protocol: r.Protocol}
	if r.HasAuthority {
		to.AddAuthority()
	}
	return to
}

// check returns an error if a pseudo-header field must not be sent.
func (r *Request) check() error {
	for _, f := range [...]struct{ name, value string }{
		{":method", r.Method}, {":scheme", r.Scheme}, {":authority", r.Authority}, {":path", r.Path}, {":protocol", r.Protocol},
	} {
		if !hpack.ValidValue(f.value) {
			return fmt.Errorf("h2: the field %s must not be sent: its value is not valid", f.name)
		}
	}
	return nil
}

// await waits until a stream may be opened. It releases mu while it waits. Calls that have come first go
// first.
func (cl clientSide) await(ctx context.Context, c *Conn) error {
	switch {
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.waiting.reservations() > 0 && c.core.Room() == 0: // the server has lowered its limit since
		return ErrNoRoom
	case c.waiting.reservations() > 0:
		return nil
	case ctx == nil && c.isChokedLocked():
		return ErrNoRoom
	case c.roomLocked() > 0 && !c.waiting.hasOpeners():
		return nil
	case ctx == nil:
		return ErrNoRoom
	}
	o := c.makeWaiting().enter()
	c.workers.counts.Add(countStalls, 1)
	c.unlock()
	select {
	case <-o.granted:
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.waiting.leave(o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.core.Room() == 0: // the server has lowered its limit since
		return cl.await(ctx, c)
	}
	return nil
}

// makeWaiting returns waiting, after making it if it is nil.
func (c *Conn) makeWaiting() *waiting {
	if c.waiting == nil {
		c.waiting = new(waiting)
	}
	return c.waiting
}

// grant opens the streams that have waited for room, and reports that there is room.
func (clientSide) grant(c *Conn) {
	w := c.waiting
	if w.roomless && c.isRoomyLocked() {
		w.roomless = false
		c.changedLocked(Roomy)
	}
	for len(w.openers) > 0 && (c.roomLocked() > 0 || !c.takesStreamsLocked()) {
		w.grant()
	}
}

// countReset is for a stream that is reset before its end: see ClientConfig.PingResets.
func (clientSide) countReset(s *Stream) {
	c := s.conn
	if s.extras.client.heard != c.heard || !c.takesStreamsLocked() {
		return
	}
	end := c.clock.makeEnding()
	if end.ponged {
		return
	}
	if end.resets++; end.resets == 1 {
		c.core.Ping(resetPing)
	}
}

// waiting has what waits until streams of the connection have ended.
type waiting struct {
	unstarted []*Stream // of a server, until handlers have returned
	openers   []*opener // of a client, until there is room for their streams
	granted   int       // openers that have room, and have not used it yet
	reserved  int       // streams of a client that were reserved, and have not been opened
	roomless  bool      // Reserve has found no room
}

// nextUnstarted takes out the stream that has waited longest, or returns nil.
func (w *waiting) nextUnstarted() *Stream {
	if w == nil || len(w.unstarted) == 0 {
		return nil
	}
	s := w.unstarted[0]
	w.unstarted[0] = nil
	w.unstarted = w.unstarted[1:]
	return s
}

// reservations returns how many reservations Open has not used.
func (w *waiting) reservations() int {
	if w == nil {
		return 0
	}
	return w.reserved
}

// unreserve uses a reservation up, if there is one.
func (w *waiting) unreserve() {
	if w.reservations() > 0 {
		w.reserved--
	}
}

// taken returns how much room is kept for others than a new call of Open.
func (w *waiting) taken() int {
	if w == nil {
		return 0
	}
	return w.granted + w.reserved
}

func (w *waiting) hasOpeners() bool { return w != nil && len(w.openers) > 0 }

// An opener is a call of Open that waits for room.
type opener struct {
	granted chan struct{} // closed when there is room, which is kept for it, or won't be any more
	has     bool          // it was granted
}

// enter adds an opener.
func (w *waiting) enter() *opener {
	o := &opener{granted: make(chan struct{})}
	w.openers = append(w.openers, o)
	return o
}

// grant lets the first opener go on.
func (w *waiting) grant() {
	o := w.openers[0]
	w.openers = w.openers[1:]
	o.has = true
	w.granted++
	close(o.granted)
}

// leave is for an opener that goes on: it takes its room, or gives up.
func (w *waiting) leave(o *opener) {
	if o.has {
		w.granted--
		return
	}
	w.openers = slices.DeleteFunc(w.openers, func(at *opener) bool { return at == o })
}
