package reactor

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/percore/percore/internal/pool"
)

// Conn is a connection whose bytes go to a [Handler]. No method blocks. SetUser, User and Hijack may
// be called only on the connection's loop: in its callbacks, and in functions of [Loop.Submit],
// [Server.Each] and AfterFunc. All others may be called from any goroutine.
//
// An idle connection holds only this and a percore.Conn.
//
// A connection's phase, which only its loop changes:
//
//	opening   Open has not been called          the loop opens it: open
//	open      Data is called with what comes    the end of the stream, Close, Abort, an error:
//	                                            ending; Hijack: hijacked
//	ending    Data isn't called any more; it    all functions of Go have run, and everything is
//	          waits for Go and for the peer     written, or never will be: closed
//	closed    the handler's Close was called    (final)
//	hijacked  it has another owner              (final)
type Conn struct { // input, output, clock and functions are a Conn by another name, each with its methods
	// immutable
	loop *Loop
	sock sock

	// owned by the loop
	user       any
	unused     *pool.Buffer // bytes that Data has not used; nil if there are none
	index      int32        // in Loop.conns
	phase      phase
	hungUp     bool // the socket is closed
	shut       bool // our stream has ended
	inputEnded bool // the peer has ended its stream
	offered    bool // Data was called with all of unused, and waits for more
	lingering  bool // the loop reads and drops the input until the peer ends its stream
	isLayered  bool // there is more.layered; set before it is open

	// atomic
	asked atomic.Uint32

	// guarded by mu
	mu         sync.Mutex
	queued     bool // in the loop's todo
	collecting bool // the handler runs: writes go to Loop.collected
	sending    bool // a goroutine writes to the socket, without mu
	flushing   bool // it writes the backlog
	blocked    bool // the socket is full: an event will come
	roomEvent  bool // an event came since the sender's last call
	refusing   bool // writes fail
	finished   bool // the handler's Close was called, or is about to be, or never will be: hijacked
	unsent     *backlog
	more       *extras // set once
}

type phase uint8

const (
	opening phase = iota
	open
	ending
	closed
	hijacked
)

// The bits of Conn.asked: requests to the connection's loop, from any goroutine. They stay set, unless
// their comment says what clears them.
const (
	askClose   uint32 = 1 << iota // close at once
	askEnd                        // close once everything is written
	askShut                       // end our stream once everything is written
	askRoom                       // read no more until the peer has taken half of the backlog, which clears it
	askWork                       // read no more until half of its functions of Go have begun, which clears it
	askWalks                      // read no more until half of the broadcasts that wait are done, which clears it
	askSender                     // Data makes broadcasts: while many wait askWalks is set; never cleared
	askTell                       // call Writable once everything is written, which clears it
	askTellNow                    // call Writable, which clears it
	askPause                      // read no more until Resume, which clears it
	askTimed                      // there are timeouts; never cleared
	askRetime                     // SetTimeout was called: set the timer, which clears it
	askOffer                      // call Data with what is kept once more, before more is read; which clears it
)

// stopsReading are the requests that make the loop leave bytes in the socket.
const stopsReading = askClose | askEnd | askRoom | askWork | askWalks | askPause | askOffer

// extras are the parts of a connection that most connections don't need.
type extras struct {
	layered *layered // set before it is open

	times timeouts
	tasks tasks

	// owned by the loop, while the connection lingers
	linger   timer
	lingered int // bytes that were read and dropped

	// guarded by the connection's mu
	why    error                   // why the connection ends
	ctx    context.Context         // of GoContext; nil until that is called
	cancel context.CancelCauseFunc // ends ctx
	held   int                     // calls of Hold without one of Release

	// dropped is how many bytes were written and dropped, or refused when that is why the connection ends.
	// It is guarded by the connection's mu, and final once the loop has stopped the writing.
	dropped int
}

func (c *Conn) extrasLocked() *extras {
	if c.more == nil {
		c.more = new(extras)
	}
	return c.more
}

// Loop returns the connection's loop.
func (c *Conn) Loop() *Loop { return c.loop }

// User returns the value of SetUser, or otherwise of [Server.Attach].
func (c *Conn) User() any { return c.user }

// SetUser keeps a value for the handler with the connection.
func (c *Conn) SetUser(v any) { c.user = v }

// LocalAddr returns the local address. It is shared by all callers, so do not change it.
func (c *Conn) LocalAddr() net.Addr { return c.sock.conn.LocalAddr() }

// RemoteAddr returns the peer's address. It is shared by all callers, so do not change it.
func (c *Conn) RemoteAddr() net.Addr { return c.sock.conn.RemoteAddr() }

// RemoteAddrPort returns the peer's address as a value, at no cost: see percore.Conn.
func (c *Conn) RemoteAddrPort() netip.AddrPort { return c.sock.conn.RemoteAddrPort() }

// SyscallConn returns a raw connection for options of the socket. It supports only Control: the loop
// reads and writes.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.sock.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return controlOnly{raw}, nil
}

type controlOnly struct{ syscall.RawConn }

func (controlOnly) Read(func(fd uintptr) bool) error { return syscall.EINVAL }

func (controlOnly) Write(func(fd uintptr) bool) error { return syscall.EINVAL }

// SetLinger sets what happens at the connection's end to bytes that the socket has taken and the peer
// has not acknowledged yet. Below 0 (the default) they are sent in the background. With 0 the
// connection is reset: the peer sees an error and not the end of our stream. A value above 0 is an
// error, since the loop would have to wait.
func (c *Conn) SetLinger(sec int) error {
	if sec > 0 {
		return c.sock.opError("set", syscall.EINVAL)
	}
	return c.sock.conn.SetLinger(sec)
}

// SetNoDelay turns TCP_NODELAY on (the default) or off.
func (c *Conn) SetNoDelay(on bool) error { return c.sock.conn.SetNoDelay(on) }

// open is the connection's first task on its loop.
func (c *Conn) open() {
	l := c.loop
	l.begin()
	l.add(c)
	c.phase = open
	switch how := c.loop.server.closing.Load(); {
	case how&askClose != 0:
		c.endNow()
	case how != 0:
		c.end(how, ErrServerClosed)
	}
	(*clock)(c).start()
	c.enter()
	c.call("Open", func() { l.handler.Open(c) })
	if c.phase == hijacked {
		return
	}
	(*output)(c).tellWritable() // of writes before this
	(*input)(c).read()          // what came before the connection was watched
	c.leave()
}

// onEvent is called on the loop when there may be something to do.
func (c *Conn) onEvent(readable, writable bool) {
	if c.phase == opening && writable {
		(*output)(c).onRoom() // the event comes once; open reads
	}
	if c.phase != open && c.phase != ending {
		return // open reads; or the event was under way
	}
	c.loop.begin()
	if writable {
		(*output)(c).onRoom()
	}
	if readable {
		c.enter()
		(*input)(c).read()
		c.leave()
	} else {
		c.settle()
	}
}

// attend is called on the loop after remind.
func (c *Conn) attend() {
	c.mu.Lock()
	c.queued = false
	c.mu.Unlock()
	if c.phase == opening || c.phase == closed || c.phase == hijacked {
		return
	}
	if c.asked.Load()&askRetime != 0 {
		(*clock)(c).retime()
	}
	c.enter()
	(*output)(c).tellWritable()
	(*input)(c).read()
	c.leave()
}

// enter begins a time in which the handler may run: writes are collected.
func (c *Conn) enter() {
	c.mu.Lock()
	c.collecting = true
	c.loop.collected = c.loop.collected[:0] // not empty if Config.Log has ended the goroutine
	c.mu.Unlock()
}

// leave ends that time: it sends the collected writes, and does what other goroutines have asked for.
func (c *Conn) leave() {
	if c.phase == hijacked {
		return
	}
	c.mu.Lock()
	(*output)(c).sendCollectedLocked()
	c.mu.Unlock()
	if c.asked.Load()&^(askTimed|askSender) != 0 || c.phase == ending {
		c.settle()
	}
}
