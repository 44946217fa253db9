package h2

import "slices"

// A Handler decides who serves a stream. See [HandlerFunc] for the simple way.
type Handler interface {
	// Accept is called when the header of a request has come. It must not block, or it would hold up the
	// connection's other streams. r and r.Fields are valid until Accept returns; strings may be kept. It
	// returns the handler of the stream, or nil to refuse it (REFUSED_STREAM: the client may try again
	// elsewhere). If the connection ends at the same time, only the method Stream of the result is called.
	Accept(c *Conn, r *Request) StreamHandler
}

// A StreamHandler serves one stream.
type StreamHandler interface {
	// Stream returns the stream, which is a field of the handler, so that both take one allocation.
	// It returns the same stream each time.
	Stream() *Stream

	// Serve is called once, on a goroutine of the pool. The part of the body that came with the header is
	// already there. Serve may block. When it returns, the stream ends, with RST_STREAM unless both the
	// answer and the request are complete. It is not called if the stream has ended before.
	//
	// If Serve panics, only its stream ends, and the panic is logged, unless the Config says Crash. The
	// same goes for Accept. A panic of another method ends nothing.
	Serve()

	// Cancelled is called once if the stream ends early, because of the client, of the connection or of
	// this side, before Serve has returned. It may run at the same time as Serve, and must not block.
	Cancelled(err error)
}

// Refuse returns a result for Accept that resets the stream with a code, such as ProtocolError for a
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

	// ConnState is called when the state of a connection changes, one change at a time. Active
	// comes before the handler of the stream is called. It should not block for long, and must not
	// wait for a stream of the connection.
	ConnState(c *Conn, s ConnState)
}

// A PingHandler is a Handler that is told about the clients' PINGs, for servers that limit them.
type PingHandler interface {
	Handler

	// Ping is called when a client has sent a PING, which is answered in any case. answered says that a
	// header, trailers or part of a body was sent since the last PING: clients use PINGs to measure how
	// fast data comes. Ping must not block.
	Ping(c *Conn, answered bool)
}

// HandlerFunc is a Handler that is called for each stream, in the same way as a StreamHandler's Serve.
// The handler may keep the request. A request with a Problem is answered with status 431, or reset
// with ProtocolError, in some cases after an answer with status 400.
type HandlerFunc func(s *Stream, r *Request)

// Accept makes the stream.
func (f HandlerFunc) Accept(_ *Conn, r *Request) StreamHandler {
	if r == nil {
		panic("h2: HandlerFunc.Accept was called with a nil *Request")
	}
	if r.Problem.Malformed() && r.Problem.Status() == 0 {
		return Refuse(ProtocolError)
	}
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
	problem := h.request.Problem
	switch status := problem.Status(); {
	case status == 0:
		h.f(&h.stream, &h.request)
	case problem.Malformed():
		_ = h.stream.Send(Message{Status: status, Hold: true})
		h.stream.Reset(ProtocolError)
	default:
		_ = h.stream.Send(Message{Status: status, End: true, Hold: true})
	}
}

func (h *funcStream) Cancelled(error) {}
