package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
)

// grpcClient is grpc-go's client, or grpcadapter's.
type grpcClient interface {
	grpc.ClientConnInterface
	GetState() connectivity.State
	Close() error
}

// newGRPCClient makes a client of the backend. It connects with the first call.
func newGRPCClient(spec Spec) (grpcClient, error) {
	target := "passthrough:///" + spec.Backend
	if spec.Engine.FastPath {
		return grpcadapter.NewClient(target, grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// grpcCall makes calls with CallBytes in a message, on CallConns connections in turn. closeIdle closes
// all.
func grpcCall(spec Spec) (call func() error, closeIdle func()) {
	conns := make([]grpcClient, spec.CallConns)
	closeIdle = func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}
	for i := range conns {
		var err error
		if conns[i], err = newGRPCClient(spec); err != nil {
			return func() error { return err }, closeIdle
		}
	}
	in := wrapperspb.Bytes(make([]byte, spec.CallBytes))
	kind, ok := map[string]func(grpcClient, *wrapperspb.BytesValue) error{
		"": callUnary, CallList: callList, CallPingPong: new(openStreams).pingPong,
	}[spec.CallKind]
	if !ok {
		err := fmt.Errorf("there is no kind of call %q", spec.CallKind)
		return func() error { return err }, closeIdle
	}
	var turn atomic.Uint32
	return func() error { return kind(conns[int(turn.Add(1))%len(conns)], in) }, closeIdle
}

var errOther = errors.New("the backend sent back another message")

// callUnary makes a unary call.
func callUnary(c grpcClient, in *wrapperspb.BytesValue) error {
	out := new(wrapperspb.BytesValue)
	err := c.Invoke(context.Background(), EchoUnary, in, out)
	if err == nil && len(out.Value) != len(in.Value) {
		err = errOther
	}
	return err
}

// callList makes a call that is answered by ListMessages messages.
func callList(c grpcClient, in *wrapperspb.BytesValue) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.NewStream(ctx, &ServerDesc, EchoList)
	if err != nil {
		return err
	}
	if err := s.SendMsg(in); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	out := new(wrapperspb.BytesValue)
	for n := 0; ; n++ {
		switch err := s.RecvMsg(out); {
		case err == io.EOF && n == ListMessages:
			return nil
		case err == io.EOF:
			return fmt.Errorf("the backend sent %d messages, want %d", n, ListMessages)
		case err != nil:
			return err
		case len(out.Value) != len(in.Value):
			return errOther
		}
	}
}

// openStreams are streams that no call uses.
type openStreams struct {
	mu   sync.Mutex
	idle []grpc.ClientStream
}

// pingPong sends a message on a stream that stays open, and receives it. The last call that has ended
// has left its stream.
func (o *openStreams) pingPong(c grpcClient, in *wrapperspb.BytesValue) error {
	s, err := o.take(c)
	if err != nil {
		return err
	}
	out := new(wrapperspb.BytesValue)
	if err := s.SendMsg(in); err != nil {
		return err
	}
	if err := s.RecvMsg(out); err != nil {
		return err
	}
	if len(out.Value) != len(in.Value) {
		return errOther
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = append(o.idle, s)
	return nil
}

func (o *openStreams) take(c grpcClient) (grpc.ClientStream, error) {
	o.mu.Lock()
	if n := len(o.idle) - 1; n >= 0 {
		defer o.mu.Unlock()
		s := o.idle[n]
		o.idle = o.idle[:n]
		return s, nil
	}
	o.mu.Unlock()
	return c.NewStream(context.Background(), &StreamDesc, EchoStream)
}

// grpcHolder is the holder of clients of gRPC, each with one connection.
type grpcHolder struct {
	spec    Spec
	clients []grpcClient
}

func (h *grpcHolder) hold(n int) (int, error) {
	for len(h.clients) < n {
		c, err := newGRPCClient(h.spec)
		if err != nil {
			return 0, err
		}
		h.clients = append(h.clients, c)
	}
	var reused atomic.Int64
	in, errs := wrapperspb.Bytes(make([]byte, h.spec.CallBytes)), make([]error, n)
	dialAll(n, func(i int) {
		if h.clients[i].GetState() == connectivity.Ready {
			reused.Add(1)
		}
		errs[i] = callUnary(h.clients[i], in)
	})
	return int(reused.Load()), errors.Join(errs...)
}
