package grpcadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// soakVariable makes TestSoak last:
//
//	PERCORE_TEST_SOAK=10m go test -run TestSoak -v -timeout 1h ./adapters/grpcadapter
const soakVariable = "PERCORE_TEST_SOAK"

// TestSoak makes random calls of all kinds to a server that is stopped, gracefully or not, and replaced
// by another one, over and over. Calls are cancelled, have short deadlines, and lose their
// connections. Each answer is compared with what was sent. In the end there are no goroutines,
// descriptors and buffers left.
func TestSoak(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			soak(t, kind)
		})
	}
}

// soakRounds returns how often the server is started, or for how long.
func soakRounds(t *testing.T) (rounds int, until time.Time) {
	if text := os.Getenv(soakVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
		return 1 << 30, time.Now().Add(d)
	}
	return 3, time.Now().Add(testnet.HangTimeout)
}

func soak(t *testing.T, kind serverKind) {
	buffers := pool.ReadStats().BuffersInUse
	rounds, until := soakRounds(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := testnet.Reserve(t) // other programs must not get it while there is no server
	s := &soaker{t: t, address: address}
	var wg sync.WaitGroup
	for seed := range 4 {
		wg.Go(func() { s.run(ctx, rand.New(rand.NewPCG(uint64(seed), 0))) })
	}
	rng := rand.New(rand.NewPCG(0, 1))
	for i := 0; i < rounds && time.Now().Before(until); i++ {
		lis, err := percore.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		srv := kind.make(nil, nil)
		srv.RegisterService(&echo, nil)
		served := goServe(func() error { return srv.Serve(lis) })
		target := s.good.Load() + 30
		testnet.Eventually(t, "some calls that end well", func() bool { return s.good.Load() >= target })
		s.end(rng, srv)
		if err := testnet.Receive(t, "Serve returning", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	cancel()
	wg.Wait()
	testnet.Eventually(t, "all buffers being given back", func() bool { return pool.ReadStats().BuffersInUse <= buffers })
	t.Logf("%d calls, of which %d ended well", s.done.Load(), s.good.Load())
}

// soaker is what the clients share.
type soaker struct {
	t          *testing.T
	address    string // the server's
	done, good atomic.Int64
}

// end stops the server in one of three ways. Clients cancel what a GracefulStop waits for.
func (s *soaker) end(rng *rand.Rand, srv testServer) {
	switch rng.IntN(3) {
	case 0:
		srv.Stop()
	case 1:
		testnet.Within(s.t, "GracefulStop", srv.GracefulStop)
	case 2:
		graceful := make(chan bool)
		go func() { srv.GracefulStop(); close(graceful) }()
		srv.Stop()
		testnet.Receive(s.t, "GracefulStop", graceful)
	}
}

// run makes calls until ctx ends, on connections that are closed now and then.
func (s *soaker) run(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		var conns sync.Map // the client's net.Conns
		cc, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
				if err == nil {
					conns.Store(nc, nil)
				}
				return nc, err
			}))
		if err != nil {
			s.t.Error(err)
			return
		}
		for range 1 + rng.IntN(30) {
			s.call(ctx, rng, cc)
			if rng.IntN(20) == 0 {
				conns.Range(func(nc, _ any) bool { nc.(net.Conn).Close(); return true })
			}
		}
		cc.Close()
	}
}

// call makes a call. It may fail if it is cancelled, its time is over, or its connection ends.
func (s *soaker) call(ctx context.Context, rng *rand.Rand, cc *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, testnet.HangTimeout)
	defer cancel()
	switch rng.IntN(6) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
		defer cancel()
	case 1:
		defer time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel).Stop()
	}
	var opts []grpc.CallOption
	if rng.IntN(3) == 0 {
		opts = append(opts, grpc.UseCompressor(gzip.Name))
	}
	var err error
	if rng.IntN(4) > 0 {
		err = callAnyhow(ctx, rng, cc, opts...)
	} else {
		err = s.flood(ctx, cc, pattern(rng.IntN(2000)))
	}
	s.done.Add(1)
	switch code := status.Code(err); {
	case err == nil:
		s.good.Add(1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF),
		code == codes.Canceled, code == codes.DeadlineExceeded, code == codes.Unavailable:
	default:
		s.t.Errorf("a call: %v", err)
	}
}

// callAnyhow makes a call of any kind, with messages that no other call has.
func callAnyhow(ctx context.Context, rng *rand.Rand, cc grpc.ClientConnInterface, opts ...grpc.CallOption) error {
	message := bytes.Repeat(fmt.Appendf(nil, "%016x", rng.Uint64()), rng.IntN([]int{4, 300, 6000}[rng.IntN(3)]))
	opts = append(opts, grpc.WaitForReady(rng.IntN(2) == 0))
	if rng.IntN(2) == 0 {
		return callUnary(ctx, cc, message, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // some calls end like that
	s, err := tryChat(ctx, cc, opts...)
	if err != nil {
		return err
	}
	for range 1 + rng.IntN(4) {
		if err := s.SendMsg(wrapperspb.Bytes(message)); err != nil && err != io.EOF { // which RecvMsg explains
			return err
		}
		in := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(in); err != nil {
			return err
		}
		if !bytes.Equal(in.Value, message) {
			return errors.New("another call's answer")
		}
	}
	if rng.IntN(2) == 0 {
		return nil
	}
	_ = s.CloseSend()
	switch err := s.RecvMsg(new(wrapperspb.BytesValue)); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("one answer too many")
	default:
		return err
	}
}

// flood lets the server send until the windows are full, and then cancels the call.
func (s *soaker) flood(ctx context.Context, cc *grpc.ClientConn, message []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := cc.NewStream(ctx, &echo.Streams[1], "/percore.test.Echo/Flood")
	if err == nil {
		err = sendOnly(stream, message)
	}
	for i := 0; i < 10 && err == nil; i++ {
		err = stream.RecvMsg(new(wrapperspb.BytesValue))
	}
	return err
}

// sendOnly sends the only message of a stream.
func sendOnly(stream grpc.ClientStream, message []byte) error {
	if err := stream.SendMsg(wrapperspb.Bytes(message)); err != nil {
		return err
	}
	return stream.CloseSend()
}
