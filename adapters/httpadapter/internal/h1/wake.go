package h1

import (
	"errors"
	"os"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// This file is for the loop, which calls back when a connection has something to read, or its time is
// up. The methods never block.

// waker is a Conn as the engine's handler. (netConn's OnReadable is percore.Conn's.)
type waker Conn

// OnReadable implements [percore.ReadableHandler]. It ends a wait of the states fresh and parked, and
// tells the request under way that its client has gone. It runs on the engine's loop, or on a worker
// that visits it.
func (w *waker) OnReadable(err error) {
	x := w.current.Load()
	if x == nil || !(*Conn)(w).transport().notice(x, err) {
		w.after(x, err)
	}
}

// OffLoop allows a worker that visits a loop to call OnReadable.
func (w *waker) OffLoop() {}

// after is OnReadable after x, the request under way if there is one, has taken notice.
func (w *waker) after(x *watched, err error) {
	c := (*Conn)(w)
	if _, ok := c.change(connState.notify); ok {
		w.watchNext(x, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch st := c.state(); {
	case st == stateTakenOut:
		c.change(connState.disarm)
	case st != stateFresh && st != stateParked: // closed by now
	case c.TLS() != nil && !c.ext.shaken:
		// If time is up the handshake fails at once, which is logged.
		c.change(connState.handshake)
		(*handshaker)(c).begin()
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.real.get().passed():
		// A deadline of the handler's ended the wait, or was about to, before its request was answered. It
		// doesn't count any more.
		go w.armAnew()
	case c.kept != nil && (err != nil || seam.AtEnd(c.Conn)):
		c.serveLocked() // a header that was cut off is answered
	case err != nil:
		// IdleTimeout, or ReadHeaderTimeout without a byte, or the percore.Conn was closed.
		go c.closeIf(isKept)
	case st == stateParked && c.TLS() == nil && seam.AtEnd(c.Conn):
		go c.closeIf(isKept) // the client has gone
	default:
		c.serveLocked()
	}
}

// serveLocked gives a connection that has waited, or whose handshake is over, to a worker.
func (c *Conn) serveLocked() {
	c.change(connState.serve)
	c.queue.workers.Serve(c)
}

// watchNext is for a callback that came during x but is noted only now. If the next request has begun it
// takes the callback for armed, since a worker arms it only if it finds it noted. The worker stores the
// request before it looks, so one of the two sees the other.
func (w *waker) watchNext(x *watched, err error) {
	c := (*Conn)(w)
	if next := c.current.Load(); next != nil && next != x {
		c.transport().notice(next, err)
	}
}

// arm arms the callback. If the connection has ended, or its deadline passed, it is as if the callback
// had come.
func (c *Conn) arm() {
	if err := c.armCallback(); err != nil {
		(*waker)(c).OnReadable(err)
	}
}

// armCallback arms the callback, unless it is armed already.
func (c *Conn) armCallback() error { return serving.Arm(c.Conn, (*waker)(c)) }

// armAnew is arm with the deadline that counts. The engine may have another, which has passed: a
// handler's goroutine may set one at the same time as the worker.
func (w *waker) armAnew() {
	c := (*Conn)(w)
	c.mu.Lock()
	c.restoreReadDeadline()
	c.mu.Unlock()
	c.arm()
}
