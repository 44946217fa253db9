package grpcinterop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// bootstrap is the configuration of an xDS server whose management server never answers. The server
// has to take the listener, and rejects connections until it has an answer.
const bootstrap = `{
	"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
	"node": {"id": "percore"},
	"server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%%s"
}`

// TestXDSServer: an xDS server takes percore's listeners, which it would refuse if their address
// were not a *net.TCPAddr. It accepts on them, and can be stopped.
func TestXDSServer(t *testing.T) {
	management := testnet.Listen(t, net.Listen, testnet.TCP4) // no Accept
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			server, err := xds.NewGRPCServer(grpc.Creds(insecure.NewCredentials()),
				xds.BootstrapContentsForTesting(fmt.Appendf(nil, bootstrap, management.Addr().String())))
			if err != nil {
				t.Fatalf("NewGRPCServer: %v", err)
			}
			ln := testnet.Listen(t, side.listen, testnet.TCP4)
			serveGRPC(t, server, ln)
			for range 10 {
				c := testnet.Dial(t, ln)
				c.SetDeadline(time.Now().Add(testnet.HangTimeout))
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a connection to a server that does not serve yet: got %v, want it closed", err)
				} else if err != io.EOF {
					t.Logf("closed with %v", err)
				}
				c.Close()
			}
		})
	}
}

// TestXDSServerIsRefused: the grpc.Server in an xDS server, whose filters run in each stream, is not
// served past grpc-go's transport.
func TestXDSServerIsRefused(t *testing.T) {
	testnet.NoLeaks(t)
	management := testnet.Listen(t, net.Listen, testnet.TCP4)
	server, err := xds.NewGRPCServer(xds.BootstrapContentsForTesting(fmt.Appendf(nil, bootstrap, management.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	inner := reflect.ValueOf(server).Elem().FieldByName("gs").Elem() // a *grpc.Server
	err = grpcadapter.Wrap((*grpc.Server)(inner.UnsafePointer())).Refusal()
	if fmt.Sprint(err) != "the server has xDS filters" {
		t.Errorf("got the reason %v, want xDS filters", err)
	}
}
