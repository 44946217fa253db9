package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// grpcOpener distributes the callers over the connections: caller i uses connection i modulo
// job.Conns.
func grpcOpener(job Job) opener {
	conns := make([]grpcConn, job.Conns)
	req := wrapperspb.Bytes(bytes.Repeat([]byte("x"), job.Payload))
	return func(i int) (session, error) {
		conn := &conns[i%len(conns)]
		cc, err := conn.connect(job)
		if err != nil {
			return nil, err
		}
		caller := grpcCaller{cc: cc, release: conn.release, req: req}
		if job.Kind == KindGRPCStream {
			return newGRPCStream(caller)
		}
		return newGRPCCaller(caller, job)
	}
}

// grpcConn is a connection that several callers share. It is safe for concurrent use.
type grpcConn struct {
	mu    sync.Mutex
	users int              // guarded by mu
	cc    *grpc.ClientConn // guarded by mu
}

// connect returns the connection, and opens it for the first caller. Every caller must release it.
func (c *grpcConn) connect(job Job) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc == nil {
		creds := insecure.NewCredentials()
		if job.TLS { // by a certificate that was made a moment ago, so there is nothing to verify
			creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
		}
		cc, err := grpc.NewClient("passthrough:///"+job.Addr, grpc.WithTransportCredentials(creds))
		if err != nil {
			return nil, err
		}
		c.cc = cc
	}
	c.users++
	return c.cc, nil
}

// release closes the connection when its last caller is done.
func (c *grpcConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		c.cc.Close()
		c.cc = nil
	}
}

// grpcCaller is the part that all kinds of gRPC session share.
type grpcCaller struct {
	cc      *grpc.ClientConn
	release func()
	req     *wrapperspb.BytesValue // shared by all callers, never written
}

// check compares an answer with the request.
func (c *grpcCaller) check(out *wrapperspb.BytesValue) error {
	if !bytes.Equal(out.Value, c.req.Value) {
		return errors.New("the answer differs from the request")
	}
	return nil
}

// watchdog cancels a context at a deadline that can be moved. A context with a deadline would add a
// grpc-timeout header to every call and a timer in the server. One goroutine uses it.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// newWatchdog returns a watchdog without a deadline.
func newWatchdog() watchdog {
	ctx, cancel := context.WithCancelCause(context.Background())
	return watchdog{ctx: ctx, cancel: cancel}
}

// set moves the deadline; the zero time means no deadline.
func (w *watchdog) set(t time.Time) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if !t.IsZero() {
		w.timer = time.AfterFunc(time.Until(t), func() { w.cancel(os.ErrDeadlineExceeded) })
	}
}

// explain replaces the error of a call that the watchdog canceled with the cause.
func (w *watchdog) explain(err error) error {
	if cause := context.Cause(w.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// stop ends every call under the watchdog.
func (w *watchdog) stop() {
	w.set(time.Time{})
	w.cancel(context.Canceled)
}

// grpcUnary makes unary calls.
type grpcUnary struct {
	grpcCaller
	dog watchdog
}

// newGRPCCaller makes one call, since a ClientConn connects lazily.
func newGRPCCaller(caller grpcCaller, job Job) (session, error) {
	unary := grpcUnary{grpcCaller: caller, dog: newWatchdog()}
	var s session = &unary
	if job.Kind == KindGRPCWatch {
		s = &grpcWatcher{grpcUnary: unary, most: max(1, job.Streams)}
	}
	if job.Kind == KindGRPCMethod {
		raw := &grpcRaw{grpcUnary: unary, method: job.Path, message: new(emptypb.Empty)}
		if err := proto.Unmarshal(job.Message, raw.message); err != nil {
			return nil, fmt.Errorf("the message is none of protocol buffers: %w", err)
		}
		s = raw
	}
	s.setDeadline(time.Now().Add(dialTimeout))
	if err := s.op(); err != nil {
		s.close()
		return nil, fmt.Errorf("first call: %w", err)
	}
	s.setDeadline(time.Time{})
	return s, nil
}

func (s *grpcUnary) op() error {
	out := new(wrapperspb.BytesValue)
	if err := s.cc.Invoke(s.dog.ctx, target.EchoUnary, s.req, out); err != nil {
		return s.dog.explain(err)
	}
	return s.check(out)
}

func (s *grpcUnary) setDeadline(t time.Time) { s.dog.set(t) }

func (s *grpcUnary) close() {
	s.dog.stop()
	s.release()
}

// begin opens a stream of the server and sends the request.
func (s *grpcUnary) begin(method string) (grpc.ClientStream, error) {
	stream, err := s.cc.NewStream(s.dog.ctx, &target.ServerDesc, method)
	if err != nil {
		return nil, s.dog.explain(err)
	}
	if err := stream.SendMsg(s.req); err != nil {
		return nil, s.dog.explain(err)
	}
	return stream, s.dog.explain(stream.CloseSend())
}

// next reads a message of a stream of the server.
func (s *grpcUnary) next(stream grpc.ClientStream) error {
	out := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(out); err != nil {
		return s.dog.explain(err)
	}
	return s.check(out)
}

// end reads the status of a stream of the server.
func (s *grpcUnary) end(stream grpc.ClientStream) error {
	err := s.next(stream)
	switch {
	case err == nil:
		return errors.New("the server has sent too many messages")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// grpcRaw makes unary calls of any method. Protocol buffers keep fields that a type doesn't have, so a
// message of any type goes as one without fields.
type grpcRaw struct {
	grpcUnary
	method  string
	message *emptypb.Empty
}

func (s *grpcRaw) op() error {
	return s.dog.explain(s.cc.Invoke(s.dog.ctx, s.method, s.message, new(emptypb.Empty)))
}

// grpcWatcher makes unary calls, and can leave calls of target.EchoWatch open.
type grpcWatcher struct {
	grpcUnary
	most    int // of watches
	watches []grpc.ClientStream
}

// send opens the watches, and reads the message that each begins with.
func (s *grpcWatcher) send() error {
	for len(s.watches) < s.most {
		stream, err := s.begin(target.EchoWatch)
		if err != nil {
			return err
		}
		if err := s.next(stream); err != nil {
			return err
		}
		s.watches = append(s.watches, stream)
	}
	return nil
}

// receive reads the rest of the watches.
func (s *grpcWatcher) receive() error {
	for _, stream := range s.watches {
		if err := s.next(stream); err != nil {
			return err
		}
		if err := s.end(stream); err != nil {
			return err
		}
	}
	s.watches = nil
	return nil
}

// grpcStream sends messages on a stream and waits for each to come back.
type grpcStream struct {
	grpcCaller
	dog    watchdog
	stream grpc.ClientStream
}

// newGRPCStream opens the stream.
func newGRPCStream(caller grpcCaller) (session, error) {
	s := &grpcStream{grpcCaller: caller, dog: newWatchdog()}
	s.setDeadline(time.Now().Add(dialTimeout))
	stream, err := s.cc.NewStream(s.dog.ctx, &target.StreamDesc, target.EchoStream)
	if err != nil {
		err = s.dog.explain(err)
		s.close()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	s.setDeadline(time.Time{})
	s.stream = stream
	return s, nil
}

func (s *grpcStream) op() error {
	if err := s.stream.SendMsg(s.req); err != nil {
		return s.dog.explain(err)
	}
	out := new(wrapperspb.BytesValue)
	if err := s.stream.RecvMsg(out); err != nil {
		return s.dog.explain(err)
	}
	return s.check(out)
}

func (s *grpcStream) setDeadline(t time.Time) { s.dog.set(t) }

func (s *grpcStream) close() {
	s.dog.stop()
	s.release()
}
