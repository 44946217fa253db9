package h2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/seam"
)

// Quota returns how many streams can be opened now, or 0 if unread bodies have taken most of
// ConnWindow: the answers of more streams might wait until those are read.
func (c *Conn) Quota() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isChokedLocked() {
		return 0
	}
	return c.roomLocked()
}

// Reserve reserves a stream on a client's connection. From then on the connection is not idle: neither
// IdleTimeout nor GoAwayIfIdle ends it. Reserve reports false if Quota is 0; once that has changed,
// State is called with Roomy, or with Leaving. The next Open that succeeds uses up the reservation, so
// reserve either all streams of a connection or none. A call that doesn't open its stream must call
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
	if c.waiting.unreserve(); c.waiting.reserved == 0 {
		c.setAlarmLocked() // IdleTimeout counts again
	}
}

// Reserved returns how many reservations Open has not used.
func (c *Conn) Reserved() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.reserved
}

func (c *Conn) isRoomyLocked() bool {
	return c.roomLocked() > 0 && !c.isChokedLocked() && len(c.waiting.openers) == 0
}

// isChokedLocked reports whether unread bodies have taken three quarters of ConnWindow.
func (c *Conn) isChokedLocked() bool {
	return c.core.Unread() > int(c.limits.ConnWindowBytes)/4*3
}

// roomLocked is Quota without streams that are reserved, or kept for calls of Open that have waited.
func (c *Conn) roomLocked() int {
	if !c.takesStreamsLocked() {
		return 0
	}
	return max(0, c.core.Quota()-c.waiting.granted-c.waiting.reserved-c.clock.ends.resets)
}

// TakesStreams reports whether more streams can be opened, now or when others have ended.
func (c *Conn) TakesStreams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takesStreamsLocked()
}

func (c *Conn) takesStreamsLocked() bool {
	return c.phase == alive && c.core.TakesStreams() && c.clock.ends.cut == nil && !c.clock.ends.hungUp
}

// Answered reports whether the server has answered a request on a client's connection.
func (c *Conn) Answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// look checks whether the server has hung up, before the first stream after a quiet time is opened. Some
// servers hang up without GOAWAY, right after an answer or after a while, and a stream that is sent then
// may not be tried again. The reader, which is about to find the end, takes what came before it. look
// releases mu while it asks the kernel.
func (clientSide) look(c *Conn) {
	if c.open > 0 || !c.takesStreamsLocked() {
		return // other streams would be lost as well
	}
	c.mu.Unlock()
	hungUp := seam.HungUp(c.below.Socket())
	c.mu.Lock()
	if hungUp && c.takesStreamsLocked() {
		c.clock.makeEnding().hungUp = true
		c.changedLocked(Leaving)
	}
}

// Open opens a stream on a client's connection. It sends the header of a request: the pseudo-header
// fields of r that are not empty, :authority also if HasAuthority is set, and r.Fields. Then it sends
// m, whose Status and Fields are not used. s must be new, and must be closed in the end: see
// [Stream.Close]. Open keeps neither r nor m.
//
// If the connection has as many streams as the server allows, Open waits until ctx ends; with a nil
// ctx, or a reservation, it returns ErrNoQuota. After that it waits as Send does if m has a body, and
// ctx has no effect. It fails with ErrLeaving, with ErrNoQuota, with ctx's error, if a field is not
// valid, or with an error of Send. Only in the last case was the stream opened.
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
	if err := c.core.Begin(&s.core, (*http2.Request)(r), r.Fields, bare && m.End); err != nil {
		s.conn, s.cond = nil, nil
		return err
	}
	c.waiting.unreserve()
	if c.openedLocked() && c.config.PingAfter > 0 {
		c.clock.heardAt = c.below.Now() // silence counts from here
		c.setAlarmLocked()
	}
	m.Fields = nil
	if !bare {
		if err := (outgoing{s}).messageLocked(&m); err != nil {
			return err
		}
	}
	if !m.Hold {
		side.lend(s)
	}
	return nil
}

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

// await waits until a stream may be opened. It releases mu while it waits. Calls go in the order in
// which they came.
func (cl clientSide) await(ctx context.Context, c *Conn) error {
	switch {
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.waiting.reserved > 0 && c.core.Quota() == 0: // the server has lowered its limit since
		return ErrNoQuota
	case c.waiting.reserved > 0:
		return nil
	case ctx == nil && c.isChokedLocked():
		return ErrNoQuota
	case c.roomLocked() > 0 && len(c.waiting.openers) == 0:
		return nil
	case ctx == nil:
		return ErrNoQuota
	}
	o := c.makeWaiting().enter()
	c.workers.counts.Add(countStalls, 1)
	c.unlock()
	select {
	case <-o:
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.waiting.leave(o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.core.Quota() == 0: // the server has lowered its limit since
		return cl.await(ctx, c)
	}
	return nil
}

// grant lets calls of Open that have waited for room go on, and reports Roomy.
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

// clientSide is the side of a Client. Its callers send. They must not wait for the server, since a
// context may end, and must not lose an answer that has come when the server takes no more.
type clientSide struct{}

func (cl clientSide) settle(c *Conn) {
	n := int32(c.core.Streams())
	if c.phase != alive {
		n = 0 // they have ended, though the core has them still
	}
	if ended := c.open - n; ended > 0 {
		c.workers.counts.Add(countServed, int64(ended)) // or lost: see ClientStats
		if c.open = n; n == 0 {
			c.quietLocked()
		}
	}
	switch {
	case c.open > 0 || c.phase != alive:
	case c.clock.ends.cut != nil:
		c.giveUpLocked()
	case c.core.Leaving():
		c.hangUpIfDoneLocked()
	case !c.core.TakesStreams():
		c.leaveLocked()
	}
	cl.grant(c)
}

func (cl clientSide) sent(s *Stream) { cl.lend(s) }

// lend first lets other callers put into the output what they are about to send.
func (clientSide) lend(s *Stream) {
	c := s.conn
	if !c.beginFlushLocked() {
		return
	}
	if c.open > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.flushAllLocked(s)
}

// maySend rarely has to ask the kernel: the answer holds until that many bytes were sent. If there is
// no space, a worker writes, and callers wait for their streams. In memory, where there is no kernel,
// workers always write.
func (clientSide) maySend(c *Conn, bytes int) bool {
	if len(c.core.Output())+bytes > int(c.credit) {
		c.mu.Unlock()
		space := seam.SendRoom(c.below.Socket())
		c.mu.Lock()
		c.credit = int32(min(space, creditMost))
	}
	return len(c.core.Output())+bytes <= int(c.credit)
}

// creditMost is how many bytes may be sent before the kernel is asked again.
const creditMost = 1 << 20

// writeFailed is for a connection that the server has ended or reset, so nothing can be sent any more.
// The reader reads on, since an answer may be there, and ends the connection at the end of the server's
// bytes, or after lingerTime. grpc-go's client reads on as well.
func (clientSide) writeFailed(c *Conn, err error) {
	if c.phase != alive {
		c.failLocked(err)
		return
	}
	end := c.clock.makeEnding()
	end.cut, end.cutAt = err, c.below.Now()
	c.drop()
	for c.core.Senders() > 0 {
		s := c.core.Sender().User.(*Stream)
		s.unqueueLocked()
		s.wakeLocked()
	}
	c.changedLocked(Leaving)
	c.setAlarmLocked()
}

func (cl clientSide) ended(s *Stream, first bool) {
	if first {
		if e, ok := s.err.(*StreamError); ok && !e.Remote && e.Code == Cancel && s.conn.config.pingResets {
			cl.countReset(s)
		}
		s.unqueueLocked()
		s.wakeLocked()
		s.conn.workers.counts.Add(countLost, 1)
	}
}

func (clientSide) hangUp(c *Conn) { c.changedLocked(Leaving) }

func (cl clientSide) close(c *Conn, why *ConnError) {
	atOnce := why == nil
	if atOnce {
		why = &ConnError{Code: NoError, Err: errors.New("")}
	}
	if c.abortLocked(why) {
		c.clock.makeEnding().abrupt = true
		if cl.maySend(c, 0) { // else the worker of hangUpLocked sends it
			c.flushLocked()
		}
	}
	if atOnce && !c.clock.ends.abrupt {
		c.failLocked(net.ErrClosed)
	}
}
