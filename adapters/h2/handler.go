package h2

import "slices"

// A Handler decides who serves a stream. See [HandlerFunc] for the simple way.
type Handler interface {
	// Accept is called when the header of a request has come. It must not block: the connection's
	// other streams wait meanwhile. r and r.Fields are valid until Accept returns, strings as long
	// as they are kept. It returns what serves the stream, or nil to refuse it (REFUSED_STREAM: the
	// client may try again elsewhere). If the connection ends at the same time, no method of the
	// result is called but Stream.
	Accept(c *Conn, r *Request) StreamHandler
}

// A StreamHandler serves one stream.
type StreamHandler interface {
	// Stream returns the stream, which is a field of the handler's, so that both are one
	// allocation. It returns the same each time.
	Stream() *Stream

	// Serve is called once, on a goroutine of the pool, with as much of the body there as has come
	// with the header. It may block. When it returns the stream ends: with RST_STREAM unless the
	// answer is complete and the request was. It is not called if the stream has ended before.
	//
	// A Serve that panics ends its stream and no other; the panic goes to the log.
	Serve()

	// Cancelled is called once if the stream ends early, because of the client, of the connection
	// or of this side, before Serve has returned. It may run at the same time as Serve, and must
	// not block.
	Cancelled(err error)
}

// Refuse returns a result of Accept that resets the stream with a code, such as ProtocolError for a
// request that breaks a rule.
func Refuse(code ErrCode) StreamHandler { return refusal(code) }

// refusal is the code with which a stream is refused.
type refusal ErrCode

func (refusal) Stream() *Stream { panic("h2: a stream that was refused has begun") }
func (refusal) Serve()          {}
func (refusal) Cancelled(error) {}

// A ConnHandler is a Handler that follows its connections.
type ConnHandler interface {
	Handler

	// ConnState is called when the state of a connection changes, for one change after the other.
	// Active comes before the handler of the stream is called. It should not block for long, and
	// must not wait for a stream of the connection.
	ConnState(c *Conn, s ConnState)
}

// HandlerFunc is a Handler that is called for each stream, as a StreamHandler's Serve is. The
// request is the handler's. One with a Problem is answered with status 431 or 400 instead.
type HandlerFunc func(s *Stream, r *Request)

// Accept makes the stream.
func (f HandlerFunc) Accept(_ *Conn, r *Request) StreamHandler {
	h := &funcStream{f: f, request: *r}
	h.request.Fields = slices.Clone(r.Fields)
	return h
}

// funcStream is a stream of a HandlerFunc.
type funcStream struct {
	stream  Stream
	f       HandlerFunc
	request Request
}

func (h *funcStream) Stream() *Stream { return &h.stream }

func (h *funcStream) Serve() {
	if status := h.request.Problem.Status(); status != 0 {
		_ = h.stream.Send(Message{Status: status, End: true, Hold: true})
		return
	}
	h.f(&h.stream, &h.request)
}

func (h *funcStream) Cancelled(error) {}
