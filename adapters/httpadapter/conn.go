package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
)

// conn is a connection of percore's as net/http and the user see it: one object
// from Accept to Close, however often it is parked, so that who keeps it as the
// key of a map, or in a context, finds it again. What net/http is given is a
// lease: the same conn, which it believes to be a new connection each time. Over
// TLS the lease is a *tlsConn, and this is what the *tls.Conn reads from.
//
// # States
//
//	state     who has it  meaning                                 leaves by
//	new       accept loop the user's hooks are told               start: fresh
//	fresh     feed        nothing was ever read; callback armed   woken: queued, or shaking for TLS
//	shaking   feed        a goroutine of ours shakes hands (TLS)  handOver: queued
//	queued    feed        in the queue for net/http's Accept      lease: opening, passed
//	parked    feed        between two requests; callback armed    woken: queued
//	opening   net/http    leased, and nothing was read yet        a Read: busy, arrived, passed, ending
//	arrived   net/http    it has got the first bytes since        a Read, SetReadDeadline: busy
//	                      parking, and no more yet
//	busy      net/http    a request is under way                  StateIdle: idle
//	idle      net/http    it waits for the next request, or is    a Read: busy, passed, ending;
//	                      about to                                SetReadDeadline, again: busy
//	ending    net/http    its waiting Read was told io.EOF        Close: ended
//	ended     net/http    it has closed its lease                 StateClosed: parked; fresh if
//	                                                              nothing was ever read
//	passed    net/http    it speaks HTTP/2: never parked          Close: shut
//	shut      net/http    closed; StateClosed is still to come    StateClosed: closed
//	hijacked  the user    all calls go straight through           (final)
//	closed    nobody                                              (final)
//
// Besides, Close closes it from every state: the feed's become closed, net/http's
// become shut. The exception is the first Close in ending, which is how net/http
// gives a lease back. Should that one be the user's, net/http's is the second and
// closes it all the same.
//
// In the state ended nobody of net/http refers to the lease any more but the
// goroutine that is in the ConnState hook: it was taken out of the list of
// connections that Shutdown and Close go through before. So no Close of an old
// lease can hit a new one.
//
// # Deadlines
//
// The engine's read deadline is the user's, real, but for one state: while a Read
// waits for a request, it is the time to park if that is earlier. It costs no
// timer: moving a deadline later is a store, and the loop's wheel finds out.
// While parked, IdleTimeout goes on where it was, since real is what net/http set
// last. In opening, after having been parked, net/http sets the deadline for the
// header too early, since it does not know that it still waits: that is ignored, and
// set when the first bytes are there.
type conn struct {
	*percore.Conn // immutable

	// immutable
	feed *feed
	more *more // nil on a plain connection without ConnContext

	// atomic; changed by whoever holds mu
	word atomic.Uint32 // the state and the flags

	index int32 // in feed.mu.kept; guarded by feed.mu

	mu   sync.Mutex
	real instant // guarded by mu: the read deadline that net/http or the user has set
}

// The flags in conn.word, above the state, and the method of the last request.
const (
	began   uint32 = 1 << (8 + iota) // a byte of a request has been read, ever
	dated                            // idle: the deadline was set since StateIdle
	waiting                          // a Read waits for a first byte, and
	bounded                          // with the time to park as the engine's deadline
	sniffed                          // the method is that of the request under way

	methodShift = 16
	stateMask   = 1<<8 - 1
	methodMask  = 1<<24 - 1<<methodShift
)

// more is what only some connections need.
type more struct {
	ctx   context.Context // what the user's ConnContext returned
	tls   *tls.Conn       // the connection as the user sees it
	lease net.Conn        // what net/http gets, once hands are shaken: tls itself, or a *tlsConn
}

const (
	stateNew uint32 = iota
	stateFresh
	stateShaking
	stateQueued
	stateParked
	stateOpening
	stateArrived
	stateBusy
	stateIdle
	stateEnding
	stateEnded
	statePassed
	stateShut
	stateHijacked
	stateClosed
)

// readBytes is the size of net/http's read buffer, which it makes by
// bufio.NewReader. While it waits for the next request it reads only if it has
// less than four bytes, into all the room there is: so if the slice is this long
// the buffer is empty. Were the size another one, no slice would have this
// length, and nothing be parked.
var readBytes = bufio.NewReader(nil).Size()

// peekBytes is how many bytes net/http wants to have of the next request before it
// takes the connection for active: with fewer, followed by the end or an error,
// it closes without an answer.
const peekBytes = 4

// newConn makes a connection that nobody knows yet, and counts it.
func (f *feed) newConn(pc *percore.Conn) *conn {
	sv := f.service
	c := &conn{Conn: pc, feed: f}
	if sv.tls != nil {
		c.more = &more{ctx: sv.ctx, tls: tls.Server(c, sv.tls)}
	}
	if sv.server.user.connContext != nil {
		ctx := sv.server.user.connContext(sv.ctx, c.identity())
		if ctx == nil {
			panic("ConnContext returned nil")
		}
		if c.more == nil {
			c.more = &more{}
		}
		c.more.ctx = ctx
	}
	sv.refs.Add(1)
	sv.server.stats.conns.Add(1)
	return c
}

// start tells the user of a new connection and lets it wait for its first byte,
// for as long as net/http gives it: for TLS that is for all of the handshake.
func (c *conn) start() {
	s := c.feed.service.server
	s.tell(c.identity(), http.StateNew)
	c.mu.Lock()
	if limit := s.firstByteTimeout(c.isTLS()); limit > 0 {
		c.real = now() + instant(limit)
		_ = c.Conn.SetReadDeadline(c.real.time())
		if c.isTLS() {
			_ = c.Conn.SetWriteDeadline(c.real.time())
		}
	}
	if c.state() == stateNew && c.feed.keep(c) {
		c.set(stateFresh)
		c.mu.Unlock()
		c.arm()
		return
	}
	c.set(stateClosed) // by the user's hook, or since the server is shut down
	c.mu.Unlock()
	_ = c.Conn.Close()
	c.bury()
}

// identity is what the user's hooks get: what package net and crypto/tls would
// have made.
func (c *conn) identity() net.Conn {
	if c.isTLS() {
		return c.more.tls
	}
	return c
}

func (c *conn) isTLS() bool { return c.more != nil && c.more.tls != nil }

// set changes the state. The caller holds mu.
func (c *conn) set(to uint32) {
	n := &c.feed.service.server.stats
	n.gauge(c.state(), -1)
	n.gauge(to, +1)
	c.word.Store(c.word.Load()&^stateMask | to)
}

// mark sets or clears flags. The caller holds mu.
func (c *conn) mark(flags uint32, on bool) {
	if on {
		c.word.Or(flags)
	} else {
		c.word.And(^flags)
	}
}

func (c *conn) state() uint32       { return c.word.Load() & stateMask }
func (c *conn) is(flag uint32) bool { return c.word.Load()&flag != 0 }

// arm has the engine call woken when there is something to read.
func (c *conn) arm() {
	switch err := c.Conn.NotifyReadable((*waker)(c)); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.woken(os.ErrDeadlineExceeded)
	default:
		c.woken(net.ErrClosed)
	}
}

// waker is a conn as the engine's handler. (The conn's own OnReadable is
// percore.Conn's, for hijacked connections.)
type waker conn

// OnReadable implements [percore.ReadableHandler].
func (w *waker) OnReadable(err error) { (*conn)(w).woken(err) }

// woken ends a wait of the states fresh and parked. It runs on the engine's loop:
// what may block is done elsewhere.
func (c *conn) woken(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state()
	switch {
	case state != stateFresh && state != stateParked:
		return // closed meanwhile
	case c.isTLS() && c.more.lease == nil:
		// If err says that time is up the handshake fails at once, and net/http
		// logs it.
		c.set(stateShaking)
		go c.handshake()
	case err != nil:
		// IdleTimeout, or ReadHeaderTimeout without a byte; or somebody closed the
		// percore.Conn behind our back.
		go c.hangUp()
	default:
		c.queueLocked()
	}
}

// queueLocked gives a kept connection to net/http's Accept.
func (c *conn) queueLocked() {
	c.set(stateQueued)
	if !c.feed.push(c) {
		go c.hangUp()
	}
}

// lease turns a queued connection into what net/http gets, or returns nil if it
// was closed meanwhile.
func (c *conn) lease() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateQueued {
		return nil
	}
	c.feed.drop(c)
	if c.is(began) {
		c.feed.service.server.stats.unparks.Add(1)
	}
	if !c.isTLS() {
		c.set(stateOpening)
		return c
	}
	switch {
	case c.more.lease != net.Conn(c.more.tls):
		c.set(stateOpening)
	case c.more.tls.ConnectionState().HandshakeComplete:
		c.passLocked()
	default:
		c.set(statePassed) // to be told off
	}
	return c.more.lease
}

// passLocked gives the connection to net/http for good.
func (c *conn) passLocked() {
	c.set(statePassed)
	c.feed.service.server.stats.http2.Add(1)
}

// Read reads for net/http, or for crypto/tls.
func (c *conn) Read(p []byte) (int, error) {
	if c.isTLS() {
		return c.Conn.Read(p)
	}
	return c.read(c.Conn, p)
}

// read reads from r, which is the connection or the TLS above it.
func (c *conn) read(r io.Reader, p []byte) (int, error) {
	switch c.state() {
	case stateOpening, stateIdle:
		if len(p) > 0 {
			return c.awaitRequest(r, p)
		}
	case stateEnding, stateEnded:
		return 0, io.EOF
	case stateArrived:
		n, err := r.Read(p)
		if n > 0 {
			c.active()
		}
		return n, err
	}
	return r.Read(p)
}

// active ends the state arrived.
func (c *conn) active() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() == stateArrived {
		c.set(stateBusy)
	}
}

// awaitRequest reads the first bytes of a request, or what net/http believes to
// be: io.EOF when it is time to park.
func (c *conn) awaitRequest(r io.Reader, p []byte) (int, error) {
	c.beginWait(len(p))
	n, err := r.Read(p)
	if c.state() == stateOpening && c.is(began) { // which only this goroutine changes
		n, err = c.resume(r, p, n, err)
	}
	return c.endWait(p[:n], len(p), err)
}

// beginWait sets the engine's deadline for a Read into a slice of size bytes that
// waits for a request.
func (c *conn) beginWait(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state()
	if state == stateIdle && !c.is(dated) {
		return // not net/http as we know it: leave everything as it is
	}
	c.mark(waiting, true)
	until := c.real
	if state == stateOpening || c.mayPark(size) {
		if at := now() + instant(c.patience()); c.real == 0 || at < c.real {
			c.mark(bounded, true)
			until = at
		}
	}
	_ = c.Conn.SetReadDeadline(until.time())
}

// patience returns for how long a Read waits before the connection is parked. In
// the state opening there should be something to read already, and that must get a
// chance to be read even if parking is immediate. Where there is not, the client
// has shaken hands for TLS ahead of time, or the engine was wrong.
func (c *conn) patience() time.Duration {
	d := c.feed.service.server.parkAfter
	if c.state() == stateOpening {
		d = max(d, DefaultParkAfter)
	}
	return d
}

// mayPark reports whether nothing of the next request has been read, and counts
// when something has.
func (c *conn) mayPark(size int) bool {
	if size != readBytes {
		c.feed.service.server.stats.buffered.Add(1)
		return false
	}
	return true
}

// endWait decides what comes of a Read that waited for a request: data, of which
// it read p into a slice of size bytes, an error, or parking.
func (c *conn) endWait(p []byte, size int, err error) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state()
	timeToPark := c.is(bounded) && isTimeout(err) && !c.real.passed()
	waited := c.is(waiting)
	c.mark(waiting|bounded, false)
	switch {
	case state != stateOpening && state != stateIdle:
		return len(p), err // closed meanwhile
	case len(p) == 0 && timeToPark:
		c.set(stateEnding)
		return 0, io.EOF
	case len(p) == 0:
		return 0, err
	case timeToPark:
		err = nil // crypto/tls looks for more than the data that it has
	}
	if waited {
		if state == stateOpening && c.is(began) {
			c.real = c.feed.service.server.headerDeadline()
		}
		_ = c.Conn.SetReadDeadline(c.real.time())
	}
	if state == stateOpening && c.is(began) {
		c.set(stateArrived)
	} else {
		c.set(stateBusy)
	}
	c.mark(began, true)
	switch {
	case state == stateOpening:
		c.sniffLocked(p)
	case size == readBytes:
		c.sniffLocked(c.skipNewlines(p))
	default:
		c.sniffLocked(nil) // it began before p
	}
	return len(p), err
}

// resume makes of the first n bytes after parking what net/http would have made of
// them if it had waited itself. It had read four bytes before it took the
// connection for active; and if the last request was a POST, it would skip the
// empty line that some old clients send after its body. It returns no bytes if it
// returns an error.
func (c *conn) resume(r io.Reader, p []byte, n int, err error) (int, error) {
	if n == 0 {
		return 0, err
	}
	for n < peekBytes && n < len(p) && err == nil {
		c.stopParking()
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	if n < peekBytes && err != nil {
		return 0, err
	}
	n = copy(p, c.skipNewlines(p[:n]))
	for n == 0 && err == nil {
		_ = c.Conn.SetReadDeadline(c.feed.service.server.headerDeadline().time())
		n, err = r.Read(p)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// stopParking has a Read that waits go on for as long as net/http would wait: it
// has got bytes that are in nobody's buffer but net/http's.
func (c *conn) stopParking() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(bounded) {
		c.mark(bounded, false)
		_ = c.Conn.SetReadDeadline(c.real.time())
	}
}

// idle is net/http's StateIdle.
func (c *conn) idle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateBusy {
		return
	}
	if !c.is(sniffed) {
		c.setMethod(methodUnknown) // of a pipelined request, whose first bytes were not seen as such
	}
	c.mark(sniffed|dated, false)
	c.set(stateIdle)
}

// hijacked is net/http's StateHijacked.
func (c *conn) hijacked() {
	c.mu.Lock()
	c.set(stateHijacked)
	c.mu.Unlock()
	c.feed.service.server.stats.hijacked.Add(1)
	c.feed.service.release()
}

// leaseClosed is net/http's StateClosed: the goroutine that served the lease has
// done its last with it. It reports whether the connection is parked now.
// Otherwise it is closed.
func (c *conn) leaseClosed() (parked bool) {
	s := c.feed.service.server
	c.mu.Lock()
	if c.state() == stateEnded && !s.keepAlivesOff.Load() && c.feed.keep(c) {
		if c.is(began) {
			c.set(stateParked)
			s.stats.parks.Add(1)
		} else {
			c.set(stateFresh)
		}
		_ = c.Conn.SetReadDeadline(c.real.time())
		c.mu.Unlock()
		c.arm()
		return true
	}
	given := c.state() == stateEnded
	c.set(stateClosed)
	c.mu.Unlock()
	if given {
		_ = c.identity().Close()
	}
	c.feed.service.release()
	return false
}

// Close closes the connection, whether it is parked or not, unless it is net/http
// that gives a lease back.
func (c *conn) Close() error {
	if !c.isTLS() && c.endLease() {
		return nil
	}
	return c.shut()
}

// endLease notes that net/http has closed the lease that it was told the end of,
// and reports false if that is not what a Close means.
func (c *conn) endLease() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateEnding {
		return false
	}
	c.set(stateEnded)
	return true
}

// shut closes the connection for good.
func (c *conn) shut() error {
	c.mu.Lock()
	kept := false
	switch c.state() {
	case stateFresh, stateShaking, stateQueued, stateParked:
		c.feed.drop(c)
		c.set(stateClosed)
		kept = true
	case stateHijacked, stateClosed:
	default: // who has it tells the user
		c.set(stateShut)
	}
	c.mu.Unlock()
	err := c.Conn.Close()
	if kept {
		c.bury()
	}
	return err
}

// bury tells the user that the connection is closed, when net/http can't. It may
// be called where the user must not be, with locks held.
func (c *conn) bury() {
	sv := c.feed.service
	if sv.server.user.connState != nil {
		go sv.server.tell(c.identity(), http.StateClosed)
	}
	sv.release()
}

// hangUp closes a connection that is kept, as net/http closes an idle one: over
// TLS with a farewell, which may block for a while.
func (c *conn) hangUp() {
	c.mu.Lock()
	state := c.state()
	c.mu.Unlock()
	switch state {
	case stateFresh, stateShaking, stateQueued, stateParked:
		_ = c.identity().Close()
	}
}

// closeIf closes a connection if it is in the given state.
func (c *conn) closeIf(state uint32) {
	if c.state() == state {
		c.hangUp()
	}
}

// SetReadDeadline sets the read deadline, of which there are several: see conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.state() == stateBusy {
		return c.Conn.SetReadDeadline(t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state() {
	case stateNew, stateFresh, stateQueued, stateParked:
		c.real = instantOf(t)
	case stateIdle:
		if c.is(dated) && !c.is(waiting) {
			// net/http has set the deadline of the wait, and now that of the header: it
			// has seen all it wanted of the next request in its buffer, without a Read.
			c.set(stateBusy)
			break
		}
		c.real = instantOf(t)
		c.mark(dated, true)
		return c.moveWaitLocked(t)
	case stateOpening:
		if c.is(began) {
			return nil // too early: see endWait
		}
		// net/http counts from when it has got the connection. We count from when it
		// was accepted.
		if at := instantOf(t); c.real != 0 && (at == 0 || c.real < at) {
			return nil
		}
		c.real = instantOf(t)
		return c.moveWaitLocked(t)
	case stateEnding, stateEnded:
		c.real = instantOf(t)
		return nil
	case stateArrived:
		c.set(stateBusy) // net/http has understood the header
	}
	return c.Conn.SetReadDeadline(t)
}

// moveWaitLocked applies a new deadline to a Read that waits, if there is one.
// Unless it is earlier the time to park stays.
func (c *conn) moveWaitLocked(t time.Time) error {
	switch {
	case !c.is(waiting):
		return nil
	case c.is(bounded) && (c.real == 0 || c.real > now()+instant(c.patience())):
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets the read and the write deadline.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(t)
}

// errNotHijacked is what the readiness callback of a connection that net/http
// uses fails with: it has one already.
var errNotHijacked = errors.New("httpadapter: the readiness callback is free once the connection is hijacked")

// OnReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) OnReadable(f func(error)) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.OnReadable(f)
}

// NotifyReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) NotifyReadable(h percore.ReadableHandler) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.NotifyReadable(h)
}

// CancelOnReadable is percore.Conn's, on a hijacked connection.
func (c *conn) CancelOnReadable() bool {
	return c.state() == stateHijacked && c.Conn.CancelOnReadable()
}

// WriteTo is percore.Conn's. It shows it what is under a conn, so that the kernel
// can move bytes from one to the other.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*conn); ok && !to.isTLS() {
		w = to.Conn
	}
	return c.Conn.WriteTo(w)
}

// NetConn returns the percore.Conn. Closing it closes the connection; reading from
// it and setting its read deadline get in net/http's way.
func (c *conn) NetConn() net.Conn { return c.Conn }

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}
