package grpcadapter

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/testnet"
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
	kinds := []func(dial dialFunc) (differingClient, error){
		func(dial dialFunc) (differingClient, error) {
			return grpc.NewClient("passthrough:///server", grpc.WithContextDialer(dial), grpc.WithKeepaliveParams(params),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		func(dial dialFunc) (differingClient, error) {
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
					cc, err := kind(pipeTo(func(nc net.Conn) { waits <- sendAway(nc, test.all) }))
					if err != nil {
						t.Fatal(err)
					}
					for range 3 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						err := callUnary(ctx, cc, []byte("a message"))
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

// TestClientSentAwayEarly: the server goes away when a call has a connection, and no stream yet. Stats
// handlers see another attempt then, as with grpc-go.
func TestClientSentAwayEarly(t *testing.T) {
	testnet.NoLeaks(t)
	var logs [2]attemptLog
	for i := range logs {
		first, away := make(chan bool, 1), make(chan bool)
		first <- true
		lis := framesServer(t, func(p *frames.Peer) {
			select {
			case <-first:
				<-away
				p.Frame(frames.GoAway, 0, 0, make([]byte, 8)).Flush()
			default:
			}
			answerCalls(p)
		})
		var cc healthClient = dialServer(t, lis, grpc.WithStatsHandler(&logs[i]))
		if i == 1 {
			cc = dialClient(t, lis, WithStatsHandler(&logs[i]))
		}
		ctx := callContext(t)
		connect(ctx, cc)
		sendAway := sync.OnceFunc(func() {
			close(away)
			cc.WaitForStateChange(ctx, connectivity.Ready)
		})
		creds := credsFunc(func(context.Context) (map[string]string, error) { // asked between the two
			sendAway()
			return nil, nil
		})
		if err := callUnary(ctx, cc, nil, grpc.PerRPCCredentials(creds)); err != nil {
			t.Error(err)
		}
		_ = cc.Close()
	}
	want := logs[0].all
	if again := "begin, transparent false"; len(want) == 6 && want[3] == again {
		want = slices.Delete(want, 3, 4) // grpc-go begins two attempts there, of which one never ends
	}
	if got := logs[1].all; !slices.Equal(got, want) || len(want) != 5 {
		t.Errorf("got the attempts %q, want %q as with grpc-go", got, want)
	}
}

// TestClientSentAwayAtOnce: a server that is about to stop says so behind its first SETTINGS. The call
// goes to the next connection, and is not told that there is none.
func TestClientSentAwayAtOnce(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		for stops := true; ; stops = !stops {
			nc, err := lis.Accept()
			if err != nil {
				return
			}
			go serveFrames(t, nc, func(p *frames.Peer) {
				if stops {
					p.Frame(frames.GoAway, 0, 0, make([]byte, 8))
				}
				answerCalls(p.Flush())
			})
		}
	}()
	for range 20 {
		for i, cc := range []differingClient{dialServer(t, lis), dialClient(t, lis)} {
			if err := callUnary(callContext(t), cc, nil); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			_ = cc.Close()
		}
	}
}

// TestClientTurnedAway: a server that greets and leaves isn't connected to again and again without a
// break, though round_robin keeps all servers connected: grpc-go makes no break. Connections that end
// behind an answer are of use, so the next ones are made at once.
func TestClientTurnedAway(t *testing.T) {
	for name, test := range map[string]struct {
		serve       func(p *frames.Peer)
		least, most int32 // connections in a minute
	}{
		// Four at once, and the backoffs of a minute, twice: of connections, and of those that end before
		// their SETTINGS are read.
		"with the end of the connection": {func(p *frames.Peer) { p.Flush() }, 5, 30},
		"with GOAWAY":                    {func(p *frames.Peer) { p.Frame(frames.GoAway, 0, 0, make([]byte, 8)).Flush() }, 5, 30},
		"with an answer": {func(p *frames.Peer) {
			if nextCall(p.Flush()) {
				answer(p, 1)
			}
		}, 100, 101},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				cc := newTestClient(t, "passthrough:///server", WithTransportCredentials(insecure.NewCredentials()),
					WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
					WithContextDialer(pipeTo(func(nc net.Conn) {
						dials.Add(1)
						serveFrames(t, nc, test.serve)
					})))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 100 {
					_ = callUnary(ctx, cc, nil, grpc.WaitForReady(true))
					synctest.Wait() // the connection ends
				}
				if n := dials.Load(); n < test.least || n > test.most {
					t.Errorf("got %d connections, want %d to %d", n, test.least, test.most)
				}
				if err := cc.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestClientOddGreeting: a server that speaks something else fails a call at once, though its connection
// takes a while to close.
func TestClientOddGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := newTestClient(t, "passthrough:///server", WithContextDialer(pipeTo(func(nc net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, nc) }()
			_, _ = nc.Write([]byte("SSH-2.0-OpenSSH_10.0\r\n"))
		})))
		began := time.Now()
		err := callUnary(t.Context(), cc, nil)
		if took := time.Since(began); status.Code(err) != codes.Unavailable || took != 0 {
			t.Errorf("got %v after %v, want Unavailable at once", err, took)
		}
		cc.Close()
	})
}
