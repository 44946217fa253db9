package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
)

// This file is about calls that are cut off: at their deadline, or when the context of a tap ends. The
// client gets a status at once, even if the handler goes on: it may not know of the deadline, which a
// proxy has shortened, and would take a reset for a call that was cancelled.

// The values of call.late.
const (
	lateNone = iota
	lateDue
	lateSent
)

// watchTime makes the call end at its deadline, and with its parent.
func (c *call) watchTime() {
	var timer h2.Timer
	if !c.deadline.IsZero() {
		timer = c.carrier().afterFunc(max(time.Until(c.deadline), 1), func() { c.cutOff(context.DeadlineExceeded) })
	}
	if parent := c.parent(); parent.Done() != nil {
		stop := context.AfterFunc(parent, c.parentEnded)
		timer = &parentTimer{timer, stop}
	}
	c.timer = timer
}

// parentTimer is a timer, or nil, and what watches a call's parent. One field of call has both: a larger
// call would take 64 bytes more.
type parentTimer struct {
	timer h2.Timer
	stop  func() bool
}

// Stop implements [h2.Timer].
func (t *parentTimer) Stop() bool {
	if t.timer != nil {
		t.timer.Stop()
	}
	return t.stop()
}

// parentEnded is called when the context of a tap or of a request ends. The end of a request's means
// that the client has gone, unless it is a deadline.
func (c *call) parentEnded() {
	if err := c.parent().Err(); c.web == nil || err == context.DeadlineExceeded {
		c.cutOff(err)
	} else {
		c.web.Reset(h2.Cancel)
	}
}

// cutOff ends a call that isn't done, and sends its status. It doesn't block, since it may run on a
// loop.
func (c *call) cutOff(reason error) {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return
	}
	c.done, c.code = true, status.FromContextError(reason).Code()
	c.late.Store(lateDue)                  // before the handler learns of it, and returns
	sends := c.web != nil && c.isSending() // before the handler is, with the status
	c.endLocked(reason)
	c.mu.Unlock()
	switch {
	case c.web != nil: // the trailers of net/http go when the handler has returned
		c.web.interrupt(sends)
	case c.stats() != nil: // which may block
		c.stream.Hurry()
		go c.sendLate()
	default:
		c.stream.Hurry()
		c.sendLate()
	}
	c.tellOwner(reason)
}

// sendLate sends the late status. If another goroutine is sending, that goroutine sends the status.
func (c *call) sendLate() {
	for c.late.Load() == lateDue && c.sending.TryLock() {
		c.sendLateLocked()
		c.sending.Unlock()
	}
}

// doneSending releases sending.
func (c *call) doneSending() {
	c.sending.Unlock()
	c.sendLate() // which may have come due since
}

// sendLateLocked sends the late status if it is due.
func (c *call) sendLateLocked() {
	if !c.late.CompareAndSwap(lateDue, lateSent) {
		return
	}
	c.mu.Lock()
	st := status.FromContextError(c.err)
	c.mu.Unlock()
	if c.sendTrailers(st, false, true) == nil && c.web == nil {
		c.stream.Reset(h2.NoError) // the rest of the request is not wanted
	}
}
