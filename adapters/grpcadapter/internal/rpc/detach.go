package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/percore/percore/adapters/h2"
)

// This file implements calls that go on without a goroutine after their method has returned.
//
//	detached  returned  meaning                                       leaves by
//	nil       false     the call ends when its method returns         Detach; the method's return
//	set       false     it goes on if the method, and all             the method's return
//	                    interceptors, return without an error
//	set       true      it goes on, and ends by Detached.End. If the  (final)
//	                    method has failed it has ended
//	nil       true      it has ended                                  (final)
//
// Both are guarded by call.mu, and immutable once returned is set.

// An Owner owns a detached call.
type Owner interface {
	// Work is called when the method has returned, and for each Resume after that. It may block.
	Work()

	// Gone is called when the call has ended early, with a status, before End. It must not block, or call
	// methods of Detached.
	Gone(err error)
}

// Detached is a call that is detached.
type Detached struct {
	call  *call
	owner Owner
	begin time.Time // for the stats handler; zero without
	ends  bool      // End was called; guarded by call.mu
}

var (
	// ErrDetached is the error of a second Detach.
	ErrDetached = errors.New("grpcadapter: Detach was called a second time for this call")

	// ErrReturned is the error of a Detach that is too late.
	ErrReturned = errors.New("grpcadapter: Detach was called when the method had returned")
)

// Detach makes the call of a context go on when its method has returned, as d. It reports false, without
// an error, if the method must not return before the call is to end: it is another server's, or
// net/http's, has one answer, or its interceptors wait for the end.
func Detach(ctx context.Context, d *Detached, owner Owner) (ok bool, err error) {
	c, ok := ctx.Value(callKey).(*call)
	if !ok || c.web != nil || c.from.isUnary() {
		return false, nil
	}
	if s := c.conn.server; s.stream != nil && !s.config.DetachInterceptors {
		return false, nil
	}
	c.mu.Lock()
	switch {
	case c.returned:
		err = ErrReturned
	case c.detached != nil:
		err = ErrDetached
	default:
		d.call, d.owner = c, owner
		c.detached = d
	}
	reason := c.err
	c.mu.Unlock()
	if err == nil && reason != nil { // the call has ended before it had an owner
		owner.Gone(contextError(reason))
	}
	return err == nil, err
}

// Cut resets the stream of a context's call, so that a SendMsg that blocks fails. It reports false if it
// can't, since another server has the call.
func Cut(ctx context.Context) bool {
	c, ok := ctx.Value(callKey).(*call)
	if ok {
		c.carrier().Reset(h2.Cancel)
	}
	return ok
}

// methodReturned records that the method has returned err to the server, and reports whether the call
// goes on.
func (c *call) methodReturned(err error) (goesOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = true
	if c.detached == nil || err != nil {
		return false
	}
	c.stream.Detach()
	c.goesOn = true
	return true
}

// owner returns the owner of the call; nil if the call isn't detached, or the owner ends it.
func (c *call) owner() Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.detached == nil || c.detached.ends {
		return nil
	}
	return c.detached.owner
}

// tellOwner reports the end of a detached call's context to its owner.
func (c *call) tellOwner(reason error) {
	if o := c.owner(); o != nil {
		o.Gone(contextError(reason))
	}
}

// Resume implements [h2.Resumer].
func (c *call) Resume() { c.detached.owner.Work() }

// Context returns the context of the call.
func (d *Detached) Context() context.Context { return (*callContext)(d.call) }

// Resume makes a goroutine call the owner's Work. It doesn't block.
func (d *Detached) Resume() { d.call.stream.Resume() }

// Cut makes a SendMsg that blocks fail.
func (d *Detached) Cut() { d.call.stream.Reset(h2.Cancel) }

// End ends a call whose method has returned, with the status of err. It may block. If the call has
// ended before all was sent, End returns an error.
func (d *Detached) End(err error) error {
	c := d.call
	if !c.goesOn { // the method has failed, and ended the call
		return nil
	}
	c.mu.Lock()
	d.ends = true
	c.mu.Unlock()
	st, err := resultStatus(err)
	failed := c.sendStatus(st, true)
	if sh := c.stats(); sh != nil {
		reportEnd(c.ctx, sh, d.begin, err)
	}
	d.Drop()
	c.stream.Finish()
	return failed
}

// Drop is End without a status, for Work that panics or ends its goroutine: h2 ends the stream then.
func (d *Detached) Drop() {
	d.call.count(countDetached, -1)
	d.call.finish()
}
