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
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/pool"
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
//	new       accept loop the user's hooks are told               start: fresh; shaking if a hook has
//	                                                              begun to; closed if a hook closes it,
//	                                                              or net/http accepts no more
//	fresh     feed        nothing was ever read; callback armed   woken: queued, or shaking for TLS
//	shaking   feed        a goroutine of ours shakes hands (TLS)  handshake: queued
//	queued    feed        in the queue for net/http's Accept      lease: opening, passed
//	parked    feed        between two requests; callback armed    woken: queued
//	opening   net/http    leased, and nothing was read yet        a Read: busy, arrived, passed, ending
//	arrived   net/http    it has got the first bytes since        a Read, SetReadDeadline: busy
//	                      parking, and no more yet
//	busy      net/http    a request is under way                  StateIdle: idle; StateHijacked: hijacked
//	idle      net/http    it waits for the next request, or is    a Read: busy, passed, ending;
//	                      about to                                SetReadDeadline, again: busy
//	ending    net/http    its waiting Read was told io.EOF        Close: ended; any other call but
//	                                                              Read: shut
//	ended     net/http    it has closed its lease                 StateClosed: parked; fresh if
//	                                                              nothing was ever read; closed if
//	                                                              nobody would take it another time;
//	                                                              any call but Read: shut
//	passed    net/http    it speaks HTTP/2, or has failed to      Close: shut; StateClosed: closed, if
//	                      shake hands: never parked               the user's Close of the *tls.Conn is
//	                                                              under way, and net/http's does nothing
//	shut      net/http    closed; StateClosed is still to come    StateClosed: closed
//	cut       net/http    the same, since arrived, or since       SetReadDeadline: shut;
//	                      opening after parking                   StateClosed: closed
//	hijacked  the user    all calls go straight through           (final)
//	closed    nobody                                              (final)
//
// Besides, Close closes it from every state: the feed's become closed, net/http's
// become shut. The exception is the first Close in ending, which is how net/http
// gives a lease back. Should that one be the user's, net/http's is the second and
// closes it all the same.
//
// The states hijacked and closed are entered once (see endLocked), whatever the user
// tells ConnState: net/http's StateHijacked and StateClosed come only where the table
// has them, and all other calls of them change nothing.
//
// In the state ended nobody of net/http refers to the lease any more but the
// goroutine that is in the ConnState hook: it was taken out of the list of
// connections that Shutdown and Close go through before. So no Close of an old
// lease can hit a new one.
//
// # Deadlines
//
// The engine's read deadline is the user's, real, but for one moment: a Read that
// has waited for a request for long enough is ended by one in the past (see sweeper).
// While parked, IdleTimeout goes on where it was, since real is what net/http set
// last. In opening, after having been parked, net/http sets the deadline for the
// header too early, since it does not know that it still waits: that is ignored, and
// set when the first bytes are there.
type conn struct {
	*percore.Conn // immutable

	// immutable
	feed *feed
	more *more // nil on a plain connection without ConnContext

	// atomic; changed by whoever holds mu and, without it, by the goroutine of net/http
	// that serves the lease, in opening, busy and idle, and by SetReadDeadline in idle.
	// What both may change is changed by swap. So a request costs no lock.
	packed atomic.Uint32 // a word

	// guarded by feed.mu
	index int32 // in feed.mu.kept or feed.mu.lent; -1: in neither

	mu sync.Mutex

	// atomic; written by whoever holds mu, and by the goroutine that serves the lease
	real atomicInstant // the read deadline that net/http or the user has set
}

// more is what only some connections need.
type more struct {
	ctx   context.Context // what the user's ConnContext returned
	tls   *tls.Conn       // the connection as the user sees it
	lease net.Conn        // what net/http gets, once hands are shaken: tls itself, or a *tlsConn
	begun atomic.Bool     // a hook of the user's has begun to shake hands
}

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

// newConn makes a connection, counts it and tells the user of it.
func (f *feed) newConn(pc *percore.Conn) *conn {
	sv := f.service
	c := &conn{Conn: pc, feed: f, index: -1}
	if sv.tls != nil {
		c.more = &more{ctx: sv.ctx, tls: tls.Server(c, sv.tls)}
	}
	sv.refs.Add(1)
	sv.server.stats.conns.Add(1)
	c.introduce()
	return c
}

// introduce calls the user's ConnContext and ConnState, for one connection of the
// service after the other, as net/http does.
func (c *conn) introduce() {
	sv := c.feed.service
	user := &sv.server.user
	if user.connContext == nil && user.connState == nil {
		return
	}
	sv.introducing.Lock()
	defer sv.introducing.Unlock()
	if user.connContext != nil {
		if c.more == nil {
			c.more = &more{}
		}
		c.more.ctx = user.connContext(sv.ctx, c.identity())
		if c.more.ctx == nil {
			panic("ConnContext returned nil")
		}
	}
	sv.server.tell(c.identity(), http.StateNew)
}

// start lets a new connection wait for its first byte, for as long as net/http gives
// it: for TLS that is for all of the handshake.
func (c *conn) start() {
	s := c.feed.server
	c.mu.Lock()
	if limit := s.firstByteTimeout(c.isTLS()); limit > 0 {
		at := instant(monotime.After(limit))
		c.real.set(at)
		_ = c.Conn.SetReadDeadline(at.time())
		if c.isTLS() {
			_ = c.Conn.SetWriteDeadline(at.time())
		}
	}
	if c.state() == stateNew && c.feed.keep(c) {
		if c.isTLS() && c.more.begun.Load() {
			// What the client has said may be in crypto/tls's buffer already.
			c.set(stateShaking)
			c.mu.Unlock()
			go c.handshake()
			return
		}
		c.set(stateFresh)
		c.mu.Unlock()
		c.arm()
		return
	}
	ended := c.endLocked(stateClosed) // by the user's hook, or since the server is shut down
	c.mu.Unlock()
	_ = c.Conn.Close()
	c.bury()
	if ended {
		c.feed.service.release()
	}
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

// load returns the state and what goes with it.
func (c *conn) load() word { return word(c.packed.Load()) }

// state returns the state.
func (c *conn) state() uint32 { return c.load().state() }

// swap changes the state and what goes with it unless somebody else was faster.
func (c *conn) swap(from, to word) bool {
	if !c.packed.CompareAndSwap(uint32(from), uint32(to)) {
		return false
	}
	if from, to := from.state(), to.state(); from != to {
		n := &c.feed.server.stats
		n.gauge(from, -1)
		n.gauge(to, +1)
	}
	return true
}

// change changes the state and what goes with it, however many others do.
func (c *conn) change(to func(w word) word) {
	for {
		from := c.load()
		if to := to(from); to == from || c.swap(from, to) {
			return
		}
	}
}

// set changes the state only. The caller holds mu.
func (c *conn) set(state uint32) { c.change(func(w word) word { return w.to(state) }) }

// endLocked gives the connection up: it becomes hijacked or closed, which it stays. It
// reports false if it was that already. Otherwise the caller, who holds mu, releases the
// service, when it has closed the connection: Shutdown waits for that.
func (c *conn) endLocked(state uint32) (ended bool) {
	switch c.state() {
	case stateHijacked, stateClosed:
		return false
	}
	c.feed.forget(c)
	c.set(state)
	return true
}

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
	w := c.load()
	switch {
	case w.state() != stateQueued:
		return nil
	case c.isTLS() && c.more.lease == net.Conn(c.more.tls):
		c.feed.forget(c)
		if c.more.tls.ConnectionState().HandshakeComplete {
			c.feed.server.stats.http2.Add(1)
		} // else it is to be told off
		c.swap(w, w.to(statePassed).set(unannounced)) // as below
		return c.more.lease
	}
	now := c.feed.lend(c)
	to := w.to(stateOpening).clear(recentlyUsed | dated).set(unannounced)
	if w.has(began) {
		c.feed.server.stats.unparks.Add(1)
		if w.since(now) < parkTicksRecent {
			to = to.set(recentlyUsed)
		}
	}
	c.swap(w, to) // which nobody else changes in queued without mu
	if c.isTLS() {
		return c.more.lease
	}
	return c
}

// Read reads for net/http, or for crypto/tls.
func (c *conn) Read(p []byte) (int, error) {
	switch state := c.state(); {
	case state == stateNew && c.isTLS():
		c.more.begun.Store(true)
		return c.Conn.Read(p)
	case state == stateBusy || c.isTLS():
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
	if w := c.load(); w.state() == stateOpening && w.has(began) { // which only this goroutine changes
		n, err = c.resume(r, p, n, err)
	}
	return c.endWait(p[:n], len(p), err)
}

// beginWait notes that a Read into a slice of size bytes waits for a request, and
// whether the connection may be parked meanwhile: if nothing of that has been read.
func (c *conn) beginWait(size int) {
	for {
		w := c.load()
		to := w.set(waiting)
		switch {
		case w.state() == stateIdle && !w.has(dated):
			// Not net/http as we know it: it waits for as long as it likes.
		case w.state() == stateIdle && size != readBytes:
			c.feed.server.stats.buffered.Add(1)
		case w.state() == stateIdle, w.state() == stateOpening:
			to = to.set(parkable).at(c.feed.sweeper.ticks.Load())
		default:
			return // closed meanwhile
		}
		if !c.swap(w, to) {
			continue
		}
		if c.feed.parksAtOnce && to.mayPark() && to.state() == stateIdle {
			c.sever(to)
		}
		return
	}
}

// longAgo is a deadline that the engine knows to be over without a clock.
var longAgo = time.Unix(1, 0)

// sever has the engine end the Read, waiting or about to, that the word seen tells of,
// if that still waits: the next wait would have noted another tick.
func (c *conn) sever(seen word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.swap(seen, seen.set(severed)) {
		_ = c.Conn.SetReadDeadline(longAgo)
	}
}

// endWait decides what comes of a Read that waited for a request: data, of which
// it read p into a slice of size bytes, an error, or parking.
func (c *conn) endWait(p []byte, size int, err error) (int, error) {
	if w := c.load(); w.state() == stateIdle && !w.has(severed) && len(p) > 0 {
		if to := w.begin(p, size); to.state() == stateBusy && c.swap(w, to) {
			return len(p), err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.load() // which nobody else changes now: we have mu, and serve the lease
	to := w.clear(waiting | parkable | severed)
	timeToPark := w.has(severed) && isTimeout(err) && !c.real.get().passed()
	switch {
	case w.state() != stateOpening && w.state() != stateIdle:
		c.swap(w, to)
		return len(p), err // closed meanwhile
	case len(p) == 0 && timeToPark:
		c.swap(w, to.to(stateEnding))
		return 0, io.EOF
	case len(p) == 0:
		c.swap(w, to)
		return 0, err
	case timeToPark:
		err = nil // crypto/tls looks for more than the data that it has
	}
	if w.has(severed) {
		_ = c.Conn.SetReadDeadline(c.real.get().time())
	}
	to = w.begin(p, size)
	if to.state() == statePassed {
		c.feed.forget(c)
		c.feed.server.stats.http2.Add(1)
	}
	c.swap(w, to)
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
	if c.stopParking() && isTimeout(err) && !c.real.get().passed() {
		err = nil // as in endWait
	}
	for n < peekBytes && n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	if n < peekBytes && err != nil {
		return 0, err
	}
	c.startHeader()
	n = copy(p, c.load().skipNewlines(p[:n]))
	for n == 0 && err == nil {
		n, err = r.Read(p)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// stopParking has a Read that waits go on for as long as net/http would wait: it
// has got bytes that are in nobody's buffer but net/http's. It reports whether the Read
// was being ended.
func (c *conn) stopParking() (ending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.load()
	c.swap(w, w.clear(parkable|severed))
	ending = w.has(severed)
	if ending {
		_ = c.Conn.SetReadDeadline(c.real.get().time())
	}
	return ending
}

// startHeader sets the deadline for a header that has begun after parking.
func (c *conn) startHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.real.set(c.feed.server.headerDeadline())
	_ = c.Conn.SetReadDeadline(c.real.get().time())
}

// idle is net/http's StateIdle, which follows the end of an answer.
func (c *conn) idle() {
	for {
		w := c.load()
		if w.state() != stateBusy || !w.has(answered) || c.swap(w, w.finish()) {
			return
		}
	}
}

// announced is net/http's StateNew, which comes once per lease. It reports whether that
// is what the call is.
func (c *conn) announced() bool {
	for {
		w := c.load()
		switch {
		case !w.has(unannounced):
			return false
		case c.swap(w, w.clear(unannounced)):
			return true
		}
	}
}

// hijacked is net/http's StateHijacked, which comes while a request is under way.
func (c *conn) hijacked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch w := c.load(); w.state() {
	case stateIdle:
		if w.has(waiting) {
			return
		} // else the request may have been answered, or the user have told StateIdle
	case stateArrived, stateBusy, statePassed, stateShut, stateCut:
	default:
		return
	}
	if c.endLocked(stateHijacked) {
		c.feed.server.stats.hijacked.Add(1)
		c.feed.service.release()
	}
}

// leaseClosed is net/http's StateClosed: the goroutine that served the lease, which
// it has closed, has done its last with it. It reports whether the connection is parked
// now. Otherwise it is closed, or the call is the user's.
func (c *conn) leaseClosed() (parked bool) {
	s := c.feed.server
	c.mu.Lock()
	state := c.state()
	// Kept first, then asked: SetKeepAlivesEnabled does it the other way round.
	if state == stateEnded && c.feed.takeBack(c) && !s.keepAlivesOff.Load() {
		if c.load().has(began) {
			c.set(stateParked)
			s.stats.parks.Add(1)
		} else {
			c.set(stateFresh)
		}
		_ = c.Conn.SetReadDeadline(c.real.get().time())
		if !c.load().has(dated) {
			// Nothing came of the lease, and net/http may have set it all the same. It would
			// not pass unnoticed: crypto/tls answers a KeyUpdate as it reads.
			_ = c.Conn.SetWriteDeadline(time.Time{})
		}
		c.mu.Unlock()
		c.arm()
		return true
	}
	ended := false
	switch state {
	case stateEnded, statePassed, stateShut, stateCut:
		ended = c.endLocked(stateClosed)
	}
	c.mu.Unlock()
	if state == stateEnded {
		_ = c.identity().Close() // which has not been done: only the lease was closed
	}
	if ended {
		c.feed.service.release()
	}
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

// mustLast closes the connection if net/http was told io.EOF to park it. As far as it is
// known net/http closes its lease then and calls nothing else. A lease that is used all the
// same can't be given back: an answer would be that to the next request, a deadline the next
// one's, and a half-close for good.
func (c *conn) mustLast() {
	if c.load().ending() {
		c.shutLease()
	}
}

// shutLease closes the connection instead of parking it.
func (c *conn) shutLease() {
	c.mu.Lock()
	ending := c.load().ending()
	if ending {
		c.change(word.shut)
	}
	c.mu.Unlock()
	if ending {
		_ = c.Conn.Close()
	}
}

// shut closes the connection for good.
func (c *conn) shut() error {
	c.mu.Lock()
	kept := false
	switch c.state() {
	case stateFresh, stateShaking, stateQueued, stateParked:
		kept = c.endLocked(stateClosed)
	case stateHijacked, stateClosed:
	default: // who has it tells the user
		c.change(word.shut)
	}
	c.mu.Unlock()
	err := c.Conn.Close()
	if kept {
		c.bury()
		c.feed.service.release()
	}
	return err
}

// shutFirst notes that a lease is about to be closed.
func (c *conn) shutFirst() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state() {
	case stateHijacked, stateClosed:
	default:
		c.change(word.shut)
	}
}

// bury tells the user that the connection is closed, when net/http can't, and the log of
// a handshake that failed, before. It may be called where the user must not be, with
// locks held.
func (c *conn) bury() {
	s := c.feed.server
	unshaken := c.isTLS() && !c.load().has(began) // perhaps
	if !unshaken && s.user.connState == nil {
		return
	}
	go func() {
		if unshaken {
			c.logHandshake()
		}
		s.tell(c.identity(), http.StateClosed)
	}()
}

// hangUp closes a connection that is kept, as net/http closes an idle one: over
// TLS with a farewell, which may block for a while.
func (c *conn) hangUp() {
	switch c.settled().state() {
	case stateFresh, stateShaking, stateQueued, stateParked:
		_ = c.identity().Close()
	}
}

// hangUpIdle is hangUp for a connection between two requests.
func (c *conn) hangUpIdle() {
	w := c.settled()
	if w.state() == stateParked || w.state() == stateQueued && w.has(began) {
		_ = c.identity().Close()
	}
}

// settled is load after a change that is under way. (leaseClosed holds mu until it is
// clear what becomes of the connection.)
func (c *conn) settled() word {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

// closeResuming closes a connection that net/http takes for new but would know as
// idle if it hadn't been parked: it closes both, but the new one only when that is
// some seconds old.
func (c *conn) closeResuming() {
	c.mu.Lock()
	w := c.load()
	resuming := w.resuming() && c.swap(w, w.shut())
	c.mu.Unlock()
	if resuming {
		_ = c.identity().Close()
	}
}

// understood notes that net/http has got all of a header, if SetReadDeadline didn't.
func (c *conn) understood() { c.change(func(w word) word { return w.clear(heading) }) }

// SetReadDeadline sets the read deadline, of which there are several: see conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	switch w := c.load(); {
	case w.state() == stateBusy && !w.has(heading):
		return c.Conn.SetReadDeadline(t)
	case w.ending():
		c.shutLease()
		return c.Conn.SetReadDeadline(t)
	case w.state() == stateIdle && !w.has(dated) && !w.has(waiting):
		// net/http's, or as good: nobody can be severing this. If the user's came between,
		// and before the next line, the two were set at the same time.
		c.real.set(instantOf(t))
		if c.swap(w, w.set(dated)) {
			return c.Conn.SetReadDeadline(t)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		w := c.load()
		to, now := w, true // now: the engine gets it now
		switch w.state() {
		case stateNew, stateFresh, stateShaking, stateQueued, stateParked:
			c.real.set(instantOf(t))
		case stateIdle:
			if w.has(dated) && !w.has(waiting) {
				// net/http has set the deadline of the wait, and now that of the header: it
				// has seen all it wanted of the next request in its buffer, without a Read.
				to = w.to(stateBusy)
				break
			}
			c.real.set(instantOf(t))
			to, now = w.set(dated), !w.has(severed) // or endWait sets it
		case stateOpening:
			if w.has(began) {
				return nil // too early: see resume
			}
			// net/http counts from when it has got the connection. We count from when it
			// was accepted. Over TLS both count from when hands were shaken, which net/http
			// may do again, in vain, with a deadline that it takes back.
			at, real := instantOf(t), c.real.get()
			if !c.isTLS() && real != 0 && (at == 0 || real < at) {
				return nil
			}
			c.real.set(at)
			now = !w.has(severed)
		case stateEnding, stateEnded:
			c.real.set(instantOf(t)) // since just now: it is as if the call had come later
			return nil
		case stateCut:
			to = w.to(stateShut) // a whole header came all the same
		case stateArrived, stateBusy:
			to = w.to(stateBusy)
			if w.has(heading) {
				// net/http has understood the header. It counts from when it got the
				// connection, not from when that was accepted, or sent four bytes.
				to = to.clear(heading)
				t = c.feed.server.requestDeadline(t, c.real.get())
			}
		}
		switch {
		case !c.swap(w, to):
			continue
		case !now:
			return nil
		}
		return c.Conn.SetReadDeadline(t)
	}
}

// SetDeadline sets the read and the write deadline.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetWriteDeadline sets the write deadline. net/http takes it away when a request is
// answered: without that a StateIdle is not net/http's. It also sets it if its first Read
// of a lease fails; leaseClosed makes up for that.
func (c *conn) SetWriteDeadline(t time.Time) error {
	switch w := c.load(); {
	case w.ending() && w.has(dated):
		c.shutLease()
	case w.state() == stateBusy && t.IsZero():
		c.change(func(w word) word {
			if w.state() == stateBusy {
				w = w.set(answered)
			}
			return w
		})
	}
	return c.Conn.SetWriteDeadline(t)
}

// The following are percore.Conn's, for a lease that lasts.

func (c *conn) Write(b []byte) (int, error) {
	c.mustLast()
	return c.Conn.Write(b)
}

func (c *conn) WriteBuffers(v *net.Buffers) (int64, error) {
	c.mustLast()
	return c.Conn.WriteBuffers(v)
}

func (c *conn) ReadBuffer(n int) (*pool.Buffer, error) {
	c.mustLast()
	return c.Conn.ReadBuffer(n)
}

func (c *conn) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	c.mustLast()
	return c.Conn.ReadReady(lend, takeBack)
}

func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	c.mustLast()
	return c.Conn.ReadFrom(r)
}

func (c *conn) CloseRead() error {
	c.mustLast()
	return c.Conn.CloseRead()
}

func (c *conn) CloseWrite() error {
	c.mustLast()
	return c.Conn.CloseWrite()
}

func (c *conn) SetLinger(sec int) error {
	c.mustLast()
	return c.Conn.SetLinger(sec)
}

func (c *conn) File() (*os.File, error) {
	c.mustLast()
	return c.Conn.File()
}

func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.mustLast()
	return c.Conn.SyscallConn()
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
	c.mustLast()
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
