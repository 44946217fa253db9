package httpstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// response is the http.ResponseWriter of a stream.
//
// A handler that calls it from several goroutines, which it must not do, may spoil its own answer, but
// no other.
//
//	state      wrote  sent   meaning                              leaves by
//	open       no     no     the handler may change the header    WriteHeader, the first Write, Flush
//	decided    yes    no     status and fields are fixed; the     bodyBytesMax of body, Flush, finish
//	                         beginning of the body waits
//	streaming  yes    yes    the header is sent                   finish, abort
//	done       any    any    the handler has returned             (final)
type response struct {
	x        *part                     // immutable
	notified atomic.Pointer[chan bool] // what CloseNotify has returned; nil: it wasn't called
	informed atomic.Bool               // an interim answer was sent, so the body's Read, without mu, sends none

	mu sync.Mutex // guards everything below

	status int16 // before it is written: of a request that the handler does not get; 0: it gets it
	isHead bool
	done   bool
	header http.Header // the handler's; nil until it calls Header
	progress
}

// progress is how far an answer is. It moves with it to an Answer.
type progress struct {
	memory   *memory   // nil while nothing is buffered
	trailers *trailers // nil: none are declared
	length   int64     // of the body, as the header declares; -1: it doesn't
	written  int64
	err      error // of a Write that has failed; all later ones fail with it

	wrote, sent                                  bool
	resets                                       bool // the stream is reset after the answer: the request was malformed
	hasType, hasLength, hasCoding, hasDate, ends bool // of the header
}

// trailers are those of an answer.
type trailers struct {
	values []string // of Trailer, as they were at WriteHeader
	names  []string // that are declared, in net/http's order
}

// bodyBytesMax is how many bytes of a body are buffered, as in net/http.
const bodyBytesMax = 4 << 10

// memory is what a response needs while something is buffered. Handlers never get it.
type memory struct {
	body     [bodyBytesMax]byte
	buffered int        // bytes of the body
	fields   []h2.Field // of the header, as it was at WriteHeader
	array    [16]h2.Field
}

var memories = sync.Pool{New: func() any { return new(memory) }}

func (w *response) takeMemory() *memory {
	if w.memory == nil {
		w.memory = memories.Get().(*memory)
	}
	return w.memory
}

func (w *response) releaseMemory() {
	if w.memory != nil {
		clear(w.memory.array[:])
		w.memory.buffered, w.memory.fields = 0, nil
		memories.Put(w.memory)
		w.memory = nil
	}
}

func (w *response) Header() http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *response) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock() // it may panic
	w.writeHeader(status)
}

func (w *response) writeHeader(status int) {
	if w.wrote || w.done {
		return
	}
	if status < 100 || status > 999 {
		panic("invalid WriteHeader code " + strconv.Itoa(status)) // as net/http does: the handler's mistake
	}
	if status < 200 {
		w.informed.Store(true)
		w.takeFields(true)
		_ = w.x.stream.Send(h2.Message{Status: status, Fields: w.memory.fields})
		w.releaseMemory()
		return
	}
	w.wrote, w.status = true, int16(status)
	w.takeFields(false)
}

// takeFields makes the fields from the header, in the order of their names.
func (w *response) takeFields(interim bool) {
	m := w.takeMemory()
	m.fields, w.length = m.array[:0], -1
	var most [12]string
	keys := most[:0]
	for key := range w.header {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		values := w.header[key]
		if w.takeField(key, values, interim) {
			w.appendFields(key, values)
		}
	}
}

// takeField remembers what matters about a field, and reports whether to send it where it is.
func (w *response) takeField(key string, values []string, interim bool) bool {
	first := ""
	if len(values) > 0 {
		first = values[0]
	}
	switch key {
	case "Content-Length":
		if interim {
			return false
		}
		if first == "" {
			w.hasLength = true
			return len(values) > 0
		}
		if n, err := strconv.ParseUint(first, 10, 63); err == nil {
			w.length = int64(n)
		}
		return false
	case "Transfer-Encoding":
		return !interim && slices.Contains(values, "trailers")
	}
	if interim {
		return true
	}
	switch key {
	case "Content-Type":
		w.hasType = true
	case "Content-Encoding":
		w.hasCoding = first != ""
	case "Date":
		w.hasDate = true
	case "Trailer":
		w.makeTrailers().values = slices.Clone(values)
	case "Connection":
		w.ends = first == "close"
		return false
	}
	return true
}

// appendFields appends a field for each value that may be sent.
func (w *response) appendFields(key string, values []string) {
	for _, v := range values {
		if key == "Transfer-Encoding" && v != "trailers" {
			continue
		}
		if f := h2.FieldOfKey(key, v); f.Valid() && !f.Name.Class().IsPseudo() {
			w.memory.fields = append(w.memory.fields, f)
		}
	}
}

func (w *response) makeTrailers() *trailers {
	if w.trailers == nil {
		w.trailers = new(trailers)
	}
	return w.trailers
}

func (w *response) declareTrailer(name string) {
	name = http.CanonicalHeaderKey(name)
	if !semantics.MayBeTrailer(name) {
		w.x.server.Host.Logf("ignoring invalid trailer %q", name)
		return
	}
	if t := w.makeTrailers(); !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
}

// errTooLong is net/http's error for a body that is longer than declared.
var errTooLong = errors.New("http2: handler wrote more than declared Content-Length")

// errStreamClosed is net/http's error for a Write to a stream that has ended.
var errStreamClosed = errors.New("http2: stream closed")

func (w *response) Write(p []byte) (n int, err error)       { return w.write(p, "") }
func (w *response) WriteString(s string) (n int, err error) { return w.write(nil, s) }

func (w *response) write(p []byte, s string) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return 0, semantics.ErrFinished
	}
	w.writeHeader(http.StatusOK)
	if !semantics.BodyAllowed(int(w.status)) {
		return 0, http.ErrBodyNotAllowed
	}
	w.written += int64(len(p) + len(s))
	if w.sent && w.length > 0 && w.written > w.length {
		return 0, errTooLong
	}
	for len(p)+len(s) > bodyBytesMax-w.buffered() && w.err == nil {
		var m int
		if p != nil && w.buffered() == 0 {
			m, w.err = w.emit(p, false)
		} else {
			m = w.buffer(p, s)
			_ = w.emitBuffer(false) // it sets w.err
		}
		n += m
		p, s = p[min(m, len(p)):], s[min(m, len(s)):]
	}
	if w.err != nil {
		return n, w.err
	}
	return n + w.buffer(p, s), nil
}

// buffer copies as much of p or s as fits in the memory.
func (w *response) buffer(p []byte, s string) (n int) {
	if len(p)+len(s) == 0 {
		return 0
	}
	m := w.takeMemory()
	to := m.body[m.buffered:]
	if p != nil {
		n = copy(to, p)
	} else {
		n = copy(to, s)
	}
	m.buffered += n
	return n
}

func (w *response) buffered() int {
	if w.memory == nil {
		return 0
	}
	return w.memory.buffered
}

// emitBuffer sends what is buffered, and the header. After that it always fails, if a body was buffered.
func (w *response) emitBuffer(last bool) error {
	if w.err != nil {
		return w.err
	}
	all := w.buffered()
	if all == 0 {
		_, w.err = w.emit(nil, last)
		return w.err
	}
	n, err := w.emit(w.memory.body[:all], last)
	if err == nil && n < all {
		err = io.ErrShortWrite
	}
	w.err = err
	return err
}

// emit sends the header, unless it was sent, and then p. Nothing may be buffered after p. If last is
// set, the answer ends. It returns how many bytes of p net/http would count: none of those that come
// with the header of an answer to HEAD.
func (w *response) emit(p []byte, last bool) (n int, err error) {
	defer w.releaseMemory()
	var m h2.Message
	if last {
		w.promoteTrailers()
	}
	if !w.sent {
		w.sent = true
		m.Status, m.Fields = int(w.status), w.completeHeader(p, last)
	}
	var trailers []h2.Field
	if last {
		trailers = w.trailerFields()
	}
	m.End = (last || m.Status != 0 && w.isHead) && !w.resets
	m.Hold = last
	if !w.isHead {
		m.Body = p
		m.Trailers = trailers
	}
	switch {
	case m.Status == 0 && w.isHead, m.Status == 0 && len(m.Body) == 0 && !m.End:
		return len(p), nil
	case w.isHead && !last:
		if w.x.detached.Load() != nil {
			n = len(p) // its owner is no handler of net/http's, and asks whether all was sent
		}
		return n, w.endEarly(m)
	}
	if err := w.x.stream.Send(m); err != nil {
		return 0, writeError(err)
	}
	return len(p), nil
}

// endEarly sends the answer to HEAD before the handler returns. Like net/http it ends the stream, and
// the request's context: nothing would tell the handler of the connection's end.
func (w *response) endEarly(m h2.Message) error {
	if err := w.x.stream.Send(m); err != nil {
		return writeError(err)
	}
	w.x.stream.Reset(h2.NoError) // of the request's body, if it has not ended
	w.x.canceler.Cancel()
	return nil
}

// completeHeader appends the fields to send, including those that net/http adds. p is the beginning
// of the body, or all of it.
func (w *response) completeHeader(p []byte, last bool) []h2.Field {
	fields := w.memory.fields
	if w.trailers != nil {
		w.declareTrailers(w.trailers.values)
	}
	if w.ends {
		w.x.stream.Conn().GoAway()
	}
	allowed := semantics.BodyAllowed(int(w.status))
	if !w.hasType && !w.hasCoding && allowed && len(p) > 0 {
		fields = append(fields, h2.FieldOfKey("Content-Type", http.DetectContentType(p)))
	}
	switch {
	case w.length >= 0:
		fields = append(fields, h2.FieldOfKey("Content-Length", strconv.FormatInt(w.length, 10)))
	case !w.hasLength && last && allowed && (len(p) > 0 || !w.isHead):
		fields = append(fields, h2.FieldOfKey("Content-Length", strconv.Itoa(len(p))))
	}
	if !w.hasDate {
		fields = append(fields, h2.FieldOfKey("Date", semantics.Date()))
	}
	return fields
}

// declareTrailers declares the trailers that the lists in values name.
func (w *response) declareTrailers(values []string) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name != "" {
				w.declareTrailer(name)
			}
		}
	}
}

// promoteTrailers declares the trailers whose keys have the trailer prefix.
func (w *response) promoteTrailers() {
	for key, values := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			w.declareTrailer(name)
			w.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if w.trailers != nil {
		slices.Sort(w.trailers.names)
	}
}

// trailerFields returns the declared trailers that have values, or nil.
func (w *response) trailerFields() (fields []h2.Field) {
	if w.trailers == nil {
		return nil
	}
	for _, name := range w.trailers.names {
		values, ok := w.header[name]
		if ok && fields == nil {
			fields = []h2.Field{}
		}
		for _, v := range values {
			if f := h2.FieldOfKey(name, v); f.Valid() && !f.Name.Class().IsPseudo() {
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// writeError returns net/http's error for an error of h2.
func writeError(err error) error {
	if err == nil {
		return nil // without the allocation that errors.As needs
	}
	var gone *h2.ConnError
	switch {
	case errors.As(err, &gone):
		return errDisconnected
	case err == h2.ErrEnded:
		return errReturned
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	}
	return errStreamClosed
}

func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends the header and everything written to the body so far.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return nil
	}
	w.writeHeader(http.StatusOK)
	if err := w.emitBuffer(false); err != nil {
		return err
	}
	return writeError(w.x.stream.Flush())
}

// finish ends the answer after the handler has returned.
func (w *response) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	w.done = true
	_ = w.emitBuffer(true)
	if w.resets {
		w.x.stream.Reset(h2.ProtocolError)
	}
}

// abort ends the answer of a handler that has panicked or ended its goroutine.
func (w *response) abort() {
	if !w.mu.TryLock() { // it has panicked inside one of our methods, or another goroutine writes
		return
	}
	defer w.mu.Unlock()
	w.done = true
	w.releaseMemory()
}

// CloseNotify takes no lock, which a Write may hold.
func (w *response) CloseNotify() <-chan bool {
	ch := make(chan bool, 1)
	if !w.notified.CompareAndSwap(nil, &ch) {
		return *w.notified.Load()
	}
	if w.x.ctx.Err() != nil {
		ch <- true
	} else {
		context.AfterFunc(w.x.ctx, func() { ch <- true })
	}
	return ch
}

func (w *response) Push(string, *http.PushOptions) error { return http.ErrNotSupported }

// SetReadDeadline is for http.ResponseController. Like net/http it never fails.
func (w *response) SetReadDeadline(t time.Time) error {
	_ = w.x.current().stream.SetReadDeadline(t)
	return nil
}

func (w *response) SetWriteDeadline(t time.Time) error {
	_ = w.x.current().stream.SetWriteDeadline(t)
	return nil
}

func (w *response) EnableFullDuplex() error { return nil } // streams always are
