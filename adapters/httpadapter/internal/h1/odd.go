package h1

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"runtime"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// This file has the requests that http1.Scan does not take: with Upgrade, announced trailers, an
// absolute target or a long header, invalid ones, and others. Their headers wait without a goroutine, as
// plain ones do. Then http.ReadRequest reads them from memory, so net/http decides what they mean.
// http1's rules.go has what else net/http's server does. After that an odd request is served as a plain
// one.

// serveOdd serves the request at the start of the buffer, as far as it has come. end is what the stream
// has ended with, or nil. waits says that there is only the beginning of its header. Otherwise serveOdd
// reports false if the connection is given up.
func (t *turn) serveOdd(end error) (waits, ok bool) {
	c := t.c
	s := c.server()
	if !t.skipEmptyLine() {
		if end != nil {
			return false, t.close()
		}
		return true, true
	}
	if t.odd.why == http1.Incomplete && end == nil {
		return false, true // what follows the empty line may be plain
	}
	p := t.memory()[:t.have]
	isFull := t.have >= s.oddBytesMax()
	state, size := t.odd.Look(p, s.FieldsMax)
	if state == http1.Begun && end == nil && !isFull {
		return true, true
	}
	c.queue.counts.Add(CountOdd+Counter(t.odd.why), 1)
	if state == http1.TooMany || state == http1.Begun && isFull || size > 0 && http1.TooManyTrailers(p[:size], s.FieldsMax) {
		return false, t.refuse(nil, true)
	}
	req, used, all, err := http1.ReadRequest(p, cmp.Or(end, io.EOF))
	switch {
	case err != nil:
		return false, t.refuse(err, isFull && all)
	case used != size:
		s.Host.Logf("httpadapter: http.ReadRequest of %s has read %d bytes of a header of %d, so "+
			"this request is refused: please report this to percore", runtime.Version(), used, size)
		return false, t.refuse(errReadFurther, false)
	}
	if err := http1.Check(req, p[:size]); err != nil {
		return false, t.refuse(err, false)
	}
	x := t.newOddExchange(req, p[size:])
	return false, t.serveExchange(x, p, s.oddHandler(x.req))
}

// errReadFurther is for a net/http that does not stop at the end of a header.
var errReadFurther = errors.New("httpadapter: http.ReadRequest has not stopped at the end of the header")

// skipEmptyLine skips the empty line that some old clients send after the body of a POST, as net/http
// does: it waits for peekBytes of a later request, and skips the line ends among them. It reports false
// if there are fewer.
func (t *turn) skipEmptyLine() bool {
	c := t.c
	s := c.load()
	if !s.has(began) {
		return true
	}
	if t.have < peekBytes && !t.begun { // or it was skipped already
		return false
	}
	if !s.has(mayFollow) {
		return true
	}
	p := t.memory()[:t.have]
	first := p[:min(len(p), peekBytes)]
	if rest := bytes.TrimLeft(first, "\r\n"); len(rest) < len(first) {
		t.startHeader()
		t.have = copy(p, p[len(first)-len(rest):])
		t.odd.why = http1.Incomplete
		c.change(connState.skipEmptyLine)
	}
	return t.have > 0
}

// newOddExchange makes the exchange of a request that http.ReadRequest has returned. behind follows its
// header.
func (t *turn) newOddExchange(parsed *http.Request, behind []byte) *exchange {
	length := parsed.ContentLength
	if parsed.Body == http.NoBody {
		length = 0 // which is not said of an upgrade to HTTP/2
	}
	x, ctx := t.c.allocExchange(length)
	*x.req = *parsed.WithContext(ctx)
	x.stays = x.req.Header["Upgrade"] != nil || semantics.IsGeneralOptions(x.req)
	x.init(behind, true)
	return x
}

// oddHandler returns the handler of an odd request: net/http answers some by itself.
func (s *Server) oddHandler(req *http.Request) http.Handler {
	switch _, fails := http1.ExpectsContinue(req); {
	case fails:
		return http.HandlerFunc(http1.ExpectationFailed)
	case !s.HTTP.DisableGeneralOptionsHandler && semantics.IsGeneralOptions(req):
		return http.HandlerFunc(semantics.GeneralOptions)
	}
	return s.HTTP.Handler
}

// takeBehind makes the bytes that follow a body in chunks, which is closed, the turn's next ones.
func (t *turn) takeBehind(x *exchange) {
	behind := x.takeBehind()
	if len(behind) > turnBytes {
		long := behind // not in the memory of every request
		t.buf, t.have = &long, len(long)
	} else if len(behind) > 0 {
		t.have = copy(t.memory(), behind)
	}
}

// refuse answers a request with the error of http.ReadRequest or http1.Check, as net/http does, and ends
// the connection. It reports false.
func (t *turn) refuse(err error, tooLarge bool) bool {
	c := t.c
	s := c.server()
	// net/http reports an active connection if it has read anything after the first bytes of the request.
	own, _ := err.(http1.StatusError)
	if !c.load().has(began) || t.odd.pieces || t.have > turnBytes || own.Code == http.StatusBadRequest {
		if !c.ReportSafely(http.StateActive) {
			return t.close()
		}
	}
	if text := http1.Refusal(err, tooLarge); text != "" && !s.Host.Ended() {
		if d := s.HTTP.WriteTimeout; d > 0 {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(d))
		}
		_, _ = c.transport().write([]byte(text))
	}
	t.lingers = tooLarge
	return t.close()
}
