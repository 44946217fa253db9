package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// TestGRPCMutualTLS: the server learns the client's identity, and rejects a client without one.
func TestGRPCMutualTLS(t *testing.T) {
	for _, test := range []struct {
		name     string
		presents bool
	}{{"with a certificate", true}, {"without", false}} {
		onEachGRPCArm(t, test.name, func(t *testing.T, arm grpcArm) {
			var client atomic.Value
			r := startGRPC(t, arm, rigOptions{
				kind: testnet.TCP4, secure: true,
				tls: func(server, client *tls.Config) {
					server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, client.RootCAs
					if test.presents {
						client.Certificates = server.Certificates
					}
				},
				server: []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if p, ok := peer.FromContext(ctx); ok {
						client.Store(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName)
					}
					return handler(ctx, req)
				})},
			})
			err := echoUnary(callContext(t), r.client, pattern(1000))
			if !test.presents {
				if status.Code(err) != codes.Unavailable {
					t.Errorf("got %v, want Unavailable", err)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
			if got := client.Load(); got != "percore test" {
				t.Errorf("the server sees the client %v, want %q", got, "percore test")
			}
		})
	}
}

// TestGRPCLargestMessage sends the largest message that the limit allows.
func TestGRPCLargestMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred MiB in all")
	}
	onEachGRPCArm(t, "20 MiB", func(t *testing.T, arm grpcArm) {
		r := startGRPC(t, arm, rigOptions{kind: testnet.TCP4})
		const overhead = 8 // of a BytesValue, at most
		largest := bytes.Repeat(pattern(1<<20), maxMessage>>20)
		if err := echoUnary(callContext(t), r.client, largest[:maxMessage-overhead]); err != nil {
			t.Error(err)
		}
		if err := echoUnary(callContext(t), r.client, largest); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("more than the limit: got %v, want ResourceExhausted", err)
		}
	})
}

// TestGRPCCompression sends messages that gzip makes far smaller, and random messages, which it
// can't compress.
func TestGRPCCompression(t *testing.T) {
	onEachGRPCArm(t, "gzip", func(t *testing.T, arm grpcArm) {
		r := startGRPC(t, arm, rigOptions{kind: testnet.TCP4})
		for _, message := range [][]byte{nil, []byte(strings.Repeat("again and ", 50_000)), pattern(300_000)} {
			if err := echoUnary(callContext(t), r.client, message, grpc.UseCompressor(gzip.Name)); err != nil {
				t.Errorf("%d bytes: %v", len(message), err)
			}
		}
	})
}

// TestGRPCEnforcesKeepAlivePolicy pings more often than the server allows. The server tells the
// client so and closes the connection.
func TestGRPCEnforcesKeepAlivePolicy(t *testing.T) {
	onEachGRPCArm(t, "pings", func(t *testing.T, arm grpcArm) {
		r := startGRPC(t, arm, rigOptions{
			kind:   testnet.TCP4,
			server: []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Hour})},
		})
		c := testnet.Dial(t, r.ln)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		framer := http2.NewFramer(c, c)
		io.WriteString(c, http2.ClientPreface)
		framer.WriteSettings()
		framer.WriteSettingsAck()
		for range 4 { // the server forgives two violations
			framer.WritePing(false, [8]byte{})
		}
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("got %v before the server said good-bye", err)
			}
			if f, ok := f.(*http2.GoAwayFrame); ok {
				if f.ErrCode != http2.ErrCodeEnhanceYourCalm {
					t.Errorf("got %v, want %v", f.ErrCode, http2.ErrCodeEnhanceYourCalm)
				}
				break
			}
		}
		if _, err := framer.ReadFrame(); err != io.EOF && !isReset(err) {
			t.Errorf("after the good-bye: got %v, want the connection closed", err)
		}
	})
}

// connCounter counts the connections of a server.
type connCounter struct{ begun, ended atomic.Int64 }

func (c *connCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connCounter) HandleRPC(context.Context, stats.RPCStats)                         {}

func (c *connCounter) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.begun.Add(1)
	case *stats.ConnEnd:
		c.ended.Add(1)
	}
}

// TestGRPCMaxConnectionAge: the server closes old connections. The client opens others, and no call
// notices.
func TestGRPCMaxConnectionAge(t *testing.T) {
	const want = 3
	onEachGRPCArm(t, "age", func(t *testing.T, arm grpcArm) {
		var conns connCounter
		r := startGRPC(t, arm, rigOptions{
			kind: testnet.TCP4,
			server: []grpc.ServerOption{
				grpc.StatsHandler(&conns),
				grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 30 * time.Millisecond}),
			},
		})
		ctx := callContext(t)
		testnet.Eventually(t, fmt.Sprintf("%d connections having ended of age", want), func() bool {
			if err := echoUnary(ctx, r.client, pattern(1000), grpc.WaitForReady(true)); err != nil {
				t.Fatalf("a call, on connection %d: %v", conns.begun.Load(), err)
			}
			return conns.ended.Load() >= want
		})
	})
}

// TestGRPCServerKilled kills the server's process while streams are open.
func TestGRPCServerKilled(t *testing.T) {
	onEachGRPCArm(t, "kill", func(t *testing.T, arm grpcArm) {
		child := testnet.StartChild(t, "grpc server", "PERCORE_TEST_ARM="+arm.name)
		address, err := bufio.NewReader(child.Stdout).ReadString('\n')
		if err != nil {
			t.Fatalf("the server's address: %v", err)
		}
		cc, err := grpc.NewClient("passthrough:///"+strings.TrimSpace(address),
			append(arm.client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		var streams []grpc.ClientStream
		for range 10 {
			stream, err := chat(callContext(t), cc)
			if err == nil {
				err = exchange(stream)
			}
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		kill(t, child)
		for i, stream := range streams {
			if err := stream.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
				t.Errorf("stream %d: got %v, want Unavailable", i, err)
			}
		}
	})
}

// TestGRPCClientKilled kills a client's process while its stream is open. The server's handler gets
// an error, and other clients aren't disturbed.
func TestGRPCClientKilled(t *testing.T) {
	onEachGRPCArm(t, "kill", func(t *testing.T, arm grpcArm) {
		handled := make(chan error, 1)
		r := startGRPC(t, arm, rigOptions{
			kind: testnet.TCP4,
			server: []grpc.ServerOption{grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				err := handler(srv, stream)
				handled <- err
				return err
			})},
		})
		child := testnet.StartChild(t, "grpc client", "PERCORE_TEST_ADDRESS="+r.ln.Addr().String())
		if line, err := bufio.NewReader(child.Stdout).ReadString('\n'); err != nil {
			t.Fatalf("the client said %q, %v", line, err)
		}
		kill(t, child)
		if err := testnet.Receive(t, "the handler being told", handled); status.Code(err) != codes.Canceled {
			t.Errorf("the handler: got %v, want Canceled", err)
		}
		if err := echoUnary(callContext(t), r.client, pattern(1000)); err != nil {
			t.Errorf("another client: %v", err)
		}
	})
}

// kill kills a helper process, and waits until it is gone.
func kill(t *testing.T, child *testnet.ChildProcess) {
	t.Helper()
	p, err := os.FindProcess(child.PID())
	if err != nil {
		t.Fatalf("finding the helper process: %v", err)
	}
	defer p.Release()
	if err := p.Kill(); err != nil {
		t.Fatalf("killing the helper process: %v", err)
	}
	child.Wait()
}

func init() {
	children = append(children, testnet.WithChild("grpc server", serveGRPCChild), testnet.WithChild("grpc client", callGRPCChild))
}

// serveGRPCChild is a helper process: a server until it is killed.
func serveGRPCChild() {
	for _, arm := range grpcArms {
		if arm.name != os.Getenv("PERCORE_TEST_ARM") {
			continue
		}
		ln, err := arm.listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		server := grpc.NewServer()
		server.RegisterService(&echoService, nil)
		fmt.Println(ln.Addr())
		panic(arm.serve(server, ln))
	}
}

// callGRPCChild is a helper process: a client with a stream open until it is
// killed.
func callGRPCChild() {
	cc, err := grpc.NewClient("passthrough:///"+os.Getenv("PERCORE_TEST_ADDRESS"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	stream, err := chat(context.Background(), cc)
	if err == nil {
		err = exchange(stream)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("talking")
	io.Copy(io.Discard, os.Stdin)
}

// exchange sends a message and waits until it comes back.
func exchange(stream grpc.ClientStream) error {
	err := stream.SendMsg(wrapperspb.Bytes(pattern(100)))
	return errors.Join(err, stream.RecvMsg(new(wrapperspb.BytesValue)))
}

// TestGRPCSoak is for the race detector. Thousands of streams come and go on a few connections:
// cancelled at any point, cut by deadlines, ended normally or left until the connection ends. No
// stream may see another stream's bytes, and nothing may be left. (gRPC leaves the unread bytes of
// a cancelled stream to the garbage collector instead of giving them back; but no object may hold
// them any longer.)
func TestGRPCSoak(t *testing.T) {
	connections, callers, streams := 4, 16, 40
	if testing.Short() {
		streams = 5
	}
	before := pool.ReadStats().BuffersInUse
	onEachGRPCArm(t, "streams", func(t *testing.T, arm grpcArm) {
		r := startGRPC(t, arm, rigOptions{kind: testnet.TCP4})
		var wg sync.WaitGroup
		for c := range connections {
			cc, err := grpc.NewClient(grpcTarget(r.ln.Addr()), append(arm.client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cc.Close() })
			for caller := range callers {
				wg.Go(func() {
					for i := range streams {
						if err := soakStream(cc, c, caller, i); err != nil {
							t.Errorf("connection %d, caller %d, stream %d: %v", c, caller, i, err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		if err := echoUnary(callContext(t), r.client, pattern(100_000)); err != nil {
			t.Errorf("a call after all that: %v", err)
		}
	})
	testnet.Eventually(t, "all buffers of the pool being back or garbage", func() bool {
		runtime.GC()
		return pool.ReadStats().BuffersInUse <= before // fewer if there was garbage then
	})
}

// soakStream opens a stream and ends it in one of several ways.
func soakStream(cc *grpc.ClientConn, c, caller, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	way := (caller + i) % 6
	if way == 5 { // a deadline that passes at some point of the conversation
		ctx, cancel = context.WithTimeout(ctx, time.Duration(i%8)*time.Millisecond)
		defer cancel()
	}
	stream, err := chat(ctx, cc)
	for n := 0; n < 1+i%4 && err == nil; n++ {
		message := []byte(strings.Repeat(fmt.Sprintf("%d/%d/%d/%d ", c, caller, i, n), 1+i*37%2000))
		if err = stream.SendMsg(wrapperspb.Bytes(message)); err != nil {
			break
		}
		if way == 1 && n == i%3 {
			cancel() // before the answer
		}
		var reply wrapperspb.BytesValue
		if err = stream.RecvMsg(&reply); err == nil && string(reply.Value) != string(message) {
			return fmt.Errorf("message %d: got %s, want %s", n, digest(reply.Value), digest(message))
		}
		if way == 2 && n == i%3 {
			cancel() // after it
		}
	}
	switch code := status.Code(err); {
	case way == 1 || way == 2:
		if err == nil || err == io.EOF || code == codes.Canceled {
			return nil
		}
	case way == 5:
		if err == nil || err == io.EOF || code == codes.DeadlineExceeded {
			return nil
		}
	case err == nil && way == 3:
		return nil // left open, until cancel
	case err == nil:
		if err = stream.CloseSend(); err == nil {
			err = stream.RecvMsg(new(wrapperspb.BytesValue))
		}
		if err == io.EOF {
			return nil
		}
	}
	return fmt.Errorf("way %d: got %w", way, err)
}

// isReset reports whether the peer reset a connection.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}
