package grpcadapter

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// tlvInfo has the TLVs of a connection's PROXY header.
type tlvInfo struct {
	credentials.AuthInfo
	tlvs []byte
}

// whoAmI is a service that tells a client both addresses of its connection, and the TLVs.
var whoAmI = grpc.ServiceDesc{
	ServiceName: "percore.test.WhoAmI",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Ask",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			p, _ := peer.FromContext(ctx)
			return wrapperspb.String(fmt.Sprintf("%v at %v, %q", p.Addr, p.LocalAddr, p.AuthInfo.(tlvInfo).tlvs)), decode(new(emptypb.Empty))
		},
	}},
}

// clientPreface is a client's first bytes (RFC 9113, section 3.4), which grpc-go reads before it has a
// reader.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// headerV2 returns a PROXY protocol header, version 2.
func headerV2(from, to netip.AddrPort) string {
	family, body := byte(0x11), append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	if from.Addr().Is6() {
		family = 0x21
	}
	body = binary.BigEndian.AppendUint16(body, from.Port())
	body = binary.BigEndian.AppendUint16(body, to.Port())
	return "\r\n\r\n\x00\r\nQUIT\n\x21" + string(family) + string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + string(body)
}

// dialWith returns a dialer that first sends a header on each connection, in two parts.
func dialWith(header string, at int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		for _, part := range []string{header[:at], header[at:]} {
			if _, err := io.WriteString(c, part); err != nil {
				c.Close()
				return nil, err
			}
		}
		return c, nil
	}
}

// TestProxyProtocol: calls see the addresses and the TLVs of the proxy's header, on all doors, in clear
// and over TLS, and so do the other rules of the listener. A connection without a valid header is
// closed.
func TestProxyProtocol(t *testing.T) {
	from4, to4 := netip.MustParseAddrPort("192.0.2.7:4711"), netip.MustParseAddrPort("192.0.2.1:443")
	from6, to6 := netip.MustParseAddrPort("[2001:db8::7]:4711"), netip.MustParseAddrPort("[2001:db8::1]:443")
	const tlvs = "\x05\x00\x04i-37"
	withTLVs := []byte(headerV2(from4, to4))
	withTLVs[15] += byte(len(tlvs))
	headers := []struct {
		name, text string
		want       string // "" stands for the socket's own
	}{
		{"v1, IPv4", "PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n", `192.0.2.7:4711 at 192.0.2.1:443, ""`},
		{"v1, unknown", "PROXY UNKNOWN\r\n", ""},
		{"v2, IPv4", string(withTLVs) + tlvs, `192.0.2.7:4711 at 192.0.2.1:443, "\x05\x00\x04i-37"`},
		{"v2, IPv6", headerV2(from6, to6), `[2001:db8::7]:4711 at [2001:db8::1]:443, ""`},
	}
	for name, serve := range map[string]func(creds credentials.TransportCredentials) testServer{
		"grpc-go": func(creds credentials.TransportCredentials) testServer {
			srv := grpc.NewServer(grpc.Creds(creds), grpc.WaitForHandlers(true)) // which Wrap refuses
			return wrapped{wrap(srv, silent), srv}
		},
		"Wrap": func(creds credentials.TransportCredentials) testServer {
			return newWrapped([]grpc.ServerOption{grpc.Creds(creds)})
		},
		"NewServer": func(creds credentials.TransportCredentials) testServer { return NewServer(Creds(creds)) },
	} {
		for _, secret := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tls=%t", name, secret), func(t *testing.T) {
				testnet.NoLeaks(t)
				server, client := credentialsOf(t, secret)
				var clients sync.Map // whose addresses OnAccept got
				lis := listenWith(t, 3, percore.ListenConfig{
					MaxConns:      2*len(headers) + 1, // and one without a header
					OnAccept:      func(_, remote netip.AddrPort) bool { clients.Store(remote.String(), true); return true },
					ProxyProtocol: &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
				}, testnet.TCP4)
				serveOn(t, lis, serve(handshaking{server, func(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
					conn, info, err := server.ServerHandshake(raw)
					return conn, tlvInfo{info, percore.ProxyTLVs(raw)}, err
				}}), &echo, &whoAmI)
				for _, header := range headers {
					for _, at := range []int{0, len(header.text) / 2} {
						cc := dialServer(t, lis, grpc.WithTransportCredentials(client), grpc.WithContextDialer(dialWith(header.text, at)))
						for range 2 {
							out := new(wrapperspb.StringValue)
							err := cc.Invoke(callContext(t), "/percore.test.WhoAmI/Ask", new(emptypb.Empty), out)
							if got := out.Value; err != nil || header.want != "" && got != header.want || header.want == "" && !strings.HasPrefix(got, "127.0.0.1:") {
								t.Errorf("%s: got %q, %v, want %q", header.name, got, err, cmp.Or(header.want, "the socket's own"))
							}
							remote, _, _ := strings.Cut(out.Value, " ")
							if _, asked := clients.Load(remote); !asked {
								t.Errorf("%s: OnAccept was not asked about %s", header.name, remote)
							}
						}
						if err := callUnary(callContext(t), cc, pattern(100_000)); err != nil {
							t.Errorf("%s: %v", header.name, err)
						}
					}
				}
				bad := testnet.Dial(t, lis)
				io.WriteString(bad, clientPreface)
				if n, err := bad.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("a connection without a header: got %d bytes, %v, want its end", n, err)
				}
			})
		}
	}
}
