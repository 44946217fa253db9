package rpc

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
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
type call struct {
	stream h2Stream
	web    *webStream // in its place, for a call of ServeHTTP; nil for others

	// immutable once Serve has begun
	conn     *conn
	parent   context.Context // of the call's own: the connection's
	tagged   context.Context // with what the stats handler has added; of its events
	method   string
	subtype  string // of the content-type
	encoding string // of the messages that come; "": none
	accepts  string // grpc-accept-encoding
	deadline time.Time
	fields   []h2.Field // of the metadata, as far as md does not have them
	refusal  *refusal   // nil: the call is served
	from     *method

	sending sync.Mutex // held while a part of the answer is sent; before mu and those of h2

	mu sync.Mutex

	// guarded by mu
	md         metadata.MD // nil until it is asked for
	header     metadata.MD
	trailer    metadata.MD
	compressor string  // of the messages that go; grpc-encoding
	chosen     *string // nil: compressor counts, otherwise this; see TransportStream.ChooseBy
	headerSent bool
	done       bool
	code       codes.Code // which the call is counted by
	closing    bool       // the connection has ended
	err        error      // of the context
	doneChan   chan struct{}
	after      map[*func()]struct{}
	timer      h2.Timer

	messages messages

	ctx context.Context // the handler's

	ownFields [4]h2.Field // memory of fields
}

// messages is how messages are coded. It belongs to the handler.
type messages struct {
	codec        Codec
	decompressor encoding.Compressor
	compressor   encoding.Compressor
	name         string // of compressor
	received     bool   // the first one
	slot         [1]mem.Buffer
	head         [headBytes]byte
}

// refusal is how a call is answered that is not served.
type refusal struct {
	httpStatus int
	status     *status.Status
}

// Stream implements [h2.StreamHandler].
func (c *call) Stream() *h2.Stream { return &c.stream.Stream }

// carrier is what carries a call: a stream of package h2, or a request of net/http.
type carrier interface {
	Read(p []byte) (int, error)
	CloseRead()
	Send(m h2.Message) error
	Write(p []byte) (int, error)
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

// end ends the call, unless it is done, with a code. reason is for the context.
func (c *call) end(code codes.Code, reason error, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = c.closing || closing
	if !c.done {
		c.done, c.code = true, code
		c.endLocked(reason)
	}
}

// expire is called at the deadline.
func (c *call) expire() {
	c.end(codes.DeadlineExceeded, context.DeadlineExceeded, false)
	c.carrier().Reset(h2.Cancel)
}

// Serve implements [h2.StreamHandler].
func (c *call) Serve() {
	s := c.conn.server
	c.conn.counts.add(countStarted)
	s.handlers.add() // before stops is read: see Server.stop
	defer s.handlers.leave()
	if c.conn.guest && s.stops.Load() {
		c.refusal = errStopped
	}
	if c.refusal != nil {
		c.refuse()
		return
	}
	defer c.finish()
	if !c.deadline.IsZero() && !c.startTimer() {
		c.expire()
		return
	}
	if c.parent.Done() != nil {
		stop := context.AfterFunc(c.parent, func() {
			err := c.parent.Err()
			c.end(status.FromContextError(err).Code(), err, false)
			c.carrier().Reset(h2.Cancel)
		})
		defer stop()
	}
	c.handle()
}

// startTimer starts the timer of the deadline. It reports false if that has passed.
func (c *call) startTimer() bool {
	left := time.Until(c.deadline)
	if left <= 0 {
		return false
	}
	timer := c.carrier().afterFunc(left, c.expire)
	c.mu.Lock()
	c.timer = timer
	c.mu.Unlock()
	return true
}

// finish ends what belongs to the call, when the handler has returned or panics.
func (c *call) finish() {
	c.end(codes.Internal, context.Canceled, false) // without a status: it panics, or ends its goroutine
	if c.timer != nil {
		c.timer.Stop()
	}
	c.conn.counts.add(ended(c.code))
}

// handle finds the method, and calls its handler.
func (c *call) handle() {
	s := c.conn.server
	m, malformed, st := s.services.find(c.method)
	sh := s.config.Stats
	if malformed || sh == nil {
		c.ctx = c.context(nil)
	} else {
		c.ctx = c.context(func(ctx context.Context) context.Context {
			return sh.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: c.method})
		})
		md, _ := metadata.FromIncomingContext(c.tagged)
		sh.HandleRPC(c.tagged, &stats.InHeader{
			FullMethod: c.method, RemoteAddr: c.conn.peer.Addr, LocalAddr: c.conn.peer.LocalAddr,
			Compression: c.encoding, Header: md,
		})
	}
	if m == nil && !malformed {
		m = s.unknown
	}
	if m == nil {
		c.conn.counts.add(countRefused)
		_ = c.sendStatus(st, true)
		return
	}
	c.from = m
	if sh == nil {
		_ = c.process()
		return
	}
	begin := time.Now()
	sh.HandleRPC(c.tagged, &stats.Begin{
		BeginTime: begin, IsClientStream: m.desc.ClientStreams, IsServerStream: m.desc.ServerStreams,
	})
	var err error
	defer func() { // a handler may panic
		end := &stats.End{BeginTime: begin, EndTime: time.Now()}
		if err != nil && err != io.EOF {
			end.Error = statusError(err)
		}
		sh.HandleRPC(c.ctx, end)
	}()
	err = c.process()
}

// process calls the handler through the interceptors, and sends the status.
func (c *call) process() error {
	s := c.conn.server
	m := &c.messages
	m.codec = s.codec(c.subtype)
	if c.encoding != "" && c.encoding != encoding.Identity {
		m.decompressor = encoding.GetCompressor(c.encoding)
		if m.decompressor == nil {
			st := status.Newf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", c.encoding)
			_ = c.sendStatus(st, true)
			return st.Err()
		}
		m.compressor, m.name, c.compressor = m.decompressor, c.encoding, c.encoding
	}
	desc, stream := c.from.desc, (*serverStream)(c)
	var err error
	if s.config.Stream == nil || c.from.isUnary() {
		err = desc.Handler(c.from.impl, stream) // which calls the interceptors of a unary call
	} else {
		err = s.config.Stream(c.from.impl, stream, &grpc.StreamServerInfo{
			FullMethod: c.method, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams,
		}, desc.Handler)
	}
	if err == nil {
		_ = c.sendStatus(nil, true)
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // Unknown, except for the errors of contexts
		err = st.Err()
	}
	_ = c.sendStatus(st, true)
	return err
}
