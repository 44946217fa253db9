package httpadapter

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/pool"
)

// http1Stream is a Stream over HTTP/1. It has all that is needed of the exchange,
// which goes when the handler has returned: most of what it holds is the request.
//
// The connection belongs to the Stream's sender, first the handler's worker. When that has nothing more
// to send it leaves, and the connection waits for the next one, in the state serving or notified, with
// current as its Stream's watched part. So for the loop it is a request under way: the callback notices
// the client's end.
type http1Stream struct {
	Stream
	watched

	// guarded by Stream.mu until the handler has returned, then owned by the sender, with Stream.mu for
	// Header
	rest *http1.Response // nil: tail has what is left of it, or all
	tail http1.Tail

	asked bool // for the header: trailers may come of that; guarded by Stream.mu

	// owned by the sender, once the handler has returned
	bodyRead bool // of the request, so that the connection can serve another
	lingers  bool // see turn.lingers
	hadBody  bool
}

// detach makes the Stream of an exchange whose handler runs.
func (x *exchange) detach(ctx context.Context) (*Stream, error) {
	d := &http1Stream{watched: watched{conn: x.conn, canceler: x.canceler}}
	d.watched.stream = d
	d.rest = x.Response.Detach(detachedAnswerOut{d}) // first: a write of the answer may hold its lock, and want mu
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.hijacked:
		return nil, http.ErrHijacked
	case x.stream != nil:
		return nil, errDetached
	case x.ended, d.rest == nil:
		return nil, errReturned
	}
	d.init(d, join(x.req.Context(), ctx))
	d.wrote = d.rest.Wrote()
	if x.gone {
		d.dead, d.err = true, ErrClientGone
	}
	x.stream = d
	return &d.Stream, nil
}

// detach is for a handler that has detached its answer and returned. behind are the bytes behind its
// request that were read. It reports false if the connection waits, or is given up.
func (t *turn) detach(x *exchange, d *http1Stream, behind []byte) bool {
	c := t.c
	if len(behind) > 0 {
		c.keep(kept{bytes: bytes.Clone(behind)})
	}
	bodyRead, lingers := d.closeBody(x) // before the release: the body may have bytes of the buffer
	if behind := x.takeBehind(); len(behind) > 0 {
		c.keep(kept{bytes: behind})
	}
	t.release()
	if x.req.MultipartForm != nil {
		_ = x.req.MultipartForm.RemoveAll()
	}
	d.bodyRead, d.lingers, d.hadBody = bodyRead, lingers, x.body != nil
	d.takeOver(&x.watched)
	x.mu.Lock()
	x.rest = nil
	x.mu.Unlock()
	c.current.Store(&d.watched)
	if d.watching && c.state() == stateNotified {
		// The callback may have come in between, and have found neither watched part. If it was about
		// other bytes, or nothing, it comes again.
		c.change(connState.resumeServing)
		t.arm()
	}
	t.x = nil
	c.queue.counts.Add(countDetached, 1)
	d.compact()
	return t.serveStream(d)
}

// closeBody closes the request's body, of which the client may never send the rest. The end of the
// Stream ends the wait for it. As with net/http an answer that ends the connection doesn't wait for it.
func (d *http1Stream) closeBody(x *exchange) (bodyRead, lingers bool) {
	if x.body != nil && d.rest.EndsConn() {
		return x.body.leave()
	}
	d.Stream.mu.Lock()
	d.reads = true
	dead := d.dead
	d.Stream.mu.Unlock()
	if dead {
		_ = d.conn.shut()
	}
	bodyRead, lingers = x.closeBody()
	d.Stream.mu.Lock()
	d.reads = false
	d.Stream.mu.Unlock()
	return bodyRead, lingers
}

// leave closes the body, and leaves on the connection what has not come of it.
func (b *requestBody) leave() (bodyRead, lingers bool) {
	b.lock()
	if !b.ended && !b.closed && b.rest > 0 {
		b.early, b.linger = true, true
	}
	b.mu.Unlock()
	return b.finishLate()
}

// takeOver takes the watch for the client's end over from an exchange's watched part. A callback that
// still finds that looks for the other: see watchNext.
func (d *http1Stream) takeOver(x *watched) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	d.watched.mu.Lock()
	defer d.watched.mu.Unlock()
	d.gone, d.watching, d.rearmed, d.closeNotify = x.gone, x.watching, x.rearmed, x.closeNotify
}

// serveStream is the sender's turn with the connection. It reports false if the connection waits for
// the next sender, or is given up, and true if it can serve its next request, of which the worker has
// all that was read.
func (t *turn) serveStream(d *http1Stream) bool {
	c := t.c
	sent, reusable := false, false
	switch d.work() {
	case waits:
		return false // from here on the connection is another worker's
	case complete:
		sent, reusable = d.sendEnd()
	}
	d.watched.mu.Lock()
	d.watched.ended = true
	t.armed = d.watching
	d.watched.mu.Unlock()
	c.current.Store(nil)
	c.queue.counts.Add(countDetached, -1)
	d.cancel()
	c.finishStream(&d.Stream, sent)
	switch {
	case !sent:
		_ = c.shut() // without TLS's farewell, behind which an answer would seem to be complete
		return t.finish()
	case !reusable || !d.bodyRead:
		if d.hadBody {
			t.readBehind()
		}
		t.lingers = d.lingers
		return t.close()
	}
	_ = c.Conn.SetWriteDeadline(time.Time{})
	if !t.answered() {
		return false
	}
	t.resume()
	t.scanned = 0 // it was not scanned
	return true
}

// finishStream is Stream.finish, and logs a panic of the function of OnEnd.
func (c *conn) finishStream(s *Stream, sent bool) {
	defer func() {
		if reason := recover(); reason != nil {
			c.queue.server.logPanic(c, reason)
		}
	}()
	s.finish(sent)
}

// endPanicked cuts the answer of a handler that has panicked, or ended its goroutine. The client gets
// what net/http would send: what was written before Detach.
func (t *turn) endPanicked(d *http1Stream) {
	d.end(errPanicked)
	d.rest.Abort()
	t.send(d.rest.Out())
}

// Header implements outlet.
func (d *http1Stream) Header() http.Header {
	if d.wrote {
		return nil
	}
	d.asked = true
	d.restoreLocked()
	return d.rest.Header()
}

// WriteHeader implements outlet.
func (d *http1Stream) WriteHeader(status int, _ bool) {
	d.restoreLocked()
	d.rest.WriteHeader(status)
}

// restoreLocked makes the Response of an answer that has waited as a whole. There is no sender yet, or
// it calls this itself, after a Close without anything written.
func (d *http1Stream) restoreLocked() {
	if d.rest == nil {
		d.rest = d.tail.Response(detachedAnswerOut{d})
	}
}

func (d *http1Stream) write(p []byte, flush bool) (err error) {
	if d.rest == nil {
		return d.writeTail(p)
	}
	if len(p) > 0 {
		_, err = d.rest.Write(p)
	}
	if err == nil && flush {
		err = d.rest.FlushError()
		d.compact()
	}
	return err
}

// isWhole implements outlet.
func (d *http1Stream) isWhole() bool {
	if d.rest != nil {
		return d.rest.IsWhole()
	}
	return d.tail.IsWhole()
}

// compact drops the Response, if the tail is enough.
func (d *http1Stream) compact() {
	d.Stream.mu.Lock()
	defer d.Stream.mu.Unlock()
	if d.asked {
		return
	}
	if tail, ok := d.rest.Tail(); ok {
		d.tail, d.rest = tail, nil
	}
}

// chunkExtra is more than what comes around a chunk.
const chunkExtra = 32

func (d *http1Stream) writeTail(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	memory := pool.GetBytes(len(p) + chunkExtra)
	defer pool.PutBytes(memory)
	b, err := d.tail.Append((*memory)[:0], p)
	if err == nil && len(b) > 0 {
		_, err = d.conn.stream().write(b)
	}
	return err
}

// sendEnd ends the answer. It reports whether that worked, and whether the connection can serve another
// request.
func (d *http1Stream) sendEnd() (sent, reusable bool) {
	var err error
	d.Stream.mu.Lock()
	d.restoreLocked()
	d.Stream.mu.Unlock()
	if d.rest == nil {
		var last string
		if last, reusable = d.tail.End(); last != "" {
			_, err = d.conn.stream().write([]byte(last))
		}
	} else {
		reusable = d.rest.Finish()
		out := d.rest.Out()
		if len(out) > 0 {
			_, err = d.conn.stream().write(out)
		}
		http1.ReleaseOut(out)
		if err == nil {
			err = d.rest.Err()
		}
	}
	return d.settle(err), reusable
}

func (d *http1Stream) setWriteDeadline(t time.Time) error { return d.conn.SetWriteDeadline(t) }

func (d *http1Stream) writeTimeout() time.Duration { return d.conn.queue.server.srv.WriteTimeout }

func (d *http1Stream) start() { d.conn.queue.workers.Serve(d.conn) }

func (d *http1Stream) cut() { go d.conn.shut() }

// detachedAnswerOut is an http1Stream as the connection of its http1.Response. Only the sender calls it,
// so the handler has returned.
type detachedAnswerOut struct{ d *http1Stream }

// Write implements http1.Conn.
func (o detachedAnswerOut) Write(p []byte) (int, error) { return o.d.conn.stream().write(p) }

// Fail implements http1.Conn. The sender sees the error, too.
func (o detachedAnswerOut) Fail() {}

// KeepAlives implements http1.Conn.
func (o detachedAnswerOut) KeepAlives() bool { return o.d.conn.mayKeepAlive() }

// FinishBody implements http1.Conn. The body was closed when the handler returned.
func (o detachedAnswerOut) FinishBody() (reusable, tooLong bool) { return o.d.bodyRead, false }

// AppendDate implements http1.Conn.
func (o detachedAnswerOut) AppendDate(b []byte) []byte { return date.Append(b, time.Now()) }

// Logf implements http1.Conn.
func (o detachedAnswerOut) Logf(format string, args ...any) {
	o.d.conn.queue.server.logf(format, args...)
}
