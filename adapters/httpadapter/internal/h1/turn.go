package h1

import (
	"bytes"
	"cmp"
	"math"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/serving"
)

// turn is a worker's visit to a connection, from its wake-up until it waits again, or is given up. It
// reads the bytes that are there, and serves the requests among them: plain ones, and odd ones (odd.go).
//
// The engine's callback is armed while a handler runs, to notice the end of the client's stream (see
// waker), and stays armed when the connection waits afterwards. So a request costs one callback.
type turn struct {
	c       *Conn
	buf     *[]byte   // nil while nothing is buffered; turnBytes of the pool, or more for a long header
	have    int       // bytes at the start of buf that were read and not served yet
	scanned int       // of these, bytes that were found to be no whole header
	armed   bool      // the callback is armed, or has come, and the state is notified
	begun   bool      // the deadline of the header under way was set
	lingers bool      // the client may still be sending when the connection is closed
	x       *exchange // whose handler runs; nil: none
	head    http1.Head
	odd     oddHeader // of the header under way
}

func (c *Conn) serve() {
	t := turn{c: c}
	over := false
	defer func() {
		if !over {
			t.abandon()
		}
	}()
	goesOn := true
	if w := c.current.Load(); w == nil {
		t.resume()
	} else {
		goesOn = t.serveDetached(w.detached) && t.serveBuffered() && t.wait()
	}
	for goesOn && t.read() && t.serveBuffered() && t.wait() {
	}
	t.release()
	over = true
}

// abandon closes the connection after a handler or a hook that has ended its goroutine.
func (t *turn) abandon() {
	hijacked := false
	w := t.c.current.Swap(nil)
	if w != nil && w.detached != nil {
		defer w.detached.finish(false) // last: it may end the goroutine, too
		t.endPanicked(w.detached)
	}
	if x := t.x; w != nil && x != nil {
		if hijacked, _, _ = x.end(); hijacked {
			x.dropBody()
		} else {
			t.send(x.Out())
			x.closeBody()
		}
	}
	if !hijacked && t.c.state() != stateClosed {
		t.close()
	}
	t.release()
}

// resume takes the bytes that were kept while the connection waited.
func (t *turn) resume() {
	var k kept
	if p := t.c.kept; p != nil {
		k, t.c.kept = *p, nil
	}
	switch {
	case len(k.bytes) > turnBytes:
		long := k.bytes[:cap(k.bytes)]
		t.buf, t.have = &long, len(k.bytes)
	case len(k.bytes) > 0:
		t.have = copy(t.memory(), k.bytes)
	}
	t.begun, t.scanned, t.odd = k.dated, t.have, k.odd
}

// memory returns the buffer, which it takes if there is none.
func (t *turn) memory() []byte {
	if t.buf == nil {
		t.buf = pool.GetBytes(turnBytes)
	}
	return *t.buf
}

// release returns the buffer. No handler has a part of it: see exchange.
func (t *turn) release() {
	releaseBuffer(t.buf)
	t.buf, t.have, t.scanned = nil, 0, 0
}

// isFull reports whether a header fills the buffer.
func (t *turn) isFull() bool { return t.buf != nil && t.have == len(*t.buf) }

// grow makes room for more of a header, in larger steps where few headers come, since each step is
// garbage.
func (t *turn) grow() {
	factor := 2
	if len(*t.buf) >= plainBytesMost {
		factor = 4
	}
	long := make([]byte, min(factor*len(*t.buf), t.c.server().oddBytesMax()))
	copy(long, *t.buf)
	releaseBuffer(t.buf)
	t.buf = &long
}

// read reads the bytes that are there. It reports false if the connection is given up.
func (t *turn) read() bool {
	if t.c.state() == stateNotified {
		t.armed = false
	}
	if _, ok := t.c.change(connState.resumeServing); !ok {
		return t.c.finish() // closed by another
	}
	n, err := t.c.transport().tryRead(t.memory()[t.have:])
	switch {
	case err == nil:
		t.odd.pieces = t.odd.pieces || n > 0 && t.have >= peekBytes
		t.have += n
		return true
	case t.have > 0: // in the middle of a header
		t.odd.why = cmp.Or(t.odd.why, http1.Ended)
		_, ok := t.serveOdd(err)
		return ok
	}
	return t.close()
}

// serveBuffered serves the complete requests. It reports false if the connection is given up.
func (t *turn) serveBuffered() bool {
	for t.have > 0 {
		p := t.memory()[:t.have]
		if t.looksForPreface() {
			if begins, whole := beginsHTTP2(p); whole && begins {
				return t.becomeHTTP2(p)
			} else if begins {
				if t.have > len("PRI") { // no method of a request that HTTP knows
					t.limitPreface()
				}
				t.scanned = t.have
				return true
			}
		}
		if !t.c.server().HTTP1 {
			return t.close() // as net/http does
		}
		if t.odd.why != http1.Incomplete {
			switch waits, ok := t.serveOdd(nil); {
			case waits:
				t.scanned = t.have
				return true
			case !ok:
				return false
			}
			continue
		}
		limit := t.c.server().plainBytesMax()
		if t.scanned > turnBytes && t.have < limit && bytes.IndexByte(p[t.scanned:], '\n') < 0 {
			t.scanned = t.have
			return true // only a line's end can change the verdict on a long header
		}
		switch v := t.head.Scan(p, limit); v {
		case http1.Plain:
		case http1.Incomplete:
			t.scanned = t.have
			return true
		default:
			t.odd.why = v
			continue
		}
		if t.head.Fields > t.c.server().FieldsMax {
			t.odd.why = http1.Fields
			continue
		}
		x := t.newExchange(p)
		if x == nil {
			t.odd.why = http1.Target // which net/http refuses
			continue
		}
		if !t.serveExchange(x, p, t.c.server().HTTP.Handler) {
			return false
		}
	}
	return true
}

func (t *turn) looksForPreface() bool { return t.c.server().ClearHTTP2 && !t.c.load().has(began) }

// beginsHTTP2 reports whether p is the preface, or its beginning, and whether it is whole.
func beginsHTTP2(p []byte) (begins, whole bool) {
	n := min(len(p), len(http2.Preface))
	return string(p[:n]) == http2.Preface[:n], n == len(http2.Preface)
}

// limitPreface sets the deadline for the rest of a preface, unless there is one.
func (t *turn) limitPreface() {
	c := t.c
	limit := c.server().beginTimeout()
	if limit == 0 || c.server().headerTimeout() > 0 {
		return
	}
	if at := instant(monotime.After(limit)); c.real.get() == 0 || at < c.real.get() {
		c.setRealDeadline(at)
	}
}

// becomeHTTP2 gives the connection to the host, with the bytes that were read. It reports false.
func (t *turn) becomeHTTP2(p []byte) bool {
	t.disarm()
	unread := append([]byte(nil), p...)
	t.release()
	t.c.Host().Switch(t.c, unread)
	return false
}

// newExchange makes the exchange of the request at the start of p, whose head was scanned. Its body
// follows there, as far as it has come. It returns nil if net/http must refuse the request.
func (t *turn) newExchange(p []byte) *exchange {
	h := &t.head
	x, ctx := t.c.allocExchange(h.ContentLength)
	if !h.Request(ctx, p, x.req) {
		x.canceler.Cancel()
		return nil
	}
	x.init(p[h.Bytes:], h.Expects || h.Is10)
	return x
}

// serveExchange serves a request. p has its header, what has come of its body, and what follows. It
// reports false if the connection is given up.
func (t *turn) serveExchange(x *exchange, p []byte, handler http.Handler) bool {
	c := t.c
	if !c.Host().Begins() {
		x.canceler.Cancel()
		return t.close() // as net/http does with a request that comes after Shutdown
	}
	c.queue.counts.Add(CountRequests, 1)
	if !t.begin(x) {
		x.end()
		c.current.Store(nil)
		return t.close()
	}
	used := t.have - len(x.rest)
	if used == t.have {
		t.giveBuffer(x)
	}
	x.run(handler)
	hijacked, watching, detached := x.end()
	if detached != nil {
		return t.detach(x, detached, p[used:max(used, t.have)])
	}
	if hijacked {
		x.dropBody()
		c.current.Store(nil)
		return false
	}
	t.armed = watching
	if !t.answer(x) {
		return t.close()
	}
	if t.have > 0 {
		t.have = copy(p, p[used:t.have])
	}
	t.takeBehind(x)
	return t.answered()
}

// answered lets the connection go on after an answer. It reports false if the connection is given up.
func (t *turn) answered() bool {
	c := t.c
	t.begun, t.scanned, t.odd = false, 0, oddHeader{}
	c.change(connState.answerServed)
	if !c.ReportSafely(http.StateIdle) || !c.Host().KeepAlives() {
		return t.close()
	}
	c.setRealDeadline(c.server().idleDeadline())
	return true
}

// answer sends the rest of x's answer. It reports false if the connection can't serve another request.
func (t *turn) answer(x *exchange) bool {
	c := t.c
	reusable := x.returned && x.Finish()
	c.current.Store(nil)
	if x.detached != nil {
		t.endPanicked(x.detached)
		x.detached.finish(false)
	}
	sent := t.send(x.Out())
	complete, linger := x.closeBody()
	if x.returned && x.req.MultipartForm != nil {
		_ = x.req.MultipartForm.RemoveAll()
	}
	_ = c.Conn.SetWriteDeadline(time.Time{}) // a handler or a hook may have set one on the connection
	if sent && reusable && complete {
		return true
	}
	if sent && x.body != nil {
		t.readBehind()
	}
	t.lingers = x.returned && linger
	return false
}

// readBehind reads the few bytes, usually an empty line, that a client may have sent after a body, when
// the connection is about to be closed. net/http has them in its buffer already. If bytes are unread
// when a connection is closed the kernel sends a reset, which can take the answer away from the client
// (RFC 9112, section 9.6).
func (t *turn) readBehind() {
	t.have = 0
	_, _ = t.c.transport().tryRead(t.memory())
}

// giveBuffer gives the worker's buffer to the body of x, the last request in it, so that a handler that
// waits for long holds none once the body was read.
func (t *turn) giveBuffer(x *exchange) {
	if b := x.body; b != nil && len(b.left) > 0 {
		b.buffer, t.buf = t.buf, nil
	}
	t.release()
	t.have = 0
}

// send writes p, and reports whether that worked.
func (t *turn) send(p []byte) bool {
	var err error
	if len(p) > 0 {
		_, err = t.c.transport().write(p)
	}
	http1.ReleaseOut(p)
	return err == nil
}

// begin prepares the connection for a handler. It reports false if a hook has panicked.
func (t *turn) begin(x *exchange) bool {
	c := t.c
	t.limitRequest(x)
	t.x = x
	c.current.Store(&x.watched)
	c.change(func(s connState) (connState, bool) { return s.serveRequest(x.req.Method) })
	if !c.ReportSafely(http.StateActive) {
		return false
	}
	if x.body != nil {
		t.disarm()
		if c.state() == stateShut {
			x.clientGone() // before x was there to notice
		}
		return true
	}
	c.setRealDeadline(0) // which the hook may have set
	if t.armed && c.state() == stateNotified {
		// The callback came during an earlier request of a pipeline, perhaps about bytes that were read
		// since, so it means nothing to this request.
		c.change(connState.resumeServing)
		t.armed = false
	}
	if !t.armed {
		t.arm()
	}
	if c.transport().hasEnded() || c.state() == stateShut {
		x.clientGone() // before x was there to notice
	}
	return true
}

// limitRequest sets the deadlines of a request whose header was read.
func (t *turn) limitRequest(x *exchange) {
	c := t.c
	if x.awaitsBody() {
		c.setRealDeadline(t.bodyDeadline())
	} else {
		c.setRealDeadline(0) // as in net/http while it watches for the client's end
	}
	if d := c.server().HTTP.WriteTimeout; d > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(d))
	}
}

// bodyDeadline returns the deadline for the rest of a body. The time for a request begins with its
// header.
func (t *turn) bodyDeadline() instant {
	c := t.c
	s := c.server()
	var header instant
	if t.begun || !c.load().has(began) {
		header = c.real.get()
	}
	switch {
	case s.HTTP.ReadTimeout <= 0:
		return 0
	case s.headerTimeout() == 0, header == 0, header == math.MaxInt64:
		return deadlineIn(s.HTTP.ReadTimeout)
	}
	return instantOf(header.time().Add(s.HTTP.ReadTimeout - s.headerTimeout()))
}

// arm arms the callback.
func (t *turn) arm() {
	t.armed = true
	t.c.arm()
}

// disarm disarms the callback, which would come for the bytes of the body: see bodyEnded.
func (t *turn) disarm() {
	if t.armed {
		t.c.Conn.CancelOnReadable()
		t.c.change(connState.resumeServing) // it may have come
		t.armed = false
	}
}

// wait lets the connection wait for more. It reports true if there is, or may be, more already. If not
// the turn is over: the connection may already be another worker's.
func (t *turn) wait() bool {
	c := t.c
	if t.isFull() {
		t.grow()
		return true
	}
	if c.transport().mustRead() {
		return true
	}
	if t.takeOut() {
		return false
	}
	t.keep()
	if !t.armed {
		t.arm()
	}
	if _, ok := c.change(connState.rest); ok {
		c.rested()
		return false
	}
	t.resume()
	return true // the callback has come, or the connection is closed: see read
}

// takeOut gives a connection of which nothing is buffered to HandOver, if one is under way, and reports
// whether it did. The next request may already be in the kernel: quick clients move, too.
func (t *turn) takeOut() bool {
	m := t.c.queue.mover.Load()
	return m != nil && t.have == 0 && !t.begun && m.take(t.c, connState.takeOutServed, t.armed)
}

// keep keeps the bytes that were read of an incomplete header. Once there are a few, the time for the
// header runs; for a connection's first header it has run since the accept.
func (t *turn) keep() {
	if t.have == 0 && !t.begun {
		return
	}
	t.startHeader()
	k := kept{odd: t.odd, dated: t.begun} // without bytes if all were an empty line
	switch {
	case t.have > turnBytes:
		k.bytes, t.buf = (*t.buf)[:t.have], nil // too much to copy for each byte that comes
	case t.have > 0:
		k.bytes = bytes.Clone((*t.buf)[:t.have])
	}
	t.c.kept = &k
}

// peekBytes is how many bytes of a later request net/http needs before it considers the connection
// active. If it gets fewer before the end or an error, it closes without an answer.
const peekBytes = 4

// startHeader sets the deadline for a header of which enough has come.
func (t *turn) startHeader() {
	if t.have < peekBytes || t.begun {
		return
	}
	t.begun = true
	if c := t.c; c.load().has(began) {
		c.setRealDeadline(c.server().headerDeadline())
	}
}

// close closes the connection and reports false. If the client is still sending, close ends our stream
// first, and closes later: the kernel would send a reset, which can take the answer away.
func (t *turn) close() bool {
	c := t.c
	if t.lingers {
		c.transport().closeWrite()
		time.AfterFunc(serving.LingerTime, func() { // not the loop's, which may end with the connection
			later := turn{c: c}
			later.close()
		})
		return false
	}
	c.mu.Lock()
	c.change(connState.close)
	c.mu.Unlock()
	return t.c.finish()
}
