package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// grpcSession makes calls on a connection, which it may share with other sessions.
type grpcSession struct {
	cc      *grpc.ClientConn
	call    func() error
	message *wrapperspb.BytesValue // of the Echo service; shared, never written

	most    int                 // calls of EchoWatch that send opens
	watches []grpc.ClientStream // these

	deadline time.Time // zero: none
	timer    *time.Timer
}

// grpcSessions distributes the callers over the connections: caller i uses connection i modulo Conns.
func grpcSessions(job *scenario.Scenario) opener {
	conns := make([]*grpc.ClientConn, job.Conns)
	var failed error
	for i := range conns {
		cc, err := grpc.NewClient("passthrough:///"+job.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		conns[i], failed = cc, errors.Join(failed, err)
	}
	message := wrapperspb.Bytes(bytes.Repeat([]byte("x"), job.Payload))
	return func(i int) (session, error) {
		if failed != nil {
			return nil, failed
		}
		s := &grpcSession{cc: conns[i%len(conns)], message: message, most: max(1, job.Streams)}
		s.setDeadline(time.Now().Add(dialTimeout))
		if err := s.begin(job); err != nil {
			s.close()
			return nil, fmt.Errorf("first call: %w", s.explain(err))
		}
		s.setDeadline(time.Time{})
		return s, nil
	}
}

// begin chooses what a call is, and makes one: a ClientConn connects lazily.
func (s *grpcSession) begin(job *scenario.Scenario) error {
	switch {
	case job.App == scenario.AppMethod:
		// Protocol buffers keep fields that a type doesn't have, so a message of any type goes as one
		// without fields.
		in := new(emptypb.Empty)
		if err := proto.Unmarshal(job.Message, in); err != nil {
			return fmt.Errorf("the message is none of protocol buffers: %w", err)
		}
		s.call = func() error { return s.cc.Invoke(context.Background(), job.Path, in, new(emptypb.Empty)) }
	case job.Stream:
		stream, err := s.cc.NewStream(context.Background(), &target.StreamDesc, scenario.EchoStream)
		if err != nil {
			return err
		}
		s.call = func() error {
			if err := stream.SendMsg(s.message); err != nil {
				return err
			}
			return s.next(stream)
		}
	default:
		s.call = func() error {
			out := new(wrapperspb.BytesValue)
			return s.check(out, s.cc.Invoke(context.Background(), scenario.EchoUnary, s.message, out))
		}
	}
	return s.call()
}

func (s *grpcSession) op() error { return s.explain(s.call()) }

func (s *grpcSession) next(stream grpc.ClientStream) error {
	out := new(wrapperspb.BytesValue)
	return s.check(out, stream.RecvMsg(out))
}

// check compares an answer with the message, unless there was an error.
func (s *grpcSession) check(out *wrapperspb.BytesValue, err error) error {
	if err == nil && !bytes.Equal(out.Value, s.message.Value) {
		err = errors.New("the answer differs from the request")
	}
	return err
}

// send opens the watches, and reads the message that each begins with.
func (s *grpcSession) send() error {
	for len(s.watches) < s.most {
		stream, err := s.cc.NewStream(context.Background(), &target.ServerDesc, scenario.EchoWatch)
		if err == nil {
			err = errors.Join(stream.SendMsg(s.message), stream.CloseSend())
		}
		if err == nil {
			err = s.next(stream)
		}
		if err != nil {
			return s.explain(err)
		}
		s.watches = append(s.watches, stream)
	}
	return nil
}

// receive reads the rest of the watches: a message and the end.
func (s *grpcSession) receive() error {
	for _, stream := range s.watches {
		if err := s.next(stream); err != nil {
			return s.explain(err)
		}
		if err := s.next(stream); !errors.Is(err, io.EOF) {
			return fmt.Errorf("after the last message: %w", s.explain(err))
		}
	}
	s.watches = nil
	return nil
}

// close closes the connection, which another session may have done.
func (s *grpcSession) close() {
	s.setDeadline(time.Time{})
	s.cc.Close()
}

// setDeadline makes the connection end at t, and all calls with it. A context with a deadline would add
// a grpc-timeout header to every call and a timer in the server.
func (s *grpcSession) setDeadline(t time.Time) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.deadline = t; !t.IsZero() {
		s.timer = time.AfterFunc(time.Until(t), func() { s.cc.Close() })
	}
}

// explain returns the error of a call, or that the connection was closed at the deadline.
func (s *grpcSession) explain(err error) error {
	if err != nil && !s.deadline.IsZero() && !time.Now().Before(s.deadline) {
		return os.ErrDeadlineExceeded
	}
	return err
}
