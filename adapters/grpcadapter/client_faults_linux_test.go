//go:build percore_faults && !percore_net

package grpcadapter

import (
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
				rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
				callers.Go(func() {
					for range 60 {
						switch err := callAnyhow(callContext(t), rng, c); {
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
