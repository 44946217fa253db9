package reactor

import (
	"fmt"
	"net"
	"runtime/debug"

	"github.com/percore/percore/internal/monotime"
)

// Close closes the connection once the socket has taken everything written. It doesn't wait for that.
// Data isn't called any more, and later writes fail. Close fails with a [net.OpError] of
// [net.ErrClosed] if Close or Abort was already called, or the connection has ended. The handler's
// Close is called on the loop, with nil, when the functions of Go have run.
//
// The connection is closed once the peer has also ended its stream, or after half a second. Bytes that
// the peer sends until then are read and dropped. Otherwise they would make the kernel reset the
// connection, and the peer might lose the last bytes sent to it (RFC 1122, section 4.2.2.13). A peer
// that takes nothing for a minute is cut off, as with [WriteIdleTimeout], unless that or WriteTimeout
// is set.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.Load()&(askClose|askEnd) != 0 && c.refusing {
		return c.sock.opError("close", net.ErrClosed)
	}
	c.refusing = true
	c.endLocked(askEnd, nil)
	return nil
}

// Abort closes the connection at once, even after a Close that still has bytes to send. It sends as
// much as the socket takes at once, and drops the rest. If bytes are dropped, the connection is reset,
// so that the peer sees an error and doesn't take a part of the stream for all of it (a unix socket
// can't be reset: there the peer sees the end). Otherwise the kernel still sends what the socket has
// taken, unless it resets the connection because the peer has sent bytes that were not read. To reset
// it in any case, call SetLinger(0) first. Timeouts, a refused write and the server's Close end a
// connection in the same way. Abort fails as Close does, but not because of an earlier Close, and the
// handler's Close is called as after Close.
func (c *Conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.Load()&askClose != 0 || c.finished {
		return c.sock.opError("close", net.ErrClosed)
	}
	c.endLocked(askClose, nil)
	return nil
}

// CloseWrite ends our stream once everything written is sent: the peer reads its end. Later writes
// fail. Data is called as before. CloseWrite fails as Close does.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusing {
		return c.sock.opError("close", net.ErrClosed)
	}
	c.refusing = true
	c.asked.Or(askShut)
	c.loop.remind(c, false)
	return nil
}

// end makes the loop close the connection for a reason: at once (askClose), or when everything is
// written (askEnd). The first askClose replaces a reason of askEnd. Of two reasons of askEnd, Close's
// counts, or else the first.
func (c *Conn) end(how uint32, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(how, why)
}

func (c *Conn) endLocked(how uint32, why error) {
	asked := c.asked.Load()
	if asked&askClose != 0 || how&asked&askEnd != 0 && why != nil {
		return
	}
	if why != nil || c.more != nil {
		c.extrasLocked().why = why
	}
	if why == ErrWriteBufferFull {
		c.more.dropped++ // the peer must not take the earlier bytes for all
	}
	c.asked.Or(how)
	if how == askClose || why != ErrServerClosed {
		(*functions)(c).lostLocked(why, false)
	}
	if how == askClose {
		c.refusing = true
	}
	c.loop.remind(c, false)
}

// settle does, on the loop, what was asked for and can be done already.
func (c *Conn) settle() {
	if c.phase != open && c.phase != ending {
		return
	}
	asked := c.asked.Load()
	if asked&(askClose|askEnd) != 0 {
		c.phase = ending
		(*input)(c).drop()
		if c.hangUp(asked) {
			c.finish()
		} else {
			(*clock)(c).limitEnding()
		}
	} else if asked&askShut != 0 && !c.shut && (*output)(c).allSent() {
		c.shut = true
		if c.isLayered {
			c.endLayer(true)
		} else if err := c.sock.conn.CloseWrite(); err != nil {
			c.end(askClose, err)
		}
	}
}

// hangUp closes the socket if it is time to, and reports whether it is closed.
func (c *Conn) hangUp(asked uint32) bool {
	if c.hungUp {
		return true
	}
	now := asked&askClose != 0
	if c.isLayered && !c.endLayer(now) {
		return false
	}
	if !c.stopWriting(now) || !now && c.lingers() {
		return false
	}
	c.hungUp = true
	(*clock)(c).stop()
	if c.lingering {
		c.more.linger.Stop()
	}
	c.loop.engine.Retain() // or the loop might end with its last socket, while functions of Go run
	dropped := 0
	if c.more != nil {
		dropped = c.more.dropped
	}
	_ = c.sock.close(dropped)
	return true
}

// refuseLocked makes writes fail from now on. Unless now is set it reports false, and does nothing,
// while bytes wait for the peer, or functions of Go or Writable may still write.
func (c *Conn) refuseLocked(now bool) bool {
	if !now && (c.unsent != nil || c.sending || !c.refusing && c.mayWriteLocked()) {
		return false
	}
	c.refusing = true
	return true
}

// stopWriting is refuseLocked, and drops what is left.
func (c *Conn) stopWriting(now bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refuseLocked(now) {
		return false
	}
	(*output)(c).awaitSenderLocked() // it may find that it has to drop bytes
	(*output)(c).dropLocked(0)
	return true
}

// mayWriteLocked reports whether the program may still have something to write: Writable is due, a
// function of Go waits or runs, or the connection is held.
func (c *Conn) mayWriteLocked() bool {
	return c.asked.Load()&(askTell|askTellNow) != 0 || (*functions)(c).hasAnyLocked() || c.heldLocked()
}

// finish calls the handler's Close, last, unless functions of Go are still running.
func (c *Conn) finish() {
	c.mu.Lock()
	if (*functions)(c).hasAnyLocked() {
		c.mu.Unlock()
		return
	}
	c.finished = true
	var why error
	if c.more != nil {
		why = c.more.why
		if c.more.cancel != nil {
			c.more.cancel(why) // of a Shutdown, which let the functions go on
		}
	}
	c.mu.Unlock()
	c.phase = closed
	c.loop.remove(c)
	defer c.loop.engine.Release()
	defer c.loop.server.left()
	defer c.loop.counts.Add(countClosed+counter(reasonOf(why)), 1)
	c.call("Close", func() { c.loop.handler.Close(c, why) })
}

// call calls a method of the handler, or another function of the program, on the loop.
func (c *Conn) call(name string, f func()) {
	start := monotime.Now()
	returned := false
	defer func() {
		if !returned {
			c.failed(name, recover())
		}
	}()
	f()
	returned = true
	c.loop.timed(c, name, start)
}

// panicked closes the connection after a function of the program has panicked or called Goexit.
func (c *Conn) panicked(call string, v any) {
	c.loop.server.config.Log.Error("reactor: a handler panicked; its connection is closed",
		"handler", c.loop.name, "call", call, "peer", c.RemoteAddr(), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	c.end(askClose, &PanicError{v})
}

// failed is panicked for a function on the loop.
func (c *Conn) failed(call string, v any) {
	c.panicked(call, v)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.collecting { // leave doesn't come after runtime.Goexit, and the loop collects for others then
		(*output)(c).sendCollectedLocked()
	}
}
