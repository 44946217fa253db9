package rpc

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
)

// call is a call of a method.
//
// # The answer
//
//	headerSent  done   meaning                                     leaves by
//	false       false  the header may change                       SendHeader, the first message, the status
//	true        false  messages may follow                         the status
//	any         true   nothing more is sent: the status was, or    (final)
//	                   the stream has ended early, or is too late
//
// The context ends (err is not nil) when done becomes true, and code is known from then on.
//
// # The late status
//
// A call that is cut off, at its deadline say, is done before its status is sent:
//
//	late      meaning                                        leaves by
//	lateNone  the call isn't cut off                         cutOff: lateDue
//	lateDue   the status is to be sent by the goroutine      sendLateLocked: lateSent
//	          that holds sending next
//	lateSent  it was sent, or is being sent                  (final)
type call struct {
	stream h2Stream
	web    *webStream // in its place, for a call of ServeHTTP; nil for others

	// immutable once Serve has begun
	conn     *conn
	tapped   *context.Context // of a tap; nil: the parent of the call's own is the connection's
	method   string
	deadline time.Time
	fields   []field  // of the metadata
	refusal  *refusal // nil: the call is served
	from     *method

	sending sync.Mutex // held while a part of the answer is sent; before mu and those of h2

	mu sync.Mutex

	// guarded by mu
	md         metadata.MD // nil until it is asked for
	header     metadata.MD
	trailer    metadata.MD
	chosen     *string    // the compressor of the messages that go; nil: none; see TransportStream.ChooseBy
	err        error      // of the context
	code       codes.Code // which the call is counted by
	headerSent bool
	done       bool
	closing    bool // the connection has ended
	placed     bool // it has a place of Config.Work; owned by the method's goroutine
	returned   bool // the method has; see detach.go
	goesOn     bool // the same, and the call goes on; owned by the method's goroutine
	late       atomic.Uint32
	doneChan   chan struct{}
	after      map[*func()]struct{}
	detached   *Detached // nil: the call isn't

	messages messages

	// owned by the method's goroutine
	timer h2.Timer        // of the deadline and of the parent's end; nil: there is none
	ctx   context.Context // the handler's, and of the events of the stats handler

	ownFields [4]field // memory of fields
}

// field is a metadata field.
type field struct {
	name  *h2.Name
	value string
}

// compressorLocked returns the name of the compressor of the messages that are sent.
func (c *call) compressorLocked() string {
	if c.chosen == nil {
		return ""
	}
	return *c.chosen
}

// refusal is the answer to a call that is not served.
type refusal struct {
	httpStatus int
	status     *status.Status
}

func (c *call) server() *Server      { return c.conn.server }
func (c *call) config() *Config      { return &c.conn.server.config }
func (c *call) stats() stats.Handler { return c.conn.server.stats } // nil: there is none

// count adds n to a counter of the server.
func (c *call) count(what counter, n int64) { c.conn.counts.Add(what, n) }

// parent returns the parent of the call's context.
func (c *call) parent() context.Context {
	if c.tapped != nil {
		return *c.tapped
	}
	return c.conn.ctx
}

// Stream implements [h2.StreamHandler].
func (c *call) Stream() *h2.Stream { return &c.stream.Stream }

// carrier carries a call: a stream of package h2, or a request of net/http.
type carrier interface {
	ReadFull(p []byte) (int, error)
	Buffered() int // bytes that can be read without waiting, as far as that is known
	CloseRead()
	Send(m h2.Message) error
	Reset(code h2.ErrCode)
	afterFunc(d time.Duration, f func()) h2.Timer
	headerBytesMax() int
}

// h2Stream is a stream of package h2 as a carrier.
type h2Stream struct{ h2.Stream }

func (s *h2Stream) afterFunc(d time.Duration, f func()) h2.Timer { return s.Conn().AfterFunc(d, f) }
func (s *h2Stream) headerBytesMax() int                          { return s.Conn().HeaderBytesMax() }

func (c *call) carrier() carrier {
	if c.web != nil {
		return c.web
	}
	return &c.stream
}

// Cancelled implements [h2.StreamHandler].
func (c *call) Cancelled(err error) {
	_, closing := err.(*h2.ConnError)
	c.end(codes.Canceled, context.Canceled, closing)
}

// end ends the call with a code, unless it is done. reason becomes the error of the context.
func (c *call) end(code codes.Code, reason error, closing bool) {
	c.mu.Lock()
	c.closing = c.closing || closing
	ends := !c.done
	if ends {
		c.done, c.code = true, code
		c.endLocked(reason)
	}
	c.mu.Unlock()
	if ends {
		c.tellOwner(reason)
	}
}

// Serve implements [h2.StreamHandler]. A handler that waits keeps the stack frames of its callers, so
// what is done before and after it is in functions of its own, here and below.
func (c *call) Serve() {
	s := c.server()
	c.count(countStarted, 1)
	s.handlers.add() // before stopping is read: see Server.stop
	defer c.served()
	if c.conn.shared && s.stopping.Load() {
		c.refusal = errStopped
	}
	if c.refusal == nil && !c.deadline.IsZero() && time.Until(c.deadline) <= 0 {
		c.refusal = tooLate
	}
	if c.refusal == nil {
		c.handle()
		return
	}
	c.count(countRefused, 1)
	c.count(ended(c.refusal.status.Code()), 1)
	c.sendRefusal()
}

// served cleans up after the handler has returned or panicked.
func (c *call) served() {
	if c.placed {
		c.config().Work.Limiter.Leave()
	}
	if c.goesOn {
		c.count(countDetached, 1)
		c.Resume()
		return
	}
	c.finish()
	if o := c.owner(); o != nil { // its method has failed
		o.Work()
	}
}

// finish releases the resources of a call that has ended, or whose handler panics. Refused calls are
// already counted.
func (c *call) finish() {
	if c.refusal == nil {
		c.end(codes.Internal, context.Canceled, false) // without a status: it panics, or ends its goroutine
		if c.timer != nil {
			c.timer.Stop()
		}
		if c.late.Load() != lateNone { // the handler panics, or another goroutine is sending the status
			c.sending.Lock()
			c.sendLateLocked()
			c.sending.Unlock()
		}
		c.count(ended(c.code), 1)
	}
	c.conn.server.handlers.leave()
}

// handle finds the method, and calls its handler.
func (c *call) handle() {
	s := c.server()
	m, malformed, st := s.services.find(c.method)
	sh := s.stats
	if malformed {
		sh = nil // it is not notified of them
	} else if m == nil {
		m = s.unknown
	}
	if sh == nil {
		c.ctx = c.context(nil)
	} else {
		c.reportCall(sh)
	}
	if m == nil {
		c.count(countRefused, 1)
		_ = c.sendStatus(st, true)
		return
	}
	c.from = m
	if sh == nil {
		_ = c.process()
	} else {
		c.processReported(sh)
	}
}

// reportCall reports the call to the stats handler, which may add to its context.
func (c *call) reportCall(sh stats.Handler) {
	c.ctx = c.context(func(ctx context.Context) context.Context {
		return sh.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: c.method})
	})
	md, _ := metadata.FromIncomingContext(c.ctx)
	from := c.conn.getPeer()
	sh.HandleRPC(c.ctx, &stats.InHeader{
		FullMethod: c.method, RemoteAddr: from.Addr, LocalAddr: from.LocalAddr,
		Compression: c.messages.encoding(), Header: md,
	})
}

// processReported is process with begin and end events.
func (c *call) processReported(sh stats.Handler) {
	begin, desc := time.Now(), c.from.desc
	sh.HandleRPC(c.ctx, &stats.Begin{
		BeginTime: begin, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams,
	})
	var err error
	defer func() { // a handler may panic
		if c.goesOn {
			c.detached.begin = begin
		} else {
			reportEnd(c.ctx, sh, begin, err)
		}
	}()
	err = c.process()
}

// reportEnd reports the end of a call to the stats handler.
func reportEnd(ctx context.Context, sh stats.Handler, begin time.Time, err error) {
	end := &stats.End{BeginTime: begin, EndTime: time.Now()}
	if err != nil && err != io.EOF {
		end.Error = statusError(err)
	}
	sh.HandleRPC(ctx, end)
}

// process calls the handler through the interceptors, and sends the status.
func (c *call) process() error {
	if err := c.chooseCodec(); err != nil {
		return err
	}
	c.watchTime() // from when its events may follow
	if err := c.takePlace(); err != nil {
		c.count(countRefused, 1)
		_ = c.sendStatus(status.Convert(err), true)
		return err
	}
	desc, stream, interceptor := c.from.desc, (*serverStream)(c), c.conn.server.stream
	var err error
	if interceptor == nil || c.from.isUnary() {
		err = desc.Handler(c.from.impl, stream) // which calls the interceptors of a unary call
	} else {
		err = interceptor(c.from.impl, stream, &grpc.StreamServerInfo{
			FullMethod: c.method, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams,
		}, desc.Handler)
	}
	if c.methodReturned(err) {
		return nil
	}
	st, err := resultStatus(err)
	if err != nil {
		if o := c.owner(); o != nil {
			o.Gone(err)
		}
	}
	_ = c.sendStatus(st, true)
	return err
}

// resultStatus returns the status for the handler's error, nil for OK, and the status as an error.
func resultStatus(err error) (*status.Status, error) {
	if err == nil {
		return nil, nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // Unknown, except for the errors of contexts
		err = st.Err()
	}
	return st, err
}
