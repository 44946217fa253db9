package http1

import (
	"maps"
	"net/http"
	"strconv"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// Detach moves the rest of the answer to a new Response on conn. From then on this one, which the
// handler and its middleware have, takes nothing. It returns nil if the answer has ended, or was
// hijacked.
func (w *Response) Detach(conn Conn) *Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase != handling {
		return nil
	}
	d := &Response{conn: conn, answer: w.answer}
	d.tooLarge.Store(w.TooLarge())
	if !w.sent || w.has(trailer) {
		d.header = maps.Clone(w.header) // middleware may look at its own when the handler has returned
	}
	w.phase = detached
	w.body, w.out = nil, nil
	return d
}

// SentPlain reports whether the header was sent without a Content-Encoding, so that a wrapper of the
// http.ResponseWriter must leave the body as it is.
func (w *Response) SentPlain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && !w.encoded
}

// Wrote reports whether the header is fixed.
func (w *Response) Wrote() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote
}

// IsWhole reports whether the header is all of the answer: it is fixed and says so, or it was sent and
// answers HEAD. (Before that it may get the length of the body.)
func (w *Response) IsWhole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote && !semantics.BodyAllowed(w.status) || w.sent && w.isHead
}

// EndsConn reports whether the answer is known to end the connection.
func (w *Response) EndsConn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closes || !w.sent && semantics.First(w.header, "Connection") == "close"
}

// Err returns why the connection has failed, or nil.
func (w *Response) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// A Tail is all that is needed of a Response once its header was sent, or before anything is written.
type Tail struct {
	left   int64 // how many bytes are missing of a body whose length was declared
	form   tailForm
	status uint16
	closes bool
	isHead bool // of a whole answer
}

// tailForm is how the rest of a body is sent.
type tailForm uint8

const (
	inChunks tailForm = iota
	counted           // as long as declared
	untilEnd          // until the connection ends
	unsent            // it answers HEAD
	whole             // there is no header yet: Response makes the Response again
)

// Tail returns the tail. ok is false if the header is there but wasn't sent, something waits to be sent,
// or trailers are declared, so that the Response is still needed.
func (w *Response) Tail() (t Tail, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrote && w.header == nil && w.out == nil && w.err == nil && !w.hasBody && !w.is10 && !w.isConnect {
		return Tail{form: whole, closes: w.closes, isHead: w.isHead}, true
	}
	if !w.sent || len(w.body)+len(w.out) > 0 || w.err != nil || w.has(trailer) {
		return Tail{}, false
	}
	t = Tail{left: -1, closes: w.closes, status: uint16(w.status)}
	if w.length >= 0 {
		t.left = w.length - w.written
	}
	switch {
	case w.isHead:
		t.form = unsent
	case w.chunking:
		t.form = inChunks
	case w.length >= 0:
		t.form = counted
	default:
		t.form = untilEnd
	}
	return t, true
}

// IsWhole is Response.IsWhole.
func (t *Tail) IsWhole() bool {
	return t.form == unsent || t.form != whole && !semantics.BodyAllowed(int(t.status))
}

// Response returns a Response on conn for a whole answer, and otherwise nil.
func (t *Tail) Response(conn Conn) *Response {
	if t.form != whole {
		return nil
	}
	return &Response{conn: conn, answer: answer{length: -1, isHead: t.isHead, closes: t.closes}}
}

// Append appends p, a part of the body that is not empty, as it is to be sent.
func (t *Tail) Append(b, p []byte) ([]byte, error) {
	if !semantics.BodyAllowed(int(t.status)) {
		return b, http.ErrBodyNotAllowed
	}
	if t.left >= 0 && int64(len(p)) > t.left {
		t.closes = true // the answer stays short
		return b, http.ErrContentLength
	}
	if t.left >= 0 {
		t.left -= int64(len(p))
	}
	switch t.form {
	case unsent:
		return b, nil
	case inChunks:
		b = strconv.AppendUint(b, uint64(len(p)), 16)
		b = append(b, crlf...)
		b = append(b, p...)
		return append(b, crlf...), nil
	}
	return append(b, p...), nil
}

// End returns what is sent behind the body, and whether the connection can serve another request.
func (t *Tail) End() (last string, reusable bool) {
	reusable = !t.closes
	switch t.form {
	case inChunks:
		last = "0\r\n\r\n"
	case counted:
		reusable = reusable && (t.left == 0 || !semantics.BodyAllowed(int(t.status)))
	}
	return last, reusable
}
