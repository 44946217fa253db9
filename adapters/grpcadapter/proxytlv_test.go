package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// tlvCredentials makes the TLVs of a connection's PROXY header part of its AuthInfo.
type tlvCredentials struct {
	credentials.TransportCredentials
}

type tlvInfo struct {
	credentials.AuthInfo
	tlvs []byte
}

func (c tlvCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return conn, tlvInfo{info, percore.ProxyTLVs(raw)}, err
}

func (c tlvCredentials) Clone() credentials.TransportCredentials {
	return tlvCredentials{c.TransportCredentials.Clone()}
}

// tellTLVs is a service that answers with them.
var tellTLVs = grpc.ServiceDesc{
	ServiceName: "percore.test.TellTLVs",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Ask",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			p, _ := peer.FromContext(ctx)
			return wrapperspb.Bytes(p.AuthInfo.(tlvInfo).tlvs), decode(new(emptypb.Empty))
		},
	}},
}

// TestProxyTLVs: calls see the TLVs of their connection's PROXY header, on all doors, in clear and over
// TLS.
func TestProxyTLVs(t *testing.T) {
	header := []byte(headerV2(netip.MustParseAddrPort("192.0.2.7:4711"), netip.MustParseAddrPort("192.0.2.1:443")))
	const tlvs = "\x05\x00\x04i-37"
	header[15] += byte(len(tlvs))
	text := string(header) + tlvs
	for name, serve := range map[string]func(credentials.TransportCredentials, net.Listener) (served <-chan error, stop func()){
		"grpc-go": func(creds credentials.TransportCredentials, lis net.Listener) (<-chan error, func()) {
			srv := grpc.NewServer(grpc.Creds(creds))
			srv.RegisterService(&tellTLVs, nil)
			return goServe(func() error { return serveByGRPC(srv, lis) }), srv.Stop
		},
		"Wrap": func(creds credentials.TransportCredentials, lis net.Listener) (<-chan error, func()) {
			srv := grpc.NewServer(grpc.Creds(creds))
			srv.RegisterService(&tellTLVs, nil)
			return goServe(func() error { return Wrap(srv).Serve(lis) }), srv.Stop
		},
		"NewServer": func(creds credentials.TransportCredentials, lis net.Listener) (<-chan error, func()) {
			srv := NewServer(Creds(creds))
			srv.RegisterService(&tellTLVs, nil)
			return goServe(func() error { return srv.Serve(lis) }), srv.Stop
		},
	} {
		for _, secret := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tls=%t", name, secret), func(t *testing.T) {
				testnet.NoLeaks(t)
				server, client := credentialsOf(t, secret)
				lc := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
				lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				served, stop := serve(tlvCredentials{server}, lis)
				cc := dialServer(t, lis, grpc.WithTransportCredentials(client), grpc.WithContextDialer(dialWith(text, 20)))
				for range 2 {
					out := new(wrapperspb.BytesValue)
					err := cc.Invoke(callContext(t), "/percore.test.TellTLVs/Ask", new(emptypb.Empty), out)
					if string(out.Value) != tlvs || err != nil {
						t.Errorf("got %q, %v, want %q", out.Value, err, tlvs)
					}
				}
				cc.Close()
				stop()
				if err := testnet.Receive(t, "Serve", served); err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
		}
	}
}
