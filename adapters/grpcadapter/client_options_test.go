package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestOptionsKnown: each option of package grpc is one of ours, or stands in the tables of differences,
// and so is each option of calls.
func TestOptionsKnown(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, differences, found := strings.Cut(read("../../docs/DIFFERENCES.md"), "\n## gRPC past grpc-go's transport\n")
	ours := functions(t, ".", "Option", "ClientOption")
	if !found || len(ours) == 0 {
		t.Fatalf("found the section about gRPC: %t, and %d options", found, len(ours))
	}
	for _, name := range functions(t, grpcDir(t), "DialOption", "ServerOption") {
		short, own := strings.CutPrefix(name, "grpc.")
		if own && !slices.Contains(ours, "grpcadapter."+short) && !strings.Contains(differences, "`"+short+"`") {
			t.Errorf("%s is neither an option here nor in docs/DIFFERENCES.md", name)
		}
	}
	calls := read("internal/rpc/client_options.go")
	for _, option := range []grpc.CallOption{
		grpc.CallAuthority(""), grpc.CallContentSubtype(""),
		//lint:ignore SA1019 programs still use these
		grpc.CallCustomCodec(nil), grpc.FailFast(true),
		grpc.ForceCodec(nil), grpc.ForceCodecV2(nil), grpc.Header(nil), grpc.MaxCallRecvMsgSize(0), grpc.MaxCallSendMsgSize(0), grpc.MaxRetryRPCBufferSize(0),
		grpc.OnFinish(nil), grpc.Peer(nil), grpc.PerRPCCredentials(nil), grpc.StaticMethod(), grpc.Trailer(nil), grpc.UseCompressor(""),
		grpc.WaitForReady(true),
	} {
		if !strings.Contains(calls, reflect.TypeOf(option).String()) {
			t.Errorf("a %T makes calls fail", option)
		}
	}
	n := 0
	for _, name := range functions(t, grpcDir(t), "CallOption") {
		if strings.HasPrefix(name, "grpc.") {
			n++
		}
	}
	if n != 17 {
		t.Errorf("grpc-go has %d options of calls, and 17 are looked at", n)
	}
}

// TestClientDefaultScheme: what resolver.SetDefaultScheme sets is the scheme of targets without one.
// There is no way back to a scheme that was never set, so it runs in a process of its own.
func TestClientDefaultScheme(t *testing.T) {
	child := testnet.StartChild(t, "scheme")
	if err := child.Wait(); err != nil {
		t.Errorf("%v: %s", err, child.Stderr())
	}
}

func schemeInChild() {
	for _, scheme := range []string{"", "passthrough", "dns", "unix"} {
		if scheme != "" {
			resolver.SetDefaultScheme(scheme)
		}
		theirs, err := grpc.NewClient("host", grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		ours, err := NewClient("host", WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		if got, want := ours.CanonicalTarget(), theirs.CanonicalTarget(); got != want {
			panic(fmt.Sprintf("SetDefaultScheme(%q): got the target %s, want %s", scheme, got, want))
		}
		_, _ = ours.Close(), theirs.Close()
	}
	resolver.SetDefaultScheme("missing")
	_, want := grpc.NewClient("host", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if _, err := NewClient("host", WithTransportCredentials(insecure.NewCredentials())); want == nil || fmt.Sprint(err) != want.Error() {
		panic(fmt.Sprintf("got %v of a scheme without a resolver, want %v", err, want))
	}
}

// TestClientShuffles: pick_first with shuffleAddressList begins with any address.
func TestClientShuffles(t *testing.T) {
	testnet.NoLeaks(t)
	var state resolver.State
	for range 4 {
		lis := serveEcho(t)
		state.Addresses = append(state.Addresses, resolver.Address{Addr: lis.Addr().String()})
	}
	for config, want := range map[string]bool{`{}`: false, `{"shuffleAddressList":false}`: false, `{"shuffleAddressList":true}`: true} {
		used := make(map[string]bool)
		for range 60 { // all at one address: 4^-59
			r := manual.NewBuilderWithScheme("four")
			r.InitialState(state)
			c := newTestClient(t, "four:///x", WithResolvers(r), WithDefaultServiceConfig(`{"loadBalancingConfig":[{"pick_first":`+config+`}]}`))
			var from peer.Peer
			if err := callUnary(callContext(t), c, nil, grpc.Peer(&from)); err != nil {
				t.Fatal(err)
			}
			used[from.Addr.String()] = true
			c.Close()
		}
		if len(used) > 1 != want || !want && !used[state.Addresses[0].Addr] {
			t.Errorf("%s: got the addresses %v", config, used)
		}
	}
	for _, config := range []string{`{"shuffleAddressList":1}`, `[]`, `"x"`} {
		js := `{"loadBalancingConfig":[{"pick_first":` + config + `}]}`
		theirs, err := grpc.NewClient("x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(js))
		if err == nil {
			theirs.Close()
		}
		_, ourErr := NewClient("x", WithTransportCredentials(insecure.NewCredentials()), WithDefaultServiceConfig(js))
		got, _, _ := strings.Cut(fmt.Sprint(ourErr), ", error: ") // of package json, which names a type
		if want, _, _ := strings.Cut(fmt.Sprint(err), ", error: "); err == nil || got != want {
			t.Errorf("%s: got %v, want %v", config, ourErr, err)
		}
	}
}

// attributeKey is the key of an attribute of addresses.
type attributeKey struct{}

func attributeOf(ctx context.Context) string {
	s, _ := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(attributeKey{}).(string)
	return s
}

// attributeCreds note the attribute that comes with the handshake.
type attributeCreds struct {
	credentials.TransportCredentials
	got chan string
}

func (c attributeCreds) Clone() credentials.TransportCredentials { return c }

func (c attributeCreds) ClientHandshake(ctx context.Context, name string, nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.got <- attributeOf(ctx)
	return c.TransportCredentials.ClientHandshake(ctx, name, nc)
}

// TestClientAttributes: dialers and credentials get the attributes of the address, as with grpc-go.
func TestClientAttributes(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	for _, want := range []string{"", "an identity"} {
		addr := resolver.Address{Addr: lis.Addr().String()}
		if want != "" {
			addr.Attributes = attributes.New(attributeKey{}, want)
		}
		r := manual.NewBuilderWithScheme("ids")
		r.InitialState(resolver.State{Addresses: []resolver.Address{addr}})
		got := make(chan string, 2)
		c := newTestClient(t, "ids:///x", WithResolvers(r), WithTransportCredentials(attributeCreds{insecure.NewCredentials(), got}),
			WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				got <- attributeOf(ctx)
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}))
		if err := callUnary(callContext(t), c, nil); err != nil {
			t.Fatal(err)
		}
		if dialer, creds := <-got, <-got; dialer != want || creds != want {
			t.Errorf("the dialer got %q, and the credentials %q, want %q", dialer, creds, want)
		}
	}
}

// TestClientEarlyTrailers: a call whose answer ends before its request is reset with NO_ERROR, as with
// grpc-go: proxies count other codes as calls that were cancelled.
func TestClientEarlyTrailers(t *testing.T) {
	testnet.NoLeaks(t)
	resets := make(chan string, 1)
	lis := framesServer(t, func(p *frames.Peer) {
		if !nextCall(p) {
			return
		}
		p.Headers(1, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5").Flush()
		for line := p.Next(); ; line = p.Next() {
			if strings.HasPrefix(line, "reset ") || line == "end" || strings.HasPrefix(line, "error:") {
				resets <- line
				return
			}
		}
	})
	var want string
	for i, cc := range []grpc.ClientConnInterface{dialServer(t, lis), dialClient(t, lis)} {
		s := openChat(t, callContext(t), cc)
		_ = s.RecvMsg(nil)
		got := testnet.Receive(t, "a reset", resets)
		if i == 0 {
			want = got
		}
		if got != want || !strings.HasPrefix(got, "reset ") {
			t.Errorf("client %d: got %q, want %q", i, got, want)
		}
	}
}
