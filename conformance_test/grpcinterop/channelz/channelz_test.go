package channelz

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	channelzservice "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// A side is how a server runs.
type side struct {
	name   string
	listen testnet.ListenFunc
	serve  func(*grpc.Server, net.Listener) error
	client []grpc.DialOption
}

var onPercore = []grpc.DialOption{grpc.WithContextDialer(new(percore.Dialer).DialTarget)}

// sides are the reference, grpc-go alone on percore, and as Wrap leaves it to grpc-go.
var sides = []side{
	{"net", net.Listen, (*grpc.Server).Serve, nil},
	{"percore", percore.Listen, (*grpc.Server).Serve, onPercore},
	{"Wrap", percore.Listen, func(s *grpc.Server, ln net.Listener) error { return grpcadapter.Wrap(s).Serve(ln) }, onPercore},
}

// TestWrapIsRefused: channelz would see no calls past grpc-go's transport.
func TestWrapIsRefused(t *testing.T) {
	testnet.NoLeaks(t)
	err := grpcadapter.Wrap(grpc.NewServer()).Refusal()
	if err == nil || !strings.Contains(err.Error(), "channelz is on") {
		t.Errorf("got the reason %v, want channelz", err)
	}
}

// TestAdmin: the admin service works on a grpcadapter.Server. (It leaves out xDS' service there.)
func TestAdmin(t *testing.T) {
	testnet.NoLeaks(t)
	server := grpcadapter.NewServer()
	cleanup, err := admin.Register(server)
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	go server.Serve(ln)
	defer server.Stop()
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	channels, err := channelzpb.NewChannelzClient(cc).GetTopChannels(ctx, new(channelzpb.GetTopChannelsRequest))
	if err != nil || len(channels.GetChannel()) == 0 {
		t.Errorf("got %v, %v, want the client's channel", channels, err)
	}
}

// TestChannelz: gRPC's view of a connection's socket, including its options and TCP_INFO, is the
// same as on net, and also over TLS.
func TestChannelz(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var want []string
		for _, side := range sides {
			name := side.name
			if secure {
				name += "/TLS"
			}
			t.Run(name, func(t *testing.T) {
				testnet.NoLeaks(t)
				got := socketOptions(t, side, secure)
				if side.name == "net" {
					want = got
				}
				if len(got) == 0 || !slices.Equal(got, want) {
					t.Errorf("got the options %q, want those of net, %q", got, want)
				}
			})
		}
	}
}

// socketOptions returns the names of the options that channelz reports for the one connection of a
// server.
func socketOptions(t *testing.T, side side, secure bool) []string {
	serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
	if secure {
		serverConfig, clientConfig := testnet.TLS(t)
		serverCredentials, clientCredentials = credentials.NewTLS(serverConfig), credentials.NewTLS(clientConfig)
	}
	ln := testnet.Listen(t, side.listen, testnet.TCP4)
	server := grpc.NewServer(grpc.Creds(serverCredentials))
	channelzservice.RegisterChannelzServiceToServer(server)
	go side.serve(server, ln)
	defer server.Stop()
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), append(slices.Clone(side.client), grpc.WithTransportCredentials(clientCredentials))...)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	socket, err := findSocket(ctx, channelzpb.NewChannelzClient(cc), ln.Addr())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, option := range socket.GetData().GetOption() {
		names = append(names, option.Name)
	}
	return names
}

// findSocket returns channelz' entry of the first connection of the server that listens on addr.
func findSocket(ctx context.Context, client channelzpb.ChannelzClient, addr net.Addr) (*channelzpb.Socket, error) {
	servers, err := client.GetServers(ctx, &channelzpb.GetServersRequest{})
	if err != nil {
		return nil, err
	}
	for _, server := range servers.Server {
		sockets, err := client.GetServerSockets(ctx, &channelzpb.GetServerSocketsRequest{ServerId: server.Ref.ServerId})
		if err != nil {
			return nil, err
		}
		for _, ref := range sockets.SocketRef {
			reply, err := client.GetSocket(ctx, &channelzpb.GetSocketRequest{SocketId: ref.SocketId})
			if err != nil {
				return nil, err
			}
			local := reply.Socket.GetLocal().GetTcpipAddress()
			if local != nil && int(local.Port) == addr.(*net.TCPAddr).Port {
				return reply.Socket, nil
			}
		}
	}
	return nil, nil
}
