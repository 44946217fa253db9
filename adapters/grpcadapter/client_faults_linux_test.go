//go:build percore_faults && !percore_net

package grpcadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// TestClientFaults makes calls while the client's system calls fail at random; the server is on net's
// connections. A call may lose its connection, but none hangs or gets another answer than its own, and
// nothing is left behind.
func TestClientFaults(t *testing.T) {
	server, client := testnet.TLS(t)
	for name, creds := range map[string][2]credentials.TransportCredentials{
		"plain": {insecure.NewCredentials(), insecure.NewCredentials()},
		"TLS":   {credentials.NewTLS(server), credentials.NewTLS(client)},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			buffers := pool.ReadStats().BuffersInUse
			lis := testnet.Listen(t, net.Listen, testnet.TCP4)
			srv := grpc.NewServer(grpc.Creds(creds[0]))
			srv.RegisterService(&echo, nil)
			go func() { _ = srv.Serve(lis) }()
			defer srv.Stop()
			small := &percore.Dialer{Control: func(_, _ string, c syscall.RawConn) error { // so that writes wait
				return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10) })
			}}
			c := dialClient(t, lis, WithTransportCredentials(creds[1]), WithContextDialer(small.DialTarget),
				WithConnectParams(grpc.ConnectParams{
					Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: testnet.HangTimeout,
				}))
			restore := testnet.InjectAtRandom(testnet.FatalFaults, 200)
			defer restore()
			var good, lost atomic.Int64
			var callers sync.WaitGroup
			for range 8 {
				callers.Go(func() {
					for range 60 {
						switch err := callAnyhow(callContext(t), c); {
						case err == nil:
							good.Add(1)
						case status.Code(err) == codes.Unavailable:
							lost.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			restore()
			_ = c.Close()
			testnet.Eventually(t, "all buffers being given back", func() bool { return pool.ReadStats().BuffersInUse <= buffers })
			if t.Logf("%d calls have ended well, %d have lost their connection", good.Load(), lost.Load()); good.Load() == 0 {
				t.Error("no call has ended well")
			}
		})
	}
}

// callAnyhow makes a call of any kind, with messages that no other call has.
func callAnyhow(ctx context.Context, cc grpc.ClientConnInterface) error {
	message := bytes.Repeat(fmt.Appendf(nil, "%016x", rand.Uint64()), rand.IntN([]int{4, 300, 6000}[rand.IntN(3)]))
	opts := []grpc.CallOption{grpc.WaitForReady(rand.IntN(2) == 0)}
	if rand.IntN(2) == 0 {
		return callUnary(ctx, cc, message, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // some calls end like that
	s, err := tryChat(ctx, cc, opts...)
	if err != nil {
		return err
	}
	for range 1 + rand.IntN(4) {
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
	if rand.IntN(2) == 0 {
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
