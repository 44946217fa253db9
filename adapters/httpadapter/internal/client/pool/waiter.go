package pool

import (
	"container/list"
	"context"
	"errors"
	"time"
)

// Waiter is a call that waits for a connection. It takes what comes first: a stream on a shared
// connection, an idle connection, or its own dial. It gets no dial while MaxConnsPerHost or another
// limit forbids it.
//
//	place  dial       meaning                          leaves by
//	yes    none       it waits                         unlock: dial; deliverLocked, leave: place
//	yes    under way  it waits                         deliverLocked, leave: place
//	nil    under way  another call may get the result  the dial's end, which comes within orphanMax
//	nil    none       it is over
type Waiter struct {
	host   *Host
	ctx    context.Context // of the dial
	cancel context.CancelFunc

	// guarded by host.mu
	place  *list.Element // in host.waiters; nil if the call got its result or has left
	orphan *time.Timer   // ends the dial if it goes on after the call has stopped waiting

	result chan dialed
}

// dialed is the result of a wait: one of the fields is set.
type dialed struct {
	conn *Conn
	err  error
}

// Errors of dials that gave no result.
var (
	errNotNeeded = errors.New("no call waits for the connection")
	errDialEnded = errors.New("net/http: a function that dialing has called has ended the goroutine")
)

// dial dials for w.
func (w *Waiter) dial() {
	h := w.host
	begun := time.Now()
	var c *Conn
	err := errDialEnded
	defer func() { w.dialed(c, err, time.Since(begun)) }()
	h.mu.Lock()
	needed := w.place != nil
	h.mu.Unlock()
	if !needed {
		err = errNotNeeded
		return
	}
	conn := &Conn{Host: h}
	if conn.Link, err = h.pool.Dial(w.ctx, h); err == nil {
		c = conn
	}
}

// dialed ends a dial. Its connection goes to w, or to another call if w already has a connection.
func (w *Waiter) dialed(c *Conn, err error, took time.Duration) {
	h := w.host
	w.cancel()
	connected := err == nil
	if connected {
		h.Count.Add(Conns, 1)
		err = h.pool.Share(c)
	}
	h.mu.Lock()
	if !connected {
		h.open--
	} // else conn.end has done it, or will
	if delete(h.dials, w); len(h.dials) == 0 {
		h.dials = nil // a map takes 200 bytes, and most hosts dial rarely
	}
	if w.orphan != nil {
		w.orphan.Stop()
	}
	h.Count.Add(Dialing, -1)
	if err == nil || w.place != nil { // else it was ended because of another connection, perhaps
		h.took = 0 // unless shareAndUnlock sets it
	}
	if err == nil && c.Streams != nil {
		h.shareAndUnlock(c, w, took)
		return
	}
	delivered := w.deliverLocked(dialed{c, err})
	h.unlock()
	if err == nil && !delivered {
		_ = c.Put()
	}
}

// deliverLocked gives d to w, and reports false if w no longer waits. A shared connection has a stream
// reserved for w.
func (w *Waiter) deliverLocked(d dialed) bool {
	if w.place == nil {
		return false
	}
	w.removeLocked()
	w.result <- d
	return true
}

// removeLocked ends the wait. The dial goes on, since another call may need the connection.
func (w *Waiter) removeLocked() {
	h := w.host
	if h.undialed == w.place {
		h.undialed = w.place.Next()
	}
	h.waiters.Remove(w.place)
	w.place = nil
	h.waiting.Add(-1)
	h.Count.Add(Waiting, -1)
	if _, ok := h.dials[w]; ok {
		w.orphan = time.AfterFunc(orphanMax, w.cancel)
	}
}

// Wait waits for a connection and returns it. If ctx ends first, Wait fails with its cause.
func (w *Waiter) Wait(ctx context.Context) (*Conn, error) {
	select {
	case d := <-w.result:
		return d.conn, d.err
	case <-ctx.Done():
		w.leave()
		return nil, context.Cause(ctx)
	}
}

// leave gives up the wait of a call.
func (w *Waiter) leave() {
	h := w.host
	h.mu.Lock()
	waits := w.place != nil
	if waits {
		w.removeLocked()
	}
	h.unlock()
	if !waits {
		if d := <-w.result; d.conn != nil {
			d.conn.GiveBack()
		}
	}
}
