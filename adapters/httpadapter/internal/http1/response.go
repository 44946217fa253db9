package http1

import (
	"io"
	"net/http"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Conn is the connection of a [Response]. Its Write sends bytes of answers, and blocks; once it has
// failed it fails for good. If it is an [io.ReaderFrom] as well, bodies from files go that way.
type Conn interface {
	io.Writer

	// KeepAlives reports whether the server may keep the connection open after the answer.
	KeepAlives() bool

	// FinishBody reads what is left of the request's body before the first byte of the answer is
	// sent, as net/http does, and reports whether the connection can serve another request, and
	// whether the rest of the body was too long to be read.
	FinishBody() (reusable, tooLong bool)

	// Logf writes a line to the server's error log.
	Logf(format string, args ...any)
}

// A Response is the answer to one request: the bytes that net/http sends for the same calls. It
// implements http.ResponseWriter, http.Flusher, io.StringWriter and io.ReaderFrom. Hijacking and
// deadlines are its owner's.
//
// Handlers may keep a Response, so it is never used for a second request. Calls after Finish have no
// effect on the connection.
//
// # States
//
//	state      wrote  sent   meaning                               leaves by
//	open       no     no     the handler may change the header     WriteHeader, the first Write, Flush
//	decided    yes    no     status and header are fixed, the      bodyBytesMax of body, Flush, Finish
//	                         beginning of the body waits
//	streaming  yes    yes    the header is sent, or in out         Finish
//	finished   yes    yes    the handler has returned              (final)
//
// A body that ends before it has more than bodyBytesMax bytes is sent with its length. A longer one,
// or one that is flushed, is sent in chunks if the handler has not declared its length.
type Response struct {
	conn Conn
	req  *http.Request

	header       http.Header // the handler's
	calledHeader bool        // the handler has asked for header
	lines        lines       // the header as it was at WriteHeader

	status   int
	length   int64    // declared, or of a body that has ended; -1: not known
	written  int64    // bytes of the body that the handler has written
	trailers []string // the canonical names that the Trailer field declares

	wrote, sent bool
	chunking    bool
	closes      bool // the connection is closed after the answer
	fullDuplex  bool

	body []byte // the beginning of the body, or of the next chunk
	out  []byte // bytes for the connection
	err  error  // why the connection failed

	finished atomic.Bool
}

// bodyBytesMax is how many bytes of a body wait for more, and the size of most chunks: net/http's
// bufferBeforeChunkingSize.
const bodyBytesMax = 2048

// outBytesMax is how many bytes wait for the connection.
const outBytesMax = 4096

// NewResponse returns the answer to r on conn. out, which may be nil, is memory for the bytes that wait
// for the connection; see [Response.Out].
func NewResponse(conn Conn, r *http.Request, out []byte) *Response {
	return &Response{conn: conn, req: r, header: make(http.Header), length: -1, out: out}
}

// Header returns the handler's header. Changes after WriteHeader have no effect, except on trailers.
func (w *Response) Header() http.Header {
	w.calledHeader = true
	return w.header
}

// WriteHeader fixes status and header. A status of 1xx, except 101, is sent at once, and another one
// may follow.
func (w *Response) WriteHeader(status int) {
	switch {
	case w.finished.Load():
		return
	case w.wrote:
		fn, file, line := caller()
		w.conn.Logf("http: superfluous response.WriteHeader call from %s (%s:%d)", fn, file, line)
		return
	case status < 100 || status > 999:
		panic("invalid WriteHeader code " + strconv.Itoa(status)) // as net/http does: the handler's mistake
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.wrote, w.status = true, status
	if w.calledHeader {
		w.lines.take(w.header)
	}
	if v := first(w.header, "Content-Length"); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
			w.length = n
		} else {
			w.conn.Logf("http: invalid Content-Length of %q", v)
			w.header.Del("Content-Length")
		}
	}
}

// inform sends an answer of 1xx, with the header as it is now (RFC 8297).
func (w *Response) inform(status int) {
	var now lines
	now.take(w.header)
	w.out = appendStatusLine(w.out, status)
	w.out = now.appendTo(w.out, 1<<contentLength|1<<transferEncoding)
	w.out = append(w.out, crlf...)
	w.flushOut()
}

// Write appends p to the body.
func (w *Response) Write(p []byte) (int, error) { return write(w, p) }

// WriteString is Write for a string.
func (w *Response) WriteString(s string) (int, error) { return write(w, s) }

func write[T []byte | string](w *Response, p T) (n int, err error) {
	if w.finished.Load() {
		return 0, http.ErrHijacked
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.written += int64(len(p))
	if w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	// The chunks must be those of a bufio.Writer of bodyBytesMax.
	for len(p) > bodyBytesMax-len(w.body) && w.err == nil {
		m := len(p)
		if len(w.body) == 0 {
			w.emit([]byte(p))
		} else {
			m = bodyBytesMax - len(w.body)
			w.body = append(w.body, p[:m]...)
			w.emitBody()
		}
		n += m
		p = p[m:]
	}
	if w.err != nil {
		return n, w.err
	}
	w.body = append(w.body, p...)
	return n + len(p), nil
}

// ReadFrom appends all of r to the body. If the length of the body is known and conn can, bytes from
// the 512th on go straight from r to the connection.
func (w *Response) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := w.conn.(io.ReaderFrom)
	if !ok {
		return io.Copy(justWriter{w}, r)
	}
	if !w.sent {
		// Not before r has something, and enough of it to tell what it is.
		n, err = io.Copy(justWriter{w}, io.LimitReader(r, sniffBytes))
		if err != nil || n < sniffBytes {
			return n, err
		}
	}
	if err := w.FlushError(); err != nil {
		return n, err
	}
	if w.chunking || !bodyAllowed(w.status) || w.isHead() || w.finished.Load() {
		m, err := io.Copy(justWriter{w}, r)
		return n + m, err
	}
	m, err := to.ReadFrom(r)
	w.written += m
	return n + m, err
}

// sniffBytes is how many bytes [http.DetectContentType] looks at.
const sniffBytes = 512

// justWriter hides ReadFrom from io.Copy.
type justWriter struct{ w *Response }

func (j justWriter) Write(p []byte) (int, error) { return j.w.Write(p) }

// Flush is FlushError for [http.Flusher].
func (w *Response) Flush() { _ = w.FlushError() }

// FlushError sends the header and all of the body that was written.
func (w *Response) FlushError() error {
	if w.finished.Load() {
		return nil
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	w.emitBody()
	w.sendHeader(nil)
	w.flushOut()
	return w.err
}

// EnableFullDuplex keeps the answer from waiting for the request's body.
func (w *Response) EnableFullDuplex() { w.fullDuplex = true }

// Finish ends the answer after the handler has returned. The last bytes may be in Out afterwards, so
// that several answers can be sent at once. reusable reports whether the connection can serve another
// request.
func (w *Response) Finish() (reusable bool) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	w.finished.Store(true)
	w.emitBody()
	w.sendHeader(nil)
	if w.chunking {
		w.out = append(w.out, "0\r\n"...)
		w.appendTrailers()
		w.out = append(w.out, crlf...)
	}
	short := !w.isHead() && w.length >= 0 && bodyAllowed(w.status) && w.length != w.written
	return !w.closes && !short && w.err == nil
}

// Wrote reports whether a status was decided on.
func (w *Response) Wrote() bool { return w.wrote }

// Out returns the bytes that wait for the connection, and forgets them.
func (w *Response) Out() []byte {
	out := w.out
	w.out = nil
	return out
}

// CloseAfter has the connection closed after the answer.
func (w *Response) CloseAfter() { w.closes = true }

func (w *Response) isHead() bool { return w.req.Method == http.MethodHead }

// emitBody sends the part of the body that waits.
func (w *Response) emitBody() {
	if len(w.body) > 0 {
		w.emit(w.body)
		w.body = w.body[:0]
	}
}

// emit sends p, as a chunk if need be, behind the header.
func (w *Response) emit(p []byte) {
	w.sendHeader(p)
	if w.isHead() {
		return
	}
	if w.chunking {
		w.out = strconv.AppendUint(w.out, uint64(len(p)), 16)
		w.out = append(w.out, crlf...)
	}
	if len(w.out)+len(p) > outBytesMax {
		w.flushOut()
	}
	if len(p) > outBytesMax {
		w.send(p)
	} else {
		w.out = append(w.out, p...)
	}
	if w.chunking {
		w.out = append(w.out, crlf...)
	}
}

func (w *Response) flushOut() {
	if len(w.out) > 0 {
		w.send(w.out)
		w.out = w.out[:0]
	}
}

func (w *Response) send(p []byte) {
	if w.err == nil {
		_, w.err = w.conn.Write(p)
	}
}

// sendHeader decides how the body is framed and sends the header. p is the beginning of the body, or
// all of it if the handler has returned.
func (w *Response) sendHeader(p []byte) {
	if w.sent {
		return
	}
	w.sent = true
	l := &w.lines
	keepAlives := w.conn.KeepAlives()
	allowed := bodyAllowed(w.status)
	var drop kinds // of the handler's lines
	var add extra

	for _, v := range l.trailer {
		w.declareTrailers(v)
	}
	drop.set(trailerPrefix)
	coding := l.value(transferEncoding)
	if w.finished.Load() && !l.has(trailerPrefix) && !l.has(trailer) && coding == "" && allowed &&
		!l.has(contentLength) && (!w.isHead() || len(p) > 0) {
		w.length = int64(len(p))
		add.length = true
	}
	hasLength := w.length >= 0
	if w.req.Close || l.value(connection) == "close" || !keepAlives {
		w.closes = true
	}
	if w.req.ContentLength != 0 && !w.closes && !w.fullDuplex {
		reusable, tooLong := w.conn.FinishBody()
		if !reusable || tooLong {
			w.closes = true
		}
		if tooLong {
			drop.set(connection)
			add.connection = "close"
		}
	}
	if !allowed {
		drop.set(transferEncoding)
		drop.set(contentLength)
		if w.status == http.StatusNotModified {
			drop.set(contentType)
		}
	} else if l.value(contentEncoding) == "" && !l.has(contentType) && coding == "" && len(p) > 0 {
		add.contentType = http.DetectContentType(p)
	}
	if !l.has(date) {
		add.date = true
	}
	if hasLength && coding != "" && coding != "identity" {
		w.conn.Logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d", coding, w.length)
		drop.set(contentLength)
		hasLength = false
	}
	switch {
	case w.isHead() || !allowed || hasLength:
		drop.set(transferEncoding)
	case coding == "identity": // the end of the connection is the end of the body
		w.closes = true
		drop.set(transferEncoding)
	default:
		w.chunking = true
		add.chunked = true
		if coding == "chunked" {
			drop.set(transferEncoding)
		}
	}
	if w.chunking {
		drop.set(contentLength)
	}
	upgraded := w.status == http.StatusSwitchingProtocols && l.upgrades
	if w.closes && (!keepAlives || !hasToken(l.value(connection), "close")) && !upgraded {
		drop.set(connection)
		add.connection = "close"
	}
	w.out = appendStatusLine(w.out, w.status)
	w.out = l.appendTo(w.out, drop)
	w.out = add.appendTo(w.out, w.length)
	w.out = append(w.out, crlf...)
}

const crlf = "\r\n"

// extra are the lines that come behind the handler's.
type extra struct {
	date, length, chunked   bool
	contentType, connection string
}

// appendTo appends the lines in net/http's order.
func (e *extra) appendTo(b []byte, length int64) []byte {
	if e.date {
		b = append(b, "Date: "...)
		b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
		b = append(b, crlf...)
	}
	if e.length {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, crlf...)
	}
	b = appendLine(b, "Content-Type", e.contentType)
	b = appendLine(b, "Connection", e.connection)
	if e.chunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	return b
}

// appendLine appends a line, none if there is no value.
func appendLine(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, crlf...)
}

func appendStatusLine(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	if text := http.StatusText(status); text != "" {
		b = append(b, ' ')
		b = append(b, text...)
	} else {
		b = append(b, " status code "...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	return append(b, crlf...)
}

// bodyAllowed reports whether an answer with this status has a body (RFC 9110, section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// caller returns the function outside of this package and net/http that made a call.
func caller() (fn, file string, line int) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		inside := strings.HasPrefix(frame.Function, "net/http.") || strings.HasPrefix(frame.Function, self)
		if !inside || !more {
			return frame.Function, path.Base(frame.File), frame.Line
		}
	}
}

// self is how the functions of the adapter begin.
const self = "github.com/percore/percore/adapters/httpadapter"
