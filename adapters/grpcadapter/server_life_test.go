package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// framePeer dials, and speaks HTTP/2 frame by frame.
func framePeer(t testing.TB, lis net.Listener) *frames.Peer {
	nc := testnet.Dial(t, lis)
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return frames.NewPeer(t, nc)
}

// TestServerPings: a client that pings too often is sent away with the text that grpc-go's clients
// know; how often depends on the policy.
func TestServerPings(t *testing.T) {
	for _, test := range []struct {
		name    string
		options []Option
		most    int // PINGs that are answered without a GOAWAY
	}{
		{"default", nil, 3},
		{"permitted", []Option{KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true})}, 100},
		{"only with streams", []Option{KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1})}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := serveEcho(t, test.options...)
			p := framePeer(t, lis)
			for range test.most {
				p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
			}
			if test.most < 100 {
				p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
				p.Want("pong 0000000000000000", `goaway 0 ENHANCE_YOUR_CALM "too_many_pings"`, "end")
			}
		})
	}
}

// TestServerGrace: connections that are too old, and whose calls don't end, are closed after the grace.
func TestServerGrace(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t, KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 50 * time.Millisecond, MaxConnectionAgeGrace: 50 * time.Millisecond}))
	stream := openChat(t, callContext(t), dialServer(t, lis))
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream that doesn't end: got %v", err)
	}
}

// TestServerHandshake: a client that doesn't finish the handshake is closed in time, by Stop too; and
// credentials may take a connection away.
func TestServerHandshake(t *testing.T) {
	testnet.NoLeaks(t)
	creds, _ := credentialsOf(t, true)
	dial := func(opts ...Option) (nc net.Conn) {
		t.Cleanup(func() { nc.Close() }) // behind the server's Stop
		nc = testnet.Dial(t, serveEcho(t, opts...))
		return nc
	}
	if n, err := dial(Creds(creds), ConnectionTimeout(10*time.Millisecond)).Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("Read: got %d bytes, %v, want the end", n, err)
	}
	begun := make(chan bool, 1)
	dial(Creds(handshaking{creds, func(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
		begun <- true
		return creds.ServerHandshake(nc)
	}})) // Stop finds the client in the handshake
	testnet.Receive(t, "the handshake's begin", begun)
	taken := make(chan net.Conn, 1)
	dial(Creds(handshaking{creds, func(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
		taken <- nc
		return nil, nil, credentials.ErrConnDispatched
	}}))
	other := testnet.Receive(t, "the connection", taken)
	if _, err := other.Write([]byte("mine")); err != nil {
		t.Errorf("a connection that was taken away: %v", err)
	}
	other.Close()
}

// TestServerOptionsOnce: an option that grpc-go refuses twice is refused here.
func TestServerOptionsOnce(t *testing.T) {
	tapped := InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, nil })
	defer func() {
		if recover() == nil {
			t.Error("the tap was taken twice")
		}
	}()
	NewServer(tapped, tapped)
}

// TestServerInfo: services are described as grpc-go does.
func TestServerInfo(t *testing.T) {
	log := &callLog{}
	own, theirs := NewServer(), grpc.NewServer()
	describe := func(info map[string]grpc.ServiceInfo) string {
		methods := map[string]grpc.MethodInfo{}
		for _, m := range info["percore.test.Script"].Methods {
			methods[m.Name] = m
		}
		return fmt.Sprint(len(info), info["percore.test.Script"].Metadata, methods)
	}
	own.RegisterService(scriptService(log), nil)
	theirs.RegisterService(scriptService(log), nil)
	if got, want := describe(own.GetServiceInfo()), describe(theirs.GetServiceInfo()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if first := own.GetServiceInfo()["percore.test.Script"].Methods[0]; first.Name != "Unary" {
		t.Errorf("the first method is %s, want the unary one", first.Name)
	}
}

// TestServerHandOver: in a handover clients are told to go at once, and calls that are open go on.
func TestServerHandOver(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis, srv := testnet.Listen(t, percore.Listen, testnet.TCP4), kind.makeOwn(nil, nil)
			serveOn(t, lis, srv, &echo)
			handOver(t, srv, lis)
		})
	}
	t.Run("grpc-go's transport", func(t *testing.T) {
		testnet.NoLeaks(t)
		srv := Wrap(grpc.NewServer(grpc.WaitForHandlers(true))) // which is refused
		if err := srv.HandOver(t.Context(), nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// handOver hands a server over that serves lis.
func handOver(t *testing.T, srv ownServer, lis net.Listener) {
	stream := startChat(t, dialServer(t, lis))
	idle := framePeer(t, lis)
	idle.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	if err := srv.HandOver(t.Context(), lis, nil); err != nil {
		t.Fatal(err)
	}
	for line := idle.Next(); !strings.HasPrefix(line, "goaway"); line = idle.Next() {
		if line == "end" || strings.HasPrefix(line, "error") {
			t.Fatalf("got %q before GOAWAY", line)
		}
	}
	if err := say(stream, pattern(70<<10)); err != nil {
		t.Errorf("a call that is open: %v", err)
	}
	if s := srv.Stats(); s.HTTP2.Draining == 0 {
		t.Errorf("got %+v, want connections that drain", s.HTTP2)
	}
	if err := callUnary(callContext(t), dialServer(t, lis), pattern(10)); err != nil { // the handover may still fail
		t.Errorf("a call on a later connection: %v", err)
	}
}
