package h2

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/percore/percore/adapters/h2/internal/below"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/workers"
)

// A Conn is a connection of a Server or a Client. All methods are safe for concurrent use, and only
// Open blocks.
//
// # Phases
//
//	phase      meaning                                     leaves by
//	alive      frames are read and answered                hangUp: hanging; fail: closed
//	hanging    GOAWAY is in the output, and no stream is   the output is sent: lingering; fail: closed
//	           left; what comes is discarded
//	lingering  all is sent and our side of the socket has  the client's end, an error, lingerTime,
//	           ended; what comes is discarded, so that     too much to discard: closed
//	           the kernel answers it by no reset, which
//	           could take GOAWAY away from the client
//	closed     the socket is closed, or about to be        (final)
//
// # The reader
//
// The reader is the worker that has the connection's turn, or the goroutine that reads if no loop
// watches the connection. A turn ends by arming the engine's callback. From then on the worker of the
// next turn is the reader.
type Conn struct {
	// immutable
	*setup
	workers *workerSet
	below   below.Conn
	user    any

	// owned by the reader
	unread    *[]byte // bytes read before the first turn; nil: none, or they were received
	discarded int32   // bytes, behind the end

	// guarded by mu; here they fill the space behind discarded
	phase    phase
	draining bool   // it is counted as draining
	parting  uint8  // streams whose reset waits: see Stream.partLocked
	queued   int32  // streams that are in the workers' queue
	open     int32  // streams that were opened and have not been served yet
	detached int32  // of these, streams that are detached
	rested   bool   // the memory that only a busy connection needs is gone: see clock
	answered bool   // of a client: see Answered
	heard    uint16 // counts frames of streams; only whether it has changed matters

	prev, next *Conn // guarded by server.mu

	telling sync.Mutex // held while ConnState is called; before mu

	mu sync.Mutex

	// guarded by mu, except that the core's Parse is the reader's
	output
	clock
	calls   calls
	taking  *taking    // nil: nothing is written
	err     *ConnError // why it has ended, or is about to
	waiting *waiting   // see makeWaiting
}

// setup is what the connections of a Server or of a Client have in common. It never changes.
type setup struct {
	side    side
	handler Handler                // nil: it is a Client's
	states  func(*Conn, ConnState) // of a ConnHandler, or ClientConfig.State; or nil
	pings   func(*Conn, bool)      // of a PingHandler, or nil
	config  Config
	limits  *http2.Config

	errClosed error       // why a connection has ended that was to end
	forget    func(*Conn) // is called when a connection has ended, and Closed was reported
}

// ruleOf returns the rule of HTTP/2 that a server has broken, if a client's stream was reset for that.
func (u *setup) ruleOf(ev *http2.Event) error {
	if u.handler != nil || ev.Reason == "" {
		return nil
	}
	return errors.New(ev.Reason)
}

// endsWith reports whether nothing may be sent on a stream because the answer has ended: see
// ClientConfig.AnswerEnds.
func (u *setup) endsWith(st *http2.Stream) bool { return u.config.answerEnds && st.ReadEnded() }

// workerSet has the workers of some connections, and their counters.
type workerSet struct {
	workers.Pool[item]
	counts counters.Cell[counter]
}

type item struct {
	c    *Conn
	s    *Stream // of itemStream and itemResume
	kind itemKind
}

type itemKind uint8

const (
	itemTurn   itemKind = iota // read what is there
	itemStream                 // call a handler
	itemFlush                  // send the output
	itemTaking                 // see whether the client takes it
	itemResume                 // call the Resume of a handler whose stream is detached
)

type phase uint8

const (
	alive phase = iota
	hanging
	lingering
	closed
)

// calls are to be made after mu is released, because they may block, or run the user's code.
type calls struct {
	cancelled  *Stream // whose handlers are told, linked by nextCall
	closeWrite bool
	close      bool
	states     stateChanges
}

// stateChanges are the changes of a connection's state that were not reported yet: to Ready, then to
// Active and to Idle in turn, to Roomy, to Leaving, and at the end to Closed.
type stateChanges struct {
	flips  uint16 // changes to Active and to Idle
	active bool   // what was reported last of these
	others uint8  // a bit for each of the others
}

func (k *stateChanges) any() bool { return k.others != 0 || k.flips > 0 }

// note adds a change, unless s is the state that was noted last.
func (k *stateChanges) note(s ConnState) {
	if s == Active || s == Idle {
		if active := k.active != (k.flips%2 == 1); active != (s == Active) {
			k.flips++
		}
	} else {
		k.others |= 1 << s
	}
}

// next takes the first change.
func (k *stateChanges) next() (s ConnState, ok bool) {
	switch {
	case k.take(Ready):
		return Ready, true
	case k.flips > 0:
		k.flips--
		if k.active = !k.active; k.active {
			return Active, true
		}
		return Idle, true
	}
	for _, s := range [...]ConnState{Roomy, Leaving, Closed} {
		if k.take(s) {
			return s, true
		}
	}
	return 0, false
}

// take takes a change to s, which is neither Active nor Idle, and reports whether there was one.
func (k *stateChanges) take(s ConnState) bool {
	is := k.others&(1<<s) != 0
	k.others &^= 1 << s
	return is
}

func (k *calls) any() bool { return k.cancelled != nil || k.closeWrite || k.close }

// unlock releases mu, and makes the calls that have become due.
func (c *Conn) unlock() {
	c.side.settle(c)
	for c.calls.any() {
		due := c.calls
		c.calls = calls{states: due.states} // which tell reports
		c.mu.Unlock()
		for s := due.cancelled; s != nil; s = s.nextCall {
			c.guard(func() { s.handler.Cancelled(s.Err()) })
		}
		switch {
		case due.close:
			c.below.Close()
			c.workers.counts.Add(countClosed, 1)
			if c.states == nil {
				c.forget(c)
			} // else when Closed was reported
		case due.closeWrite:
			c.below.CloseWrite()
		}
		c.mu.Lock()
	}
	tells := c.calls.states.any()
	c.mu.Unlock()
	if tells {
		c.tell(false)
	}
}

// guard calls a function of the user, without c.mu, after which the connection must go on. A panic is
// logged. If the function ends its goroutine, which had the turn, the connection is closed.
func (c *Conn) guard(f func()) {
	returned := false
	defer catch(c, &returned, func(panicked bool) {
		if !panicked {
			go c.Close()
		}
	})
	f()
	returned = true
}

// catch is deferred around a call of the user's code, and calls abrupt if that has not returned: it has
// panicked, which is logged, or has ended its goroutine. With Crash a panic goes on, without abrupt:
// clients must see that the program has ended, since they may try again elsewhere.
func catch(c *Conn, returned *bool, abrupt func(panicked bool)) {
	if *returned {
		return
	}
	panicked := false
	if !c.config.Crash {
		if reason := recover(); reason != nil {
			panicked = true
			c.config.Log.Error("h2: panic of a handler", "remote", c.RemoteAddr(), "reason", reason, "stack", string(debug.Stack()))
		}
	} else if panics() {
		return
	}
	abrupt(panicked)
}

// panics reports whether the deferred function that calls it was called by a panic. It doesn't
// recover, which would change the panic's text.
func panics() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for {
		switch f, more := frames.Next(); {
		case f.Function == "runtime.gopanic":
			return true
		case f.Function == "runtime.Goexit", !more:
			return false
		}
	}
}

// A side is what the connections of a Server and of a Client do differently. All other code is common,
// and never asks which side it is. The core has sides of its own: see internal/http2.
//
//	             server                                     client
//	settle       nothing: a stream counts until its         counts streams that have ended, and opens those
//	             handler has returned                       that have waited for room
//	sent         a worker sends it, since other handlers    the caller sends it
//	             may be about to answer
//	lend         a handler sends and may wait               a caller sends with others that are about to
//	maySend      always: handlers may wait                  if the kernel takes it without waiting
//	writeFailed  the connection is closed                   what was read before is still taken
//	ended        what was not read is dropped, and the      what has come is read before the error, as with
//	             handler is told                            net/http's client
//	hangUp       streams that are answered are reset        the state Leaving is reported
//	close        resets of such streams go out before       a GOAWAY goes out before, and nothing lingers
//
// All methods are called with the connection's lock held.
type side interface {
	settle(c *Conn)                  // the lock is about to be released
	sent(s *Stream)                  // Send or Write has put something into the output
	lend(s *Stream)                  // sends the output on the goroutine of s's handler or caller; may release the lock
	maySend(c *Conn, bytes int) bool // whether such a goroutine may send the output and so many bytes; may release the lock
	writeFailed(c *Conn, err error)  // the peer can't be written to
	ended(s *Stream, first bool)     // the stream ends early; first: it had not ended before
	hangUp(c *Conn)                  // the connection ends when its output is sent; its streams have ended
	close(c *Conn, why *ConnError)   // closes it, for Abort behind a GOAWAY with why, or at once
}

// A ConnState is a state of a connection, as reported to a ConnHandler.
type ConnState uint8

// The states of connections.
const (
	Ready   ConnState = iota // the client's preface and SETTINGS have come; before the first stream
	Active                   // its first stream after a quiet time was opened
	Idle                     // its last stream was served, and was reset if its request went on
	Closed                   // it has ended; always the last state, even if handlers have not returned
	Leaving                  // of a client, before Closed: the server has sent GOAWAY; may be reported twice
	Roomy                    // of a client: there is room again, after Reserve has found none
)

// changedLocked notes a change of state. Nothing comes after Closed, even if handlers return later.
func (c *Conn) changedLocked(s ConnState) {
	if c.states != nil && (c.phase != closed || s == Closed) {
		c.calls.states.note(s)
	}
}

// tell calls ConnState in the order of the changes. With wait, it returns when all were reported;
// otherwise another goroutine may still be reporting them.
func (c *Conn) tell(wait bool) {
	if c.states == nil {
		return
	}
	for {
		if wait {
			c.telling.Lock()
		} else if !c.telling.TryLock() {
			return // who has it looks again
		}
		for {
			c.mu.Lock()
			s, ok := c.calls.states.next()
			c.mu.Unlock()
			if !ok {
				break
			}
			if s == Closed {
				defer c.forget(c) // also if ConnState ends the goroutine
			}
			c.guard(func() { c.states(c, s) })
		}
		c.telling.Unlock()
		c.mu.Lock()
		more := c.calls.states.any()
		c.mu.Unlock()
		if !more {
			return
		}
	}
}

// tellLocked is tell(true). It releases mu while it reports.
func (c *Conn) tellLocked() {
	if c.states != nil {
		c.mu.Unlock()
		c.tell(true)
		c.mu.Lock()
	}
}

// NetConn returns the connection that the Conn was made from: a *percore.Conn, a *tls.Conn, or
// another. Don't read from it or write to it. Below a *tls.Conn of Serve is a connection whose own
// NetConn returns the accepted connection.
func (c *Conn) NetConn() net.Conn { return c.below.NC }

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() net.Addr { return c.below.NC.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.below.NC.RemoteAddr() }

// TLS returns the state of TLS, or nil without it.
func (c *Conn) TLS() *tls.ConnectionState {
	tc := c.below.TLS()
	if tc == nil {
		return nil
	}
	state := tc.ConnectionState()
	return &state
}

// User returns the value that was passed to Attach; nil for a connection of Serve without Config.Accept.
func (c *Conn) User() any { return c.user }

// HeaderBytesMax returns how many bytes of fields the peer accepts in one header or in trailers,
// counted as for [Config.HeaderBytes]; 0 if it has not said. It is advice: Send doesn't check it.
func (c *Conn) HeaderBytesMax() int { return int(c.core.PeerHeaderListBytes()) }

// A Timer is what [Conn.AfterFunc] returns.
type Timer interface {
	// Stop keeps the function from being called, and reports whether it did.
	Stop() bool
}

// AfterFunc calls f once d has passed, even if the connection has ended. f must not block, because it
// may run on the connection's loop. Where there is a loop, AfterFunc is cheaper than [time.AfterFunc],
// but less exact: f is called up to some milliseconds later, never earlier.
func (c *Conn) AfterFunc(d time.Duration, f func()) Timer {
	if f == nil {
		panic("h2: AfterFunc was called with a nil function")
	}
	return c.below.AfterFunc(d, f)
}

// Streams returns how many streams are open.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Streams()
}

// Close closes the connection at once. Open streams end. A client first sends GOAWAY, and a server
// resets streams whose requests go on after their answer. Close doesn't wait for that, and the
// connection may stay for a second. See [Conn.Abort].
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.unlock()
	c.side.close(c, nil)
	return nil
}
