package pool

import (
	"container/list"
	"context"
	"errors"
	"time"
)

// Waiter is a call that waits for a connection. It waits for whatever comes first: a stream on a
// connection that is shared, an idle connection, a dial of its own. It gets no dial while
// MaxConnsPerHost and the like forbid that.
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
	place  *list.Element // in host.waiters; nil: it has something, or wants nothing any more
	orphan *time.Timer   // ends the dial that goes on when the call doesn't wait any more

	result chan dialed
}

// dialed is what a waiter gets: one of the two.
type dialed struct {
	conn *Conn
	err  error
}

// The errors of dials without a result.
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

// dialed ends a dial. Its connection goes to w, or to another call if w has got another meanwhile.
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
		c.putOrClose()
	}
}

// deliverLocked gives w what it waits for, and reports false if it no longer does. One that is
// shared has a stream reserved for it.
func (w *Waiter) deliverLocked(d dialed) bool {
	if w.place == nil {
		return false
	}
	w.removeLocked()
	w.result <- d
	return true
}

// removeLocked ends the wait. The dial goes on: another call may need the connection.
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

// Wait returns the connection that w gets. It fails with the cause of ctx if that ends first.
func (w *Waiter) Wait(ctx context.Context) (*Conn, error) {
	select {
	case d := <-w.result:
		return d.conn, d.err
	case <-ctx.Done():
		w.leave()
		return nil, context.Cause(ctx)
	}
}

// leave is for a call that wants nothing any more.
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
