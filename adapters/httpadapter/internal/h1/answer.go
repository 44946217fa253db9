package h1

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/pool"
)

// Answer is the rest of a detached answer. It has all it needs from the exchange, which is dropped when
// the handler has returned, and with it the request.
//
// The connection belongs to the sender, at first the handler's worker. When that has nothing more to
// send it leaves, and the connection waits for the next one, in the state serving or notified, with the
// answer's watched as current. So for the loop it is a request under way, and the callback notices the
// client's end.
//
// Write, Flush and Finish are for the owner's Work, and may block.
type Answer struct {
	watched
	owner semantics.Owner // immutable

	// owned by the sender, once the handler has returned; guarded by watched.mu for Header and WriteHeader
	rest *http1.Response // nil: tail has what is left of it, or all
	tail http1.Tail

	asked bool // for the header: trailers may come of that; guarded by watched.mu

	// owned by the sender, once the handler has returned
	bodyRead bool // of the request, so that the connection can serve another
	reusable bool // the answer allows that
	lingers  bool // see turn.lingers
	hadBody  bool
}

func (x *exchange) Detach(a *Answer, o semantics.Owner) (ctx context.Context, wrote bool, err error) {
	a.conn, a.canceler, a.owner = x.conn, x.canceler, o
	a.watched.detached = a
	a.rest = x.Response.Detach(detachedAnswerOut{a}) // first: a write of the answer may hold its lock, and want mu
	gone, err := x.setAnswer(a)
	if err != nil {
		return nil, false, err
	}
	if gone {
		o.Gone(nil)
	}
	return x.req.Context(), a.rest.Wrote(), nil
}

func (x *exchange) setAnswer(a *Answer) (gone bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.hijacked:
		return false, http.ErrHijacked
	case x.detached != nil:
		return false, semantics.ErrDetached
	case x.ended, a.rest == nil:
		return false, semantics.ErrReturned
	}
	x.detached = a
	return x.gone, nil
}

// detach is for a handler that has detached its answer and returned. behind was read after its request.
// It reports false if the connection waits, or is given up.
func (t *turn) detach(x *exchange, a *Answer, behind []byte) bool {
	c := t.c
	if len(behind) > 0 {
		c.kept = &kept{bytes: bytes.Clone(behind)}
	}
	bodyRead, lingers := a.closeBody(x) // before the release: the body may have bytes of the buffer
	if behind := x.takeBehind(); len(behind) > 0 {
		c.kept = &kept{bytes: behind}
	}
	t.release()
	if x.req.MultipartForm != nil {
		_ = x.req.MultipartForm.RemoveAll()
	}
	a.bodyRead, a.lingers, a.hadBody = bodyRead, lingers, x.body != nil
	a.takeOver(&x.watched)
	x.mu.Lock()
	x.rest = nil
	x.mu.Unlock()
	c.current.Store(&a.watched)
	if a.watching && c.state() == stateNotified {
		// The callback may have come in between, and have found neither watched. If it was about other bytes,
		// or nothing, it comes again.
		c.change(connState.resumeServing)
		t.arm()
	}
	t.x = nil
	c.queue.counts.Add(CountDetached, 1)
	a.compact()
	return t.serveDetached(a)
}

// closeBody closes the request's body. The client may never send the rest: the wait for it ends with the
// answer, and an answer that ends the connection doesn't wait, as with net/http.
func (a *Answer) closeBody(x *exchange) (bodyRead, lingers bool) {
	if x.body != nil && a.rest.EndsConn() {
		return x.body.leave()
	}
	if a.owner.Blocks(true) {
		_ = a.conn.shut()
	}
	bodyRead, lingers = x.closeBody()
	a.owner.Blocks(false)
	return bodyRead, lingers
}

// leave closes the body without waiting for the rest.
func (b *requestBody) leave() (bodyRead, lingers bool) {
	b.lock()
	if !b.ended && !b.closed && (b.rest > 0 || b.chunks != nil) {
		b.early, b.linger = true, true
	}
	b.mu.Unlock()
	return b.finishLate()
}

// takeOver takes over the watch for the client's end from an exchange. A callback that still finds the
// exchange looks for the other: see watchNext.
func (a *Answer) takeOver(x *watched) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	a.watched.mu.Lock()
	defer a.watched.mu.Unlock()
	a.gone, a.watching, a.rearmed, a.closeNotify = x.gone, x.watching, x.rearmed, x.closeNotify
}

// serveDetached is the sender's turn with the connection. It reports true if the connection can serve
// its next request, and false if it waits for the next sender, or is given up.
func (t *turn) serveDetached(a *Answer) bool {
	c := t.c
	over, sent := a.owner.Work()
	if !over {
		return false // from here on the connection is another worker's
	}
	a.watched.mu.Lock()
	a.watched.ended = true
	t.armed = a.watching
	a.watched.mu.Unlock()
	c.current.Store(nil)
	c.queue.counts.Add(CountDetached, -1)
	a.canceler.Cancel()
	a.finish(sent)
	switch {
	case !sent:
		_ = c.shut() // without close_notify, after which the answer would seem to be complete
		return c.finish()
	case !a.reusable || !a.bodyRead:
		if a.hadBody {
			t.readBehind()
		}
		t.lingers = a.lingers
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

// finish calls the owner's Finish, and logs a panic.
func (a *Answer) finish(sent bool) {
	defer a.conn.logsPanic()
	a.owner.Finish(sent)
}

// endPanicked cuts the answer of a handler that has panicked, or ended its goroutine. As with net/http,
// the client gets the bytes written before Detach.
func (t *turn) endPanicked(a *Answer) {
	a.owner.Gone(semantics.ErrPanicked)
	a.rest.Abort()
	t.send(a.rest.Out())
}

// Header returns the header, or nil if it is fixed already.
func (a *Answer) Header(wrote bool) http.Header {
	if wrote {
		return nil
	}
	a.watched.mu.Lock()
	defer a.watched.mu.Unlock()
	a.asked = true
	a.restoreLocked()
	return a.rest.Header()
}

// WriteHeader fixes the header.
func (a *Answer) WriteHeader(status int, _ bool) {
	a.watched.mu.Lock()
	defer a.watched.mu.Unlock()
	a.restoreLocked()
	a.rest.WriteHeader(status)
}

// restoreLocked makes the Response of an answer of which nothing was sent. There is no sender yet, or it
// is the caller.
func (a *Answer) restoreLocked() {
	if a.rest == nil {
		a.rest = a.tail.Response(detachedAnswerOut{a})
	}
}

// Write writes a part of the body. It returns no count, for which p would stay in memory while the
// client doesn't read.
func (a *Answer) Write(p []byte) error {
	if a.rest == nil {
		return a.writeTail(p)
	}
	_, err := a.rest.Write(p)
	return err
}

// Flush sends the bytes written so far.
func (a *Answer) Flush() error {
	if a.rest == nil {
		return nil
	}
	err := a.rest.FlushError()
	a.compact()
	return err
}

// IsComplete reports whether the header is all of the answer, so that nothing waits for it.
func (a *Answer) IsComplete() bool {
	if a.rest != nil {
		return a.rest.IsWhole()
	}
	return a.tail.IsWhole()
}

// compact drops the Response if the tail is enough: while the answer waits it takes much less memory.
func (a *Answer) compact() {
	a.watched.mu.Lock()
	defer a.watched.mu.Unlock()
	if a.asked {
		return
	}
	if tail, ok := a.rest.Tail(); ok {
		a.tail, a.rest = tail, nil
	}
}

// chunkExtra is more than the bytes around a chunk.
const chunkExtra = 32

func (a *Answer) writeTail(p []byte) error {
	memory := pool.GetBytes(len(p) + chunkExtra)
	defer pool.PutBytes(memory)
	b, err := a.tail.Append((*memory)[:0], p)
	if err == nil && len(b) > 0 {
		_, err = a.conn.transport().write(b)
	}
	return err
}

// Finish ends the answer after what was written, and returns an error if not all was sent. A cut answer
// ends with its connection.
func (a *Answer) Finish(complete bool) (err error) {
	if !complete {
		return nil
	}
	a.watched.mu.Lock()
	a.restoreLocked()
	a.watched.mu.Unlock()
	if a.rest == nil {
		var last string
		if last, a.reusable = a.tail.End(); last != "" {
			_, err = a.conn.transport().write([]byte(last))
		}
		return err
	}
	a.reusable = a.rest.Finish()
	out := a.rest.Out()
	if len(out) > 0 {
		_, err = a.conn.transport().write(out)
	}
	http1.ReleaseOut(out)
	if err == nil {
		err = a.rest.Err()
	}
	return err
}

// SetWriteDeadline sets the time after which writes fail.
func (a *Answer) SetWriteDeadline(t time.Time) error { return a.conn.SetWriteDeadline(t) }

// WriteTimeout returns the WriteTimeout of the http.Server, or 0 for no limit.
func (a *Answer) WriteTimeout() time.Duration { return a.conn.server().HTTP.WriteTimeout }

// Start makes a goroutine call the owner's Work.
func (a *Answer) Start() { a.conn.queue.workers.Serve(a.conn) }

// Cut closes the connection. It doesn't block.
func (a *Answer) Cut() { go a.conn.shut() }

// detachedAnswerOut is an Answer as the connection of its http1.Response, for the sender.
type detachedAnswerOut struct{ a *Answer }

func (o detachedAnswerOut) Write(p []byte) (int, error) { return o.a.conn.transport().write(p) }

func (o detachedAnswerOut) Fail()            {} // the sender sees the error, too
func (o detachedAnswerOut) KeepAlives() bool { return o.a.conn.server().mayKeepAlive() }

// FinishBody does nothing: the body was closed when the handler returned.
func (o detachedAnswerOut) FinishBody(bool) (reusable, tooLong bool) { return o.a.bodyRead, false }

func (o detachedAnswerOut) Logf(format string, args ...any) {
	o.a.conn.Host().Logf(format, args...)
}
