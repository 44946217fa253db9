package httpadapter

import (
	"io"
	"net"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/seam"
)

// This file has the part of net/http: it gets a connection as a lease, reads, writes, and gives it
// back when its Read has returned io.EOF. SetReadDeadline and its like are in timeouts.go.

// leaseOut turns a queued connection into a lease for net/http, or returns nil if it
// was closed in the meantime.
func (c *conn) leaseOut() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateQueued {
		return nil
	}
	if c.isTLS() && c.ext.lease == net.Conn(c.ext.tls) {
		c.giveAwayLocked()
		return c.ext.lease
	}
	tick := c.queue.lend(c)
	if to, _ := c.change(func(s connState) (connState, bool) { return s.lease(tick) }); to.has(began) {
		c.queue.counts.Add(countUnparks, 1)
	}
	if c.isTLS() {
		return c.ext.lease
	}
	return c
}

func (c *conn) giveAwayLocked() {
	c.queue.forget(c)
	c.change(connState.giveAway)
	if c.ext.tls.ConnectionState().HandshakeComplete {
		c.queue.counts.Add(countHTTP2, 1)
	} // else net/http reports it to the log and the client
}

// leaseClosed is for net/http's StateClosed: the goroutine that served the lease has closed it, and does
// nothing more with it. It reports whether the connection is parked now. Otherwise it is closed, or the
// user has called the hook.
func (c *conn) leaseClosed() (parked bool) {
	c.mu.Lock()
	if c.lease().phase() == phaseEnded && c.keepLocked() {
		c.mu.Unlock()
		if !c.offer() {
			c.arm()
		}
		return true
	}
	lease := c.lease().phase() == phaseEnded // alone was closed
	if !c.queue.call.parks() {
		_, lease = c.changeLease(leaseState.closeLeased) // an unknown net/http may do that after this, or never
	}
	ended := c.endLocked(connState.end)
	c.mu.Unlock()
	if lease {
		_ = c.identity().Close()
	}
	if ended {
		c.queue.call.release()
	}
	return false
}

// keepLocked keeps a connection that net/http has given back, and returns false if net/http
// would never take it another time.
func (c *conn) keepLocked() bool {
	// Kept first, then asked: SetKeepAlivesEnabled does it the other way round.
	if !c.queue.takeBack(c) || c.queue.call.keepAlivesOff.Load() {
		return false
	}
	to, _ := c.change(connState.giveBack)
	if to.state() == stateParked {
		c.queue.counts.Add(countParks, 1)
	}
	if c.queue.call.limits != nil && to.state() == stateParked && c.real.get() == 0 {
		c.real.set(c.queue.call.idleDeadline()) // net/http has set none
	}
	c.restoreReadDeadline()
	if leaseState(to)&(predated|dated|bare) == 0 {
		// Nothing came of the lease, but net/http may have set a write deadline. That matters:
		// crypto/tls answers a KeyUpdate as it reads.
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
	return true
}

// hijacked is for net/http's StateHijacked, which comes while a request is under way.
func (c *conn) hijacked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endLocked(connState.hijack) {
		seam.RestoreFinalizer(c.Conn)
		c.queue.counts.Add(countHijacked, 1)
		c.queue.call.release()
	}
}

// Read reads for net/http, or for crypto/tls.
func (c *conn) Read(p []byte) (int, error) {
	if c.peeksPreface(p) {
		return 0, nil
	}
	switch s := c.load(); {
	case s.state() == stateNew && c.isTLS():
		c.ext.begun.Store(true)
		return c.Conn.Read(p)
	case s.state() == stateHandshake:
		return c.ext.shaking.Load().Await(c.Conn.Read, p)
	case c.isTLS(), s.phase() == phaseBusy && !c.unread.hasBytes():
		return c.Conn.Read(p)
	}
	return c.read(p)
}

// readNext reads the next bytes for net/http: those that the fast path has left, then the connection's,
// or those of the TLS above it.
func (c *conn) readNext(p []byte) (int, error) {
	if n := c.unread.read(p); n > 0 {
		return n, nil
	}
	if c.isTLS() {
		return c.ext.tls.Read(p)
	}
	return c.Conn.Read(p)
}

// read reads for net/http.
func (c *conn) read(p []byte) (int, error) {
	switch s := c.lease(); {
	case s.ending():
		return 0, io.EOF
	case s.waits() && len(p) > 0:
		return c.awaitRequest(p)
	case s.phase() == phaseArrived:
		n, err := c.readNext(p)
		if n > 0 {
			c.changeLeaseLocked(leaseState.readMore)
		}
		return n, err
	}
	return c.readNext(p)
}

// awaitRequest reads the first bytes of what net/http takes for a request. It returns io.EOF when it is
// time to park.
func (c *conn) awaitRequest(p []byte) (int, error) {
	c.beginWait(len(p))
	n, err := c.readNext(p)
	if s := c.lease(); s.phase() == phaseOpening { // which only this goroutine changes
		if s.has(leaseBegan) {
			n, err = c.resume(p, n, err)
		}
		if n > 0 && n < len(http2Begin) && err == nil && mayBegin(p, http2Begin[:n]) {
			n = c.completeBegin(p, n)
		}
		if n >= len(http2Begin) && s.has(leaseBegan) && mayBegin(p[:n], http2Begin) {
			c.refuseHTTP2()
		}
	}
	return c.endWait(p[:n], len(p), err)
}

// completeBegin reads on after the first n bytes of a lease, which may be HTTP/2's, until
// they show whether they are. It returns how many it has then. An error comes again.
func (c *conn) completeBegin(p []byte, n int) int {
	_ = c.stopParking(nil)
	for n < min(len(http2Begin), len(p)) && mayBegin(p[:n], http2Begin) {
		m, err := c.readNext(p[n:])
		n += m
		if err != nil {
			break
		}
	}
	return n
}

// refuseHTTP2 is for a connection that has had requests, and now sends the preface of HTTP/2. On such a
// connection net/http takes the preface for a request, "PRI * HTTP/2.0", calls the handler and closes
// the connection. But to net/http the lease is a new connection, on which it would switch to HTTP/2.
// Behind a proxy that shares connections among clients, one of them could hide requests from the proxy
// that way.
//
// On a new connection net/http peeks at as many bytes as the preface has. If a hundred of those reads
// find nothing bufio gives up (io.ErrNoProgress), and net/http goes on with a request.
func (c *conn) refuseHTTP2() {
	if !c.isTLS() && protocols(c.queue.server.srv).UnencryptedHTTP2() {
		c.remember().refuses = emptyReadsMax
	}
}

// emptyReadsMax is more than bufio's maxConsecutiveEmptyReads, for both parts of the preface.
const emptyReadsMax = 250

// http2Preface is all that the client's preface has (RFC 9113, 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// peeksPreface reports whether net/http peeks at the preface with this Read, and must find nothing. A
// net/http that doesn't give up after so many Reads isn't one that is known: the connection is closed.
func (c *conn) peeksPreface(p []byte) bool {
	if c.isTLS() {
		return false // and a watch may read while a worker keeps bytes
	}
	d := c.unread
	if d == nil || d.refuses == 0 {
		return false
	}
	if d.refuses--; len(p) > len(http2Preface) {
		d.refuses = 0
		return false
	}
	if d.refuses == 0 {
		_ = c.Close()
	}
	return true
}

// beginWait notes that a Read into a slice of size bytes waits for a request.
func (c *conn) beginWait(size int) {
	q := c.queue
	s, ok := c.changeLease(func(s leaseState) (leaseState, bool) { return s.beginWait(size, q.sweeper.ticks.Load(), q.call.way) })
	switch {
	case !ok || s.phase() == phaseOpening:
	case s.has(parkable) && (q.parksAtOnce || q.handover.Load() != nil || !s.has(bare) && c.unread != nil && c.unread.comesBack()):
		c.expireRead(s)
	case s.has(dated) && size != probe.ReadBytes:
		q.counts.Add(countBuffered, 1)
	}
}

// endWait decides the result of a Read that waited for a request. p is what it has read into a slice of
// size bytes. The result is p, an error, or io.EOF if it is time to park.
func (c *conn) endWait(p []byte, size int, err error) (int, error) {
	if s := c.lease(); s.phase() == phaseIdle && !s.has(expired) && len(p) > 0 {
		if to := s.endWait(p, size, false); to.phase() == phaseBusy && c.swapLease(s, to) {
			return len(p), err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.lease() // which does not change now: we have mu, and serve the lease
	timeToPark := c.endedByUs(s, err)
	to := s.endWait(p, size, timeToPark)
	if len(p) == 0 && !timeToPark && isTimeout(err) {
		to = s.timeOut(size, c.queue.call.way)
	}
	if to.phase() == phaseHTTP2 {
		c.queue.forget(c)
		c.queue.counts.Add(countHTTP2, 1)
	}
	c.swapLease(s, to)
	switch {
	case to.phase() == phaseEnding:
		return 0, io.EOF
	case s.has(expired):
		c.restoreReadDeadline()
	}
	if timeToPark {
		err = nil // crypto/tls looks for more than the data that it has
	}
	return len(p), err
}

// endedByUs reports whether a Read failed because it is time to park.
func (c *conn) endedByUs(s leaseState, err error) bool {
	return s.has(expired) && isTimeout(err) && !c.real.get().passed()
}

// resume treats the first n bytes after parking as net/http would have if it had waited itself. net/http
// takes a connection for active once it has read four bytes, and after a POST it skips the empty line
// that some old clients send behind the body. resume returns bytes or an error, never both.
func (c *conn) resume(p []byte, n int, err error) (int, error) {
	if n == 0 {
		return 0, err
	}
	err = c.stopParking(err)
	for n < probe.PeekBytes && n < len(p) && err == nil {
		var m int
		m, err = c.readNext(p[n:])
		n += m
	}
	if n < probe.PeekBytes && err != nil {
		return 0, err
	}
	if c.unread == nil || !c.unread.dated {
		c.startHeader()
	}
	n = copy(p, c.lease().skipNewlines(p[:n]))
	for n == 0 && err == nil {
		n, err = c.readNext(p)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// stopParking keeps a connection from being parked during a Read that has got its first bytes: they are
// nowhere else, so the Read goes on for as long as net/http would wait. It returns the Read's error, or
// nil if the Read has only failed because it was time to park.
func (c *conn) stopParking(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.lease()
	c.swapLease(s, s.resume())
	if s.has(expired) {
		c.restoreReadDeadline()
	}
	if c.endedByUs(s, err) {
		return nil
	}
	return err
}

// mustLast closes the connection if a Read of net/http's has returned io.EOF to park it. The net/http
// that is known closes its lease then and calls nothing else. A lease that is used can't be given back:
// an answer would belong to the next request, so would a deadline, and a half-close is permanent.
func (c *conn) mustLast() {
	if c.lease().ending() {
		c.closeEnding()
	}
}

func (c *conn) closeEnding() {
	_, ending := c.changeLeaseLocked(func(s leaseState) (leaseState, bool) { return s.close(), s.ending() })
	if ending {
		_ = c.Conn.Close()
	}
}

// The following are percore.Conn's, for a lease that lasts.

func (c *conn) Write(b []byte) (int, error) {
	c.mustLast()
	if c.isTLS() {
		return c.writeRecords(b)
	}
	return c.Conn.Write(b)
}

// writeRecords writes for crypto/tls. It writes nothing behind a write that has failed, a timeout say:
// the client would take crypto/tls' farewell for the rest of the record, and report a bad MAC.
func (c *conn) writeRecords(b []byte) (n int, err error) {
	if c.ext.cut == nil {
		n, err = c.ext.shaking.Load().Await(c.Conn.Write, b) // others compute meanwhile
		c.ext.cut = err
		return n, err
	}
	return 0, c.ext.cut
}

func (c *conn) WriteBuffers(v *net.Buffers) (int64, error) {
	c.mustLast()
	return c.Conn.WriteBuffers(v)
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
