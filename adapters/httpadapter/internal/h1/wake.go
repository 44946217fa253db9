package h1

import (
	"errors"
	"net"
	"os"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// This file has the part of the loop: it calls back when a connection has something to read, or its time
// is up. The methods never block.

// waker is a Conn as the engine's handler. (The OnReadable of netConn is
// percore.Conn's, for hijacked connections.)
type waker Conn

// OnReadable implements [percore.ReadableHandler].
func (w *waker) OnReadable(err error) { (*Conn)(w).woken(err) }

// OffLoop allows a worker that visits a loop to call OnReadable, which may be called on any goroutine
// without locks, and at any time.
func (w *waker) OffLoop() {}

// arm makes the engine call woken when there is something to read.
func (c *Conn) arm() {
	switch err := c.armCallback(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.woken(os.ErrDeadlineExceeded)
	default:
		c.woken(net.ErrClosed)
	}
}

// armCallback arms the callback, unless it is armed already, as it may be: see
// turn.disarm.
func (c *Conn) armCallback() error { return serving.Arm(c.Conn, (*waker)(c)) }

// armAnew is arm with the deadline that counts. The engine's may be another one, which has passed: a
// handler's goroutine may set its deadline at the same time as the worker.
func (c *Conn) armAnew() {
	c.mu.Lock()
	c.restoreReadDeadline()
	c.mu.Unlock()
	c.arm()
}

// woken ends a wait of the states fresh and parked, and notifies the request under way that its
// client has gone. It runs on the engine's loop, or on a worker that visits it: calls that may block
// are made elsewhere.
func (c *Conn) woken(err error) {
	x := c.current.Load()
	if x == nil || !c.stream().notice(x, err) {
		c.wakeAfter(x, err)
	}
}

// wakeAfter is woken after x, the request under way, was notified, if there is one.
func (c *Conn) wakeAfter(x *watched, err error) {
	if _, ok := c.change(connState.notify); ok {
		c.watchNext(x, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch st := c.state(); {
	case st == stateTakenOut:
		c.change(connState.disarm)
	case st != stateFresh && st != stateParked: // closed by now
	case c.isTLS() && !c.ext.shaken:
		// If err says that time is up the handshake fails at once, which is logged.
		c.change(connState.handshake)
		c.beginHandshake()
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.real.get().passed():
		// A deadline that a handler has set ended the wait, or was about to, before the request was
		// answered. It is gone.
		go c.armAnew()
	case c.kept.hasBytes() && (err != nil || seam.AtEnd(c.Conn)):
		c.serveLocked() // a header that was cut off is answered
	case err != nil:
		// IdleTimeout, or ReadHeaderTimeout without a byte; or the percore.Conn was closed
		// behind our back.
		go c.hangUp()
	case st == stateParked && !c.isTLS() && seam.AtEnd(c.Conn):
		// The client has gone.
		go c.hangUp()
	default:
		c.serveLocked()
	}
}

// serveLocked gives a connection that waits to a worker.
func (c *Conn) serveLocked() {
	c.change(connState.serve)
	c.queue.workers.Serve(c)
}

// watchNext is for a callback that came during x and was noted after the next request had begun, if one
// has: that takes the callback for armed, since a worker that begins a request arms it only if it finds
// it noted. The worker makes the request known first, and asks then, so one of the two sees the other.
func (c *Conn) watchNext(x *watched, err error) {
	if next := c.current.Load(); next != nil && next != x {
		c.stream().notice(next, err)
	}
}
