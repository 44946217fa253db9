package http1

import (
	"io"
	"net/http"
	"path"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// A Conn is the connection of a [Response]. Its Write sends bytes of answers, and blocks. Once a
// Write has failed, all later ones fail. If it also implements [io.ReaderFrom], bodies from files
// are sent through that.
//
// The Response calls it only from the handler's goroutine.
type Conn interface {
	io.Writer

	// Fail closes the connection, because a part of the body could not be sent. It may be called
	// more than once, and may block for as long as a Write.
	Fail()

	// KeepAlives reports whether the server may keep the connection open after the answer.
	KeepAlives() bool

	// FinishBody reads the rest of the request's body before the first byte of the answer is sent,
	// as net/http does, unless the handler reads on, with full duplex. It reports whether the
	// connection can serve another request, and whether the rest of the body was too long to read.
	FinishBody(readsOn bool) (reusable, tooLong bool)

	// Logf writes a line to the server's error log.
	Logf(format string, args ...any)
}

// A Response is the answer to one request: the bytes that net/http sends for the same calls. It
// implements http.ResponseWriter, http.Flusher, io.StringWriter and io.ReaderFrom. Its owner
// implements deadlines and, except for [Response.End], hijacking.
//
// A handler that calls it from several goroutines, which it must not do, may spoil its own answer, but
// never one on another connection. No lock is held while a reader of ReadFrom reads.
//
// Handlers may keep a Response, so it is never used for a second request. It holds no buffer before the
// handler writes, nor between a Flush and the next Write. Calls after Finish or End have no effect on
// the connection.
//
// # States
//
//	state      wrote  sent   meaning                               leaves by
//	open       no     no     the handler may change the header     WriteHeader, the first Write, Flush
//	decided    yes    no     status and header are fixed, their    bodyBytesMax of body, Flush, Finish
//	                         lines lie at the end of out; the
//	                         beginning of the body waits
//	streaming  yes    yes    the header is sent, or whole in out   Finish, End, Abort
//
//	phase      meaning                                             leaves by
//	handling   the handler runs                                    Finish, End, Abort, Detach
//	finished   the handler has returned or panicked                (final)
//	hijacked   the handler has the connection                      (final)
//	detached   another Response has the rest: see Detach           (final)
//
// If a body ends with at most bodyBytesMax bytes, it is sent with its length. If it is longer or is
// flushed, it is sent in chunks unless the handler has declared its length.
type Response struct {
	conn   Conn        // immutable
	header http.Header // the handler's; nil until it calls Header

	mu sync.Mutex // guards everything below

	answer
	phase     uint8
	awaits100 bool // the client waits for "100 Continue" as long as no other header is sent
	denied    bool // and never gets it: the request's body is not read any more

	tooLarge atomic.Bool // see SetTooLarge
}

// answer is what another Response needs to go on: see Detach.
type answer struct {
	body []byte // the beginning of the body, or of the next chunk; memory of bodies
	out  []byte // bytes for the connection; memory of outs
	err  error  // why the connection failed
	lost error  // err, once it has lost a part of the body: then Write fails, as with net/http

	framing
	length   int64  // of a counted body: as declared, or final once the body has ended
	snapshot        // of the header, at WriteHeader
	headerAt uint32 // where the header begins in out, until it is complete

	hasBody    bool // the request has a body
	fullDuplex bool
	noted      bool // the handler's header says Connection: close because the body was too large
	is10       bool // the request is HTTP/1.0, whose answers have no chunks
	keeps10    bool // and asks to keep the connection
	isConnect  bool // the request's method is CONNECT
	expects    bool // the client has sent Expect: 100-continue: see Continue
}

const (
	handling = iota
	finished
	hijacked
	detached
)

// bodyBytesMax is how many bytes of a body are buffered, and the size of most chunks: net/http's
// bufferBeforeChunkingSize.
const bodyBytesMax = 2048

// outBytesMax is how many bytes are buffered for the connection, as in net/http.
const outBytesMax = 4096

// outBytesCap leaves room for the longest frame of a chunk after outBytesMax, so that none makes the
// memory grow: a size of 16 digits, the end of the body, three line breaks.
const outBytesCap = outBytesMax + 32

// Init makes w, which must be new, the answer to r on conn.
func (w *Response) Init(conn Conn, r *http.Request) {
	w.conn = conn
	// The handler may change r, so read everything needed from it here.
	w.isHead, w.hasBody, w.closes = r.Method == http.MethodHead, r.ContentLength != 0, r.Close
}

// InitOdd is like Init, for a request that may be HTTP/1.0, or have more in Connection than [Head.Scan]
// takes. expects says that its client waits for "100 Continue".
func (w *Response) InitOdd(conn Conn, r *http.Request, expects bool) {
	w.Init(conn, r)
	options := semantics.First(r.Header, "Connection")
	w.is10, w.isConnect = !r.ProtoAtLeast(1, 1), r.Method == http.MethodConnect
	w.closes = !w.is10 && (r.Close || HasToken(options, "close")) // (*Request).wantsClose; HTTP/1.0 asks for the opposite
	w.keeps10 = w.is10 && HasToken(options, "keep-alive")         // (*Request).wantsHttp10KeepAlive
	w.expects, w.awaits100 = expects, expects
}

// Continue is for each Read of a body whose client waits for "100 Continue": the first one sends that,
// unless the answer has begun. It reports false if the body must not be read (expectContinueReader).
func (w *Response) Continue() (reads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.awaits100 && w.phase == handling {
		w.awaits100 = false
		if w.sent || !w.wrote {
			w.flushOut()
		} // else the header of a 101 waits in out, and follows this
		w.send([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
		w.releaseIdle()
	}
	return !w.denied
}

// CloseUnread is for the Close of such a body. It reports true if the body must not be read, since the
// client was not asked for it.
func (w *Response) CloseUnread() (denied bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deny()
	return w.denied
}

// deny makes a client that waits for "100 Continue" wait for the answer alone.
func (w *Response) deny() {
	if w.awaits100 && expectDenies {
		w.denied, w.closes = true, true
	}
	w.awaits100 = false
}

// Header returns the handler's header. Changes after WriteHeader have no effect, except to trailers.
func (w *Response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	if tooLargeInHeader && w.TooLarge() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.noteTooLarge()
	}
	return w.header
}

// SetTooLarge says whether the request's body is known to be larger than the handler may read. If it is
// when the header is sent, the answer doesn't wait for the rest of the body, and says that the
// connection will be closed. Any goroutine may call it.
func (w *Response) SetTooLarge(tooLarge bool) {
	if w.TooLarge() != tooLarge {
		w.tooLarge.Store(tooLarge)
	}
}

// TooLarge returns what SetTooLarge set.
func (w *Response) TooLarge() bool { return w.tooLarge.Load() }

// noteTooLarge sets the handler's header once, as net/http does when a read reaches the limit. The
// handler may change it afterwards.
func (w *Response) noteTooLarge() {
	if w.noted || w.wrote || w.phase != handling {
		return
	}
	w.noted, w.closes = true, true
	if w.header == nil {
		w.header = make(http.Header)
	}
	w.header.Set("Connection", "close")
}

// WriteHeader fixes the status and the header. A 1xx status, except 101, is sent at once, and
// another status may follow.
func (w *Response) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock() // it may panic
	w.writeHeader(status)
}

func (w *Response) writeHeader(status int) {
	switch {
	case w.phase == finished && !w.wrote, w.phase == detached:
		return // the handler has panicked, or has no say any more
	case w.phase == hijacked:
		fn, file, line := caller()
		w.conn.Logf("http: response.WriteHeader on hijacked connection from %s (%s:%d)", fn, file, line)
		return
	case w.wrote:
		fn, file, line := caller()
		w.conn.Logf("http: superfluous response.WriteHeader call from %s (%s:%d)", fn, file, line)
		return
	case status < 100 || status > 999:
		panic("invalid WriteHeader code " + strconv.Itoa(status)) // as net/http does: the handler's mistake
	}
	if tooLargeInHeader && w.TooLarge() {
		w.noteTooLarge()
	}
	switch {
	case status >= 200:
		w.deny()
	case status == http.StatusContinue:
		w.awaits100 = false
	}
	w.takeOut()
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.out = w.appendStatusLine(w.out, status)
		w.out = appendInformation(w.out, w.header)
		w.out = append(w.out, crlf...)
		w.settle()
		w.flushOut()
		w.releaseIdle()
		return
	}
	w.wrote, w.status, w.headerAt = true, uint16(status), uint32(len(w.out))
	w.out = w.appendStatusLine(w.out, status)
	if len(w.header) > 0 {
		w.takeHeader()
	}
}

// takeHeader appends the lines of the header, and remembers what later decisions need.
func (w *Response) takeHeader() {
	w.out = w.snapshot.take(w.out, w.header)
	v := semantics.First(w.header, "Content-Length")
	if v == "" {
		return
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
		w.length, w.left, w.counted = n, n, true
		return
	}
	w.conn.Logf("http: invalid Content-Length of %q", v)
	w.header.Del("Content-Length")
}

// Write appends p to the body.
func (w *Response) Write(p []byte) (n int, err error) { return w.write(p, "") }

// WriteString appends s to the body. All chunks of a long string have bodyBytesMax bytes, as those of a
// bufio.Writer, which copies strings.
func (w *Response) WriteString(s string) (n int, err error) { return w.write(nil, s) }

// write appends p or s to the body. Its chunks must be those of a bufio.Writer of bodyBytesMax.
func (w *Response) write(p []byte, s string) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(len(p) + len(s)); err != nil || len(p)+len(s) == 0 {
		return 0, err
	}
	for len(p)+len(s) > bodyBytesMax-len(w.body) && w.lost == nil {
		var m int
		if len(p) > 0 && len(w.body) == 0 {
			m = w.emit(p)
		} else {
			m = w.buffer(p, s)
			w.emitBody()
		}
		n += m
		p, s = p[min(m, len(p)):], s[min(m, len(s)):]
	}
	if err := w.lost; err != nil {
		return n, err
	}
	return n + w.buffer(p, s), nil
}

// buffer appends as much of p or s to the buffered part of the body as fits there.
func (w *Response) buffer(p []byte, s string) (n int) {
	body := w.takeBody()
	n = copy(body[len(body):bodyBytesMax], p) + copy(body[len(body):bodyBytesMax], s)
	w.body = body[:len(body)+n]
	return n
}

// admit decides whether n more bytes may be written.
func (w *Response) admit(n int) error {
	if p := w.phase; p != handling {
		switch p {
		case finished:
			return semantics.ErrFinished
		case detached:
			return semantics.ErrDetached
		}
		if n > 0 {
			fn, file, line := caller()
			w.conn.Logf("http: response.Write on hijacked connection from %s (%s:%d)", fn, file, line)
		}
		return http.ErrHijacked
	}
	w.deny() // even after a 101
	if !w.wrote {
		w.writeHeader(http.StatusOK)
	}
	if n == 0 {
		return nil
	}
	return w.framing.admit(n)
}

// ReadFrom appends all of r to the body. If the length of the body is known, and conn implements
// io.ReaderFrom, bytes from the 512th on go straight to the connection, as many as the length allows.
func (w *Response) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := w.conn.(io.ReaderFrom)
	handles, sent := w.progress()
	if !ok || !handles {
		return w.copy(r)
	}
	if !sent {
		// Not before r has some data, and enough to detect its type.
		n, err = w.copy(io.LimitReader(r, semantics.SniffBytes))
		if err != nil || n < semantics.SniffBytes {
			return n, err
		}
	}
	left, direct, err := w.prepareDirect()
	var m int64
	switch {
	case !direct:
		m, err = w.copy(r)
	case err != nil:
	default:
		m, err = w.readRest(to, r, left)
	}
	return n + m, err
}

// prepareDirect sends what is buffered, so that the rest of the body can go straight to the connection,
// unless it is sent in chunks, or not at all. It also returns how many bytes may go there; -1: any
// number.
func (w *Response) prepareDirect() (left int64, direct bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err = w.flush()
	left = -1
	if w.counted {
		left = max(w.left, 0)
	}
	return left, !w.chunking && w.allowsBody() && !w.isHead, err
}

// progress reports whether the handler runs, and whether the header is sent.
func (w *Response) progress() (handles, sent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase == handling, w.sent
}

// readRest moves up to left bytes of r; -1: all. It returns http.ErrContentLength if r has more, as
// net/http does since Go 1.27. Older versions sent more than the declared length, which a client reads
// as the beginning of the next answer.
func (w *Response) readRest(to io.ReaderFrom, r io.Reader, left int64) (n int64, err error) {
	if limited, ok := r.(*io.LimitedReader); left < 0 {
		n, err = to.ReadFrom(r)
	} else if !ok {
		n, err = to.ReadFrom(&io.LimitedReader{R: r, N: left})
	} else {
		beyond := max(limited.N-left, 0)
		limited.N -= beyond
		n, err = to.ReadFrom(limited)
		limited.N += beyond
	}
	w.mu.Lock()
	w.left -= n
	w.mu.Unlock()
	if n == left {
		if extra, _ := r.Read(make([]byte, 1)); err == nil && extra > 0 {
			err = http.ErrContentLength
		}
	}
	return n, err
}

// copy appends all of r to the body, using Write.
func (w *Response) copy(r io.Reader) (int64, error) {
	if !isTrusted(r) {
		return io.Copy(justWriter{w}, r)
	}
	buf := copies.Get().(*[copyBytes]byte)
	defer copies.Put(buf)
	return io.CopyBuffer(justWriter{w}, r, buf[:])
}

// Flush is FlushError for [http.Flusher].
func (w *Response) Flush() { _ = w.FlushError() }

// FlushError sends the header and everything written to the body so far.
func (w *Response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Response) flush() error {
	if w.phase != handling {
		return nil
	}
	if !w.wrote {
		w.writeHeader(http.StatusOK)
	}
	w.emitBody()
	w.sendHeader(nil)
	w.flushOut()
	w.releaseIdle()
	return w.err
}

// EnableFullDuplex makes the answer not wait for the request's body.
func (w *Response) EnableFullDuplex() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fullDuplex = true
}

// EndHeader completes a header once WriteHeader has fixed it, as net/http does before a handler
// hijacks the connection. That also ends the request's body. Continue sends nothing any more.
func (w *Response) EndHeader() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaits100 = false
	if w.phase == handling && w.wrote {
		w.sendHeader(nil)
	}
}

// End ends the answer because the handler hijacks the connection. It sends a header that WriteHeader has
// fixed, and drops a buffered body, as net/http does. Finish must not be called afterwards.
func (w *Response) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrote {
		w.sendHeader(nil)
	}
	w.flushOut()
	w.phase = hijacked
	w.body = w.body[:0]
	w.releaseIdle()
}

// Finish ends the answer after the handler has returned. The last bytes are in Out afterwards. reusable
// reports whether the connection can serve another request. The owner must remove the files of the
// request's MultipartForm.
func (w *Response) Finish() (reusable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == detached {
		return false // too late: the handler has returned
	}
	if !w.wrote {
		w.writeHeader(http.StatusOK)
	}
	w.phase = finished
	w.emitBody()
	w.sendHeader(nil)
	if w.chunking {
		w.out = append(w.takeOut(), "0\r\n"...)
		w.appendTrailers()
		w.out = append(w.out, crlf...)
		w.settle()
	}
	w.releaseBody()
	return w.isReusable() && w.err == nil
}

// Abort ends the answer because the handler has panicked or ended its goroutine. Out then has what
// net/http would send: complete chunks, but no header that is waiting for its body. The connection can't
// be used again.
func (w *Response) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == detached {
		return
	}
	w.phase = finished
	w.awaits100 = false
	if w.wrote && !w.sent {
		w.out = w.out[:w.headerAt]
	}
	w.releaseBody()
}

// Out returns the bytes to send after Finish or Abort, which the caller owns, and may pass to
// [ReleaseOut] once they are sent. There are none if the connection has failed: the end of an answer
// would hide that a part is missing.
func (w *Response) Out() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.out
	w.out = nil
	if w.err != nil {
		out = out[:0]
	}
	return out
}

// emitBody sends the buffered part of the body.
func (w *Response) emitBody() {
	if len(w.body) > 0 {
		w.emit(w.body)
		w.body = w.body[:0]
	}
}

// emit sends p after the header, as a chunk if necessary, and returns how much of it was taken.
func (w *Response) emit(p []byte) (n int) {
	w.sendHeader(p)
	switch {
	case w.isHead:
		return len(p)
	case !w.chunking:
		n = w.push(p)
	default:
		w.out = appendChunkSize(w.takeOut(), len(p))
		w.settle()
		n = w.push(p)
		w.out = append(w.takeOut(), crlf...)
		w.settle()
	}
	if w.lost = w.err; w.lost != nil {
		w.conn.Fail() // as net/http does, but not if only a Flush has failed
	}
	return n
}

// push sends p in pieces of outBytesMax, as a bufio.Writer of that size does; the rest stays in out. It
// returns how much of p was taken.
func (w *Response) push(p []byte) (n int) {
	for len(p) > outBytesMax-len(w.out) && w.err == nil {
		if len(w.out) == 0 {
			return n + w.send(p)
		}
		m := max(outBytesMax-len(w.out), 0)
		w.out = append(w.out, p[:m]...)
		w.flushOut()
		n += m
		p = p[m:]
	}
	if w.err != nil {
		return n
	}
	w.out = append(w.takeOut(), p...)
	return n + len(p)
}

// settle sends pieces of outBytesMax while out has more. Frames and headers are appended before it is
// known whether they fit.
func (w *Response) settle() {
	for len(w.out) > outBytesMax {
		w.send(w.out[:outBytesMax])
		w.out = append(w.out[:0], w.out[outBytesMax:]...)
	}
}

func (w *Response) flushOut() {
	if len(w.out) > 0 {
		w.send(w.out)
		w.out = w.out[:0]
	}
}

// send sends p, unless the connection has failed, and returns how many bytes the connection has taken.
func (w *Response) send(p []byte) (n int) {
	if w.err == nil {
		n, w.err = w.conn.Write(p)
	}
	return n
}

// sendHeader decides how the body is framed, and completes the header. p is the beginning of the body,
// or all of it if the handler has returned.
func (w *Response) sendHeader(p []byte) {
	if w.sent {
		return
	}
	w.sent = true
	keepAlives := w.conn.KeepAlives()
	allowed := w.allowsBody()
	var drop kinds // of the handler's lines
	var add extra

	declared := w.declared()
	coding := declared.coding
	if w.phase == finished && !w.has(trailer) && coding == "" && allowed && !w.has(contentLength) &&
		(!w.isHead || len(p) > 0) {
		w.length, w.left, w.counted = int64(len(p)), 0, true
		add.length = true
	}
	hasLength := w.counted
	w.keepAlive10(&add, hasLength || w.isHead || !allowed)
	if declared.connection == "close" || !keepAlives || w.TooLarge() || w.isConnect && connectCloses {
		w.closes = true
	}
	if w.hasBody && !w.closes && (!w.fullDuplex || w.expects) {
		reusable, tooLong := w.conn.FinishBody(w.fullDuplex)
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
	} else if !w.encoded && !w.has(contentType) && coding == "" && len(p) > 0 {
		add.contentType = http.DetectContentType(p)
	}
	if hasLength && coding != "" && coding != "identity" {
		w.conn.Logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d", coding, w.length)
		drop.set(contentLength)
		hasLength = false
	}
	tunnels := w.isConnect && connectCloses && w.status >= 200 && w.status < 300
	switch {
	case tunnels: // what follows is no body
		drop.set(transferEncoding)
		drop.set(contentLength)
		add.length = false
	case w.isHead || !allowed || hasLength:
		drop.set(transferEncoding)
	case w.is10, coding == "identity": // the end of the connection is the end of the body
		w.closes = true
		drop.set(transferEncoding)
	default:
		w.chunking = true
		add.chunked = true
		drop.set(contentLength)
		if coding == "chunked" {
			drop.set(transferEncoding)
		}
	}
	upgraded := w.status == http.StatusSwitchingProtocols && w.upgrades
	if w.closes && (!keepAlives || !HasToken(declared.connection, "close")) && !upgraded {
		drop.set(connection)
		switch {
		case !w.is10 && !tunnels:
			add.connection = "close"
		case closingIsSilent:
			add.connection = ""
		}
	}
	w.out = w.dropFrom(w.out, drop)
	if !w.has(date) {
		w.out = appendLine(w.out, "Date", semantics.Date())
	}
	w.out = add.appendTo(w.out, w.length)
	w.out = append(w.out, crlf...)
	w.settle()
}

// keepAlive10 decides whether the connection stays open after an answer to HTTP/1.0: its client must ask
// for that, and see where the answer ends.
func (w *Response) keepAlive10(add *extra, endIsKnown bool) {
	switch {
	case !w.is10:
	case !w.keeps10 || !endIsKnown:
		w.closes = true
	case !w.has(connection):
		add.connection = "keep-alive"
	}
}

const crlf = "\r\n"

// extra holds the lines that follow the handler's, besides Date.
type extra struct {
	length, chunked         bool
	contentType, connection string
}

// appendTo appends the lines in net/http's order.
func (e *extra) appendTo(b []byte, length int64) []byte {
	if e.length {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, length, 10)
		b = append(b, crlf...)
	}
	if e.contentType != "" {
		b = appendLine(b, "Content-Type", e.contentType)
	}
	if e.connection != "" {
		b = appendLine(b, "Connection", e.connection)
	}
	if e.chunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	return b
}

func (w *Response) appendStatusLine(b []byte, status int) []byte {
	switch {
	case w.is10:
		b = append(b, "HTTP/1.0 "...)
	case status == http.StatusOK:
		return append(b, "HTTP/1.1 200 OK\r\n"...)
	default:
		b = append(b, "HTTP/1.1 "...)
	}
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

// caller returns the function that called a method of Response, apart from the adapter and net/http.
func caller() (fn, file string, line int) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !isInside(frame.Function) || !more {
			return frame.Function, path.Base(frame.File), frame.Line
		}
	}
}

// isInside reports whether a function belongs to net/http or Response, or is a method of the adapter.
func isInside(fn string) bool {
	return strings.HasPrefix(fn, "net/http.") || strings.HasPrefix(fn, thisPackage+".(*Response)") || strings.HasPrefix(fn, adapter+".(")
}

// The import paths of this package and of the adapter, as they appear in the names of functions.
var (
	thisPackage = reflect.TypeFor[Response]().PkgPath()
	adapter     = path.Dir(path.Dir(thisPackage))
)
