package h1

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// This file has the requests that http1.Scan does not take: in chunks, HTTP/1.0, with Expect or Upgrade,
// wrong ones, and others. Their headers wait for their end as plain ones do, without a goroutine. Then
// http.ReadRequest reads them from memory, so net/http decides what they mean, and what else its server
// does with a request is in http1's rules.go. From there on an odd request is served as a plain one.

// oddHeader is how far the odd header at the start of a turn's buffer was looked at. It is kept while
// the connection waits for more of it.
type oddHeader struct {
	http1.Beginning
	why    reason // 0: the header is not known to be odd
	pieces bool   // net/http would have read more than once, so that the connection is active even if it is refused
}

// oddOutcome is what became of an odd request.
type oddOutcome uint8

const (
	oddWaits  oddOutcome = iota // there is only the beginning of its header
	oddServed                   // look at what is behind it
	oddOver                     // the connection is given up
)

// oddReader is what http.ReadRequest, and the body in chunks that it returns, read from: a bufio.Reader
// of net/http's size over a source.
type oddReader struct {
	bufio.Reader
	source oddSource
}

// oddReaders has those of which nothing that http.ReadRequest has returned is used any more.
var oddReaders = sync.Pool{New: func() any {
	r := new(oddReader)
	r.Reader = *bufio.NewReader(&r.source)
	return r
}}

// getOddReader returns an oddReader over p and what comes behind it.
func getOddReader(p []byte, end error) *oddReader {
	r := oddReaders.Get().(*oddReader)
	r.source = oddSource{left: p, end: end}
	return r
}

func (r *oddReader) release() {
	r.source = oddSource{}
	r.Reset(&r.source)
	oddReaders.Put(r)
}

// oddSource gives the bytes that were read, and then those of the connection.
type oddSource struct {
	left []byte    // that were read
	end  error     // what comes behind these instead of the connection's bytes
	x    *exchange // whose body it is, once end is nil
}

// Read implements io.Reader.
func (s *oddSource) Read(p []byte) (n int, err error) {
	switch {
	case len(s.left) > 0:
		n = copy(p, s.left)
		s.left = s.left[n:]
		return n, nil
	case s.end != nil:
		return 0, s.end
	}
	n, err = s.x.conn.stream().receive(p)
	if err != nil {
		s.x.clientGone()
	}
	return n, err
}

// serveOdd serves the request at the start of the buffer, as far as it has come. end is what the stream
// has ended with, or nil.
func (t *turn) serveOdd(end error) oddOutcome {
	c := t.c
	s := c.queue.server
	if !t.skipEmptyLine() {
		if end != nil {
			t.close()
			return oddOver
		}
		return oddWaits
	}
	if t.odd.why == 0 && end == nil {
		return oddServed // what follows the empty line may be plain
	}
	p := t.memory()[:t.have]
	isFull := t.have >= s.oddBytesMax()
	state, size := t.odd.Look(p, s.FieldsMax)
	if state == http1.Begun && end == nil && !isFull {
		return oddWaits
	}
	c.queue.counts.Add(CountOdd+Counter(t.odd.why), 1)
	if state == http1.TooMany || state == http1.Begun && isFull || size > 0 && http1.TooManyTrailers(p[:size], s.FieldsMax) {
		return t.refuse(nil, true)
	}
	r := getOddReader(p, cmp.Or(end, io.EOF))
	req, err := http.ReadRequest(&r.Reader)
	left := len(r.source.left)
	used := t.have - left - r.Buffered()
	switch {
	case err != nil:
		r.release()
		return t.refuse(err, isFull && left == 0)
	case used != size:
		s.Host.Logf("httpadapter: http.ReadRequest of %s has read %d bytes of a header of %d, so "+
			"this request is refused: please report this to percore", runtime.Version(), used, size)
		err = errReadFurther
	default:
		err = http1.Check(req, p[:size])
	}
	if err != nil {
		r.release()
		return t.refuse(err, false)
	}
	return t.serveParsed(req, r, size)
}

// errReadFurther is for a net/http that does not stop at the end of a header.
var errReadFurther = errors.New("httpadapter: http.ReadRequest has not stopped at the end of the header")

// peekBytes is how many bytes of a later request net/http needs before it considers the connection
// active. If it gets fewer, followed by the end or an error, it closes without an answer.
const peekBytes = 4

// leadingNewlines counts the carriage returns and line feeds at the start of p.
func leadingNewlines(p []byte) int { return len(p) - len(bytes.TrimLeft(p, "\r\n")) }

// skipEmptyLine skips the empty line that some old clients send behind the body of a POST, as net/http
// does: it waits for peekBytes of a later request, and skips what is a line's end of these. It reports
// false if there are less.
func (t *turn) skipEmptyLine() bool {
	c := t.c
	s := c.load()
	if !s.has(began) {
		return true
	}
	if t.have < peekBytes {
		return false
	}
	if !s.has(mayFollow) {
		return true
	}
	p := t.memory()[:t.have]
	if n := leadingNewlines(p[:peekBytes]); n > 0 {
		t.startHeader()
		t.have = copy(p, p[n:])
		t.odd.why = 0
		c.change(connState.skipEmptyLine)
	}
	return t.have > 0
}

// serveParsed serves a request that http.ReadRequest has read from r, and whose header is the first size
// bytes of the buffer.
func (t *turn) serveParsed(req *http.Request, r *oddReader, size int) oddOutcome {
	c := t.c
	s := c.queue.server
	if !s.Host.Begins() {
		r.release()
		t.close() // as net/http does with a request that comes after Shutdown
		return oddOver
	}
	c.queue.counts.Add(CountRequests, 1)
	p := t.memory()[:t.have]
	x := t.newOddExchange(req)
	switch {
	case x.body != nil && x.body.chunks != nil:
		if len(*t.buf) == turnBytes {
			r.source.left = bytes.Clone(r.source.left) // nothing, since r has room for all of a worker's buffer
		}
		r.source.x, r.source.end = x, nil
		*x.body.chunks = chunks{req: req, body: req.Body, r: r, trailersMax: s.FieldsMax}
	case x.body != nil:
		r.release()
		x.body.begin(req.ContentLength, p[size:])
	default:
		r.release()
		x.rest = p[size:]
	}
	if x.body != nil {
		req.Body = x.body
	}
	t.odd = oddHeader{}
	if !t.serveExchange(x, p, s.oddHandler(req)) {
		return oddOver
	}
	return oddServed
}

// allocOdd returns an exchange with a body if req has one, all in one piece of memory.
func allocOdd(req *http.Request) *exchange {
	switch {
	case req.Body == http.NoBody:
		return new(exchange)
	case req.ContentLength < 0:
		m := new(struct {
			exchange
			body   requestBody
			chunks chunks
		})
		m.exchange.body, m.body.chunks = &m.body, &m.chunks
		return &m.exchange
	}
	m := new(struct {
		exchange
		body requestBody
	})
	m.exchange.body = &m.body
	return &m.exchange
}

// newOddExchange makes the exchange of a request that http.ReadRequest has returned. The caller gives it
// its body, and the bytes behind it.
func (t *turn) newOddExchange(req *http.Request) *exchange {
	c := t.c
	x := allocOdd(req)
	x.conn, x.req = c, req
	ctx, cancel := newRequestContext(c.Context(), c.Conn)
	x.canceler = cancel
	*req = *req.WithContext(ctx) // in its place: the body in chunks sets this request's trailers
	req.RemoteAddr = c.RemoteText()
	req.TLS = c.stream().tlsState()
	continues, _ := http1.ExpectsContinue(req)
	if x.body != nil {
		x.body.x, x.body.last, x.body.expects = x, req.Close, continues
	}
	x.watching = x.body == nil
	x.stays = req.Header["Upgrade"] != nil || http1.IsGeneralOptions(req)
	x.InitOdd(c.stream().answerOut(x), req, continues)
	return x
}

// oddHandler returns the handler of an odd request: net/http answers some by itself.
func (s *Server) oddHandler(req *http.Request) http.Handler {
	switch _, fails := http1.ExpectsContinue(req); {
	case fails:
		return http.HandlerFunc(http1.ExpectationFailed)
	case !s.HTTP.DisableGeneralOptionsHandler && http1.IsGeneralOptions(req):
		return http.HandlerFunc(http1.GeneralOptions)
	}
	return s.HTTP.Handler
}

// takeBehind makes the bytes behind a body in chunks, which is closed, the next ones of the turn.
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
// the connection.
func (t *turn) refuse(err error, tooLarge bool) oddOutcome {
	c := t.c
	s := c.queue.server
	// net/http reports an active connection if it has read anything after the first bytes of the
	// request.
	own, _ := err.(http1.StatusError)
	if !c.load().has(began) || t.odd.pieces || t.have > turnBytes || own.Code == http.StatusBadRequest {
		if !c.ReportSafely(http.StateActive) {
			t.close()
			return oddOver
		}
	}
	if text := http1.Refusal(err, tooLarge); text != "" && !s.Host.Ended() {
		if d := s.HTTP.WriteTimeout; d > 0 {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(d))
		}
		_, _ = c.stream().write([]byte(text))
	}
	t.lingers = tooLarge
	t.close()
	return oddOver
}
