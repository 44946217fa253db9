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
	return w.isWhole()
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

// framing is how the body is sent, and how much of it is missing: all that is needed of an answer whose
// header was sent.
type framing struct {
	left     int64 // of a counted body: bytes that are still to be written
	status   uint16
	counted  bool // the length of the body is declared, or known
	chunking bool
	isHead   bool // the request's method is HEAD: no body is sent
	closes   bool // the connection is closed after the answer
	wrote    bool // the header is fixed
	sent     bool // and was sent
}

func (f *framing) allowsBody() bool { return semantics.BodyAllowed(int(f.status)) }
func (f *framing) isWhole() bool    { return f.wrote && !f.allowsBody() || f.sent && f.isHead }

// admit decides whether n more bytes may be written.
func (f *framing) admit(n int) error {
	if !f.allowsBody() {
		return http.ErrBodyNotAllowed
	}
	if f.left -= int64(n); f.counted && f.left < 0 {
		return http.ErrContentLength
	}
	return nil
}

// isReusable reports whether the connection can serve another request after the end of the answer.
func (f *framing) isReusable() bool {
	return !f.closes && (f.isHead || !f.counted || f.left == 0 || !f.allowsBody())
}

// appendChunkSize appends what is sent before a chunk of n bytes.
func appendChunkSize(b []byte, n int) []byte {
	return append(strconv.AppendUint(b, uint64(n), 16), crlf...)
}

// A Tail is all that is needed of a Response once its header was sent, or before anything is written.
type Tail struct{ framing }

// Tail returns the tail. ok is false if the header is there but wasn't sent, something waits to be sent,
// or trailers are declared, so that the Response is still needed.
func (w *Response) Tail() (t Tail, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isBlank := !w.wrote && w.header == nil && w.out == nil && !w.hasBody && !w.is10 && !w.isConnect
	isSent := w.sent && len(w.body)+len(w.out) == 0 && !w.has(trailer)
	return Tail{w.framing}, w.err == nil && (isBlank || isSent)
}

// IsWhole is Response.IsWhole.
func (t *Tail) IsWhole() bool { return t.isWhole() }

// Response returns a Response on conn if nothing was written, and otherwise nil.
func (t *Tail) Response(conn Conn) *Response {
	if t.sent {
		return nil
	}
	return &Response{conn: conn, answer: answer{framing: t.framing}}
}

// Append appends p, a part of the body that is not empty, as it is to be sent.
func (t *Tail) Append(b, p []byte) ([]byte, error) {
	switch err := t.admit(len(p)); {
	case err != nil:
		return b, err
	case t.isHead:
		return b, nil
	case t.chunking:
		return append(append(appendChunkSize(b, len(p)), p...), crlf...), nil
	}
	return append(b, p...), nil
}

// End returns what is sent after the body, and whether the connection can serve another request.
func (t *Tail) End() (last string, reusable bool) {
	if t.chunking {
		last = "0\r\n\r\n"
	}
	return last, t.isReusable()
}
