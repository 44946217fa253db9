package grpcadapter

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/testnet/frames"
)

// goAwayFrame is a GOAWAY of a server that only has a connection.
type goAwayFrame struct {
	last  uint32
	code  h2.ErrCode
	debug string
}

// sendAway is a server of one connection in memory: it answers the first PING with GOAWAYs, and hangs
// up. It returns how long it has waited for the PING.
func sendAway(nc net.Conn, all []goAwayFrame) (waited time.Duration) {
	defer nc.Close()
	began := time.Now()
	frame := func(typ byte, payload []byte) {
		b := []byte{0, 0, byte(len(payload)), typ, 0, 0, 0, 0, 0}
		_, _ = nc.Write(append(b, payload...))
	}
	_, _ = io.CopyN(io.Discard, nc, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	go frame(frames.Settings, nil) // a pipe has no buffer, and the client may be writing
	for h := make([]byte, 9); ; {
		if _, err := io.ReadFull(nc, h); err != nil {
			return -1
		}
		_, _ = io.CopyN(io.Discard, nc, int64(h[0])<<16|int64(h[1])<<8|int64(h[2]))
		if h[3] == frames.Ping {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, nc) }()
	for _, g := range all {
		b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, g.last), uint32(g.code))
		frame(frames.GoAway, append(b, g.debug...))
	}
	return time.Since(began)
}

// TestClientSentAway: what a GOAWAY says is in the status of the calls that it ends, and one that speaks
// of too many PINGs makes the client send fewer on its later connections, as with grpc-go.
func TestClientSentAway(t *testing.T) {
	params := keepalive.ClientParameters{Time: 10 * time.Second}
	kinds := []func(dial func(context.Context, string) (net.Conn, error)) (differingClient, error){
		func(dial func(context.Context, string) (net.Conn, error)) (differingClient, error) {
			return grpc.NewClient("passthrough:///server", grpc.WithContextDialer(dial), grpc.WithKeepaliveParams(params),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		func(dial func(context.Context, string) (net.Conn, error)) (differingClient, error) {
			return NewClient("passthrough:///server", WithContextDialer(dial), WithKeepaliveParams(params),
				WithTransportCredentials(insecure.NewCredentials()))
		},
	}
	const most = 1<<31 - 1
	calm := goAwayFrame{most, h2.EnhanceYourCalm, "too_many_pings"}
	for _, test := range []struct {
		name string
		all  []goAwayFrame
		want string // in what both clients say
	}{
		{"too many PINGs", []goAwayFrame{calm}, "40s"},
		{"the second one counts for nothing", []goAwayFrame{{most, h2.NoError, "graceful_stop"}, calm}, `NO_ERROR, debug data: "graceful_stop"`},
		{"another text", []goAwayFrame{{most, h2.EnhanceYourCalm, "too_many"}}, "10s"},
		{"another code", []goAwayFrame{{most, h2.NoError, "too_many_pings"}}, "10s"},
		{"no text", []goAwayFrame{{1, h2.InternalError, ""}}, "code: INTERNAL_ERROR"},
		{"an unknown code, any text", []goAwayFrame{{1, 0x77, "\"\xff"}}, `"\"\xff"`},
		{"none", nil, "error reading from server: EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got [2]string
				for i, kind := range kinds {
					waits := make(chan time.Duration, 10)
					cc, err := kind(func(context.Context, string) (net.Conn, error) {
						ours, theirs := net.Pipe()
						go func() { waits <- sendAway(theirs, test.all) }()
						return ours, nil
					})
					if err != nil {
						t.Fatal(err)
					}
					for range 3 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						err := callEcho(ctx, cc, []byte("a message"))
						cancel()
						got[i] += fmt.Sprintf("PING after %v: %v\n", <-waits, err)
					}
					if err := cc.Close(); err != nil {
						t.Error(err)
					}
				}
				if got[1] != got[0] || !strings.Contains(got[0], test.want) {
					t.Errorf("got\n%swant grpc-go's\n%swith %q", got[1], got[0], test.want)
				}
			})
		})
	}
}
