package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// framesServer calls serve for each connection, until the test ends, and closes it behind that.
func framesServer(t *testing.T, serve func(p *frames.Peer)) net.Listener {
	t.Helper()
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		for {
			nc, err := lis.Accept()
			if err != nil {
				return
			}
			go serveFrames(t, nc, func(p *frames.Peer) { serve(p.Flush()) })
		}
	}()
	return lis
}

func serveFrames(t *testing.T, nc net.Conn, serve func(p *frames.Peer)) {
	defer nc.Close()
	if p, err := frames.NewServerPeer(t, nc); err == nil {
		serve(p)
	}
}

// answerCalls answers all calls of a connection.
func answerCalls(p *frames.Peer) {
	for id := uint32(1); nextCall(p); id += 2 {
		answer(p, id)
	}
}

// pipeTo returns a dialer of connections in memory.
func pipeTo(serve func(nc net.Conn)) dialFunc {
	return func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go serve(theirs)
		return ours, nil
	}
}

// nextCall reads until a call comes, or the connection ends.
func nextCall(p *frames.Peer) (came bool) {
	for {
		switch line := p.Next(); {
		case strings.HasPrefix(line, "headers "):
			return true
		case line == "end", strings.HasPrefix(line, "error:"):
			return false
		}
	}
}

// answer answers a call with success and an empty message.
func answer(p *frames.Peer, id uint32) {
	p.Headers(id, false, ":status", "200", "content-type", "application/grpc").
		Data(id, "\x00\x00\x00\x00\x00", false).Headers(id, true, "grpc-status", "0").Flush()
}

// TestClientRetriesWithoutAnswer: a call whose stream ends before an answer of gRPC's is tried again as
// the policy says, whatever has ended it, as with grpc-go.
func TestClientRetriesWithoutAnswer(t *testing.T) {
	testnet.NoLeaks(t)
	for name, fail := range map[string]func(p *frames.Peer){
		"the connection is lost": func(p *frames.Peer) { p.Conn.Close() },
		"a reset":                func(p *frames.Peer) { p.Reset(1, 8).Flush() },
		"a proxy's answer": func(p *frames.Peer) {
			p.Headers(1, false, ":status", "503", "content-type", "text/html").Data(1, "busy", true).Flush()
		},
	} {
		first := make(chan bool, 1)
		first <- true
		lis := framesServer(t, func(p *frames.Peer) {
			for id := uint32(1); nextCall(p); id += 2 {
				select {
				case <-first:
					fail(p)
				default:
					answer(p, id)
				}
			}
		})
		c := dialClient(t, lis, WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,
			"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,
			"retryableStatusCodes":["UNAVAILABLE","CANCELLED"]}}]}`))
		if err := callUnary(callContext(t), c, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

// TestClientSendsBehindAnswer: SendMsg ends when the server has answered, though it gives no window and
// doesn't reset the stream, as with grpc-go.
func TestClientSendsBehindAnswer(t *testing.T) {
	testnet.NoLeaks(t)
	lis := framesServer(t, func(p *frames.Peer) {
		for line := p.Next(); !strings.HasPrefix(line, "data "); line = p.Next() {
		}
		answer(p, 1)
		nextCall(p)
	})
	for name, c := range map[string]grpc.ClientConnInterface{"grpc-go": dialServer(t, lis), "ours": dialClient(t, lis)} {
		var err error
		s := openChat(t, callContext(t), c)
		for err == nil {
			err = s.SendMsg(wrapperspb.Bytes(pattern(100 << 10)))
		}
		if err != io.EOF {
			t.Errorf("%s: SendMsg returned %v, want io.EOF", name, err)
		}
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
			t.Errorf("%s: RecvMsg returned %v", name, err)
		}
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
			t.Errorf("%s: RecvMsg returned %v, want io.EOF", name, err)
		}
	}
}

// TestClientReplayFails: a call that is sent again, and fails or succeeds before all of it is sent, ends
// as its last attempt. With grpc-go it does, too, but now and then a stream that fails has succeeded.
func TestClientReplayFails(t *testing.T) {
	testnet.NoLeaks(t)
	for want, end := range map[string]func(p *frames.Peer){
		"0 true Canceled": func(p *frames.Peer) { p.Reset(1, 8).Flush() },
		"1 EOF":           func(p *frames.Peer) { answer(p, 1) },
	} {
		first := make(chan bool, 1)
		first <- true
		lis := framesServer(t, func(p *frames.Peer) {
			nextCall(p)
			select {
			case <-first:
				p.Window(0, 1<<20).Window(1, 1<<20).Flush()
				for n := 0; n < 100<<10; {
					var id int
					var data string
					if _, err := fmt.Sscanf(p.Next(), "data %d %q", &id, &data); err == nil {
						n += len(data)
					}
				}
				p.Frame(frames.GoAway, 0, 0, make([]byte, 8)).Flush()
			default:
				end(p)
			}
			nextCall(p)
		})
		s := openChat(t, callContext(t), dialClient(t, lis))
		err := s.SendMsg(wrapperspb.Bytes(pattern(100 << 10)))
		if err != nil && err != io.EOF { // it may have ended by now
			t.Fatal(err)
		}
		n := 0
		for err = nil; err == nil; n++ {
			err = s.RecvMsg(new(wrapperspb.BytesValue))
		}
		if got := fmt.Sprint(n-1, " ", statusText(err)); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
