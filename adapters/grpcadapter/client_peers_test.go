package grpcadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// The points of a connection at which a server does something odd.
const (
	atDial     = iota // the dial hangs
	atBegin           // behind accept: a handshake that hangs, or SETTINGS that don't come
	atPreface         // behind the handshake
	atSettings        // behind SETTINGS
	atCall            // behind the header of a call
)

// An oddServer is a server that sends something, and says no more, or leaves.
type oddServer struct {
	name string
	at   int
	send func(p *frames.Peer, id uint32) // what it sends then; nil: nothing

	want string // how a call ends; empty: as with grpc-go, which leaves the others to chance

	stays  bool // it doesn't leave: grpc-go would connect again and again
	ends   bool // what was sent ends the call
	spares bool // the same, and the connection goes on
}

const maxHeader = 1000 // that the clients of oddServers take

var oddServers = func() (all []oddServer) {
	ok := []string{":status", "200", "content-type", "application/grpc"}
	html := []string{":status", "404", "content-type", "text/html"}
	done := []string{"grpc-status", "0"}
	long := []string{"long", strings.Repeat("x", maxHeader)}
	const message = "\x00\x00\x00\x00\x05\x0a\x03abc"
	header := func(p *frames.Peer, id uint32) *frames.Peer { return p.Headers(id, false, ok...) }
	cut := func(p *frames.Peer) { p.Out = p.Out[:len(p.Out)-3] }
	goAway := func(p *frames.Peer, last byte) { p.Frame(frames.GoAway, 0, 0, []byte{0, 0, 0, last, 0, 0, 0, 0}) }

	all = []oddServer{ // that say no more
		{name: "at the dial", at: atDial, stays: true},
		{name: "at once", at: atBegin},
		{name: "behind the handshake", at: atPreface},
		{name: "in SETTINGS", at: atPreface, send: func(p *frames.Peer, _ uint32) {
			p.Frame(frames.Settings, 0, 0, make([]byte, 6))
			cut(p)
		}},
		{name: "behind SETTINGS", at: atSettings, stays: true},
		{name: "behind SETTINGS that allow no stream", at: atPreface, stays: true, send: func(p *frames.Peer, _ uint32) {
			p.Frame(frames.Settings, 0, 0, []byte{0, 3, 0, 0, 0, 0})
		}},
		{name: "behind the call", at: atCall},
		{name: "in the header", at: atCall, send: func(p *frames.Peer, id uint32) {
			header(p, id)
			cut(p)
		}},
		{name: "before CONTINUATION", at: atCall, send: func(p *frames.Peer, id uint32) { p.Frame(frames.Headers, 0, id, []byte{0x88}) }},
		{name: "behind the header", at: atCall, send: func(p *frames.Peer, id uint32) { header(p, id) }},
		{name: "in the head of a message", at: atCall, send: func(p *frames.Peer, id uint32) { header(p, id).Data(id, message[:3], false) }},
		{name: "in a message", at: atCall, send: func(p *frames.Peer, id uint32) { header(p, id).Data(id, message[:7], false) }},
		{name: "in DATA", at: atCall, send: func(p *frames.Peer, id uint32) {
			header(p, id).Data(id, message, false)
			cut(p)
		}},
		{name: "behind the message", at: atCall, send: func(p *frames.Peer, id uint32) { header(p, id).Data(id, message, false) }},
		{name: "in the trailers", at: atCall, send: func(p *frames.Peer, id uint32) {
			header(p, id).Data(id, message, false).Headers(id, true, done...)
			cut(p)
		}},
		{name: "in an answer that is not gRPC's", at: atCall, send: func(p *frames.Peer, id uint32) { p.Headers(id, false, html...).Data(id, "not", false) }},
		{name: "behind GOAWAY", at: atCall, send: func(p *frames.Peer, id uint32) { goAway(p, byte(id)) }},
		{name: "behind the message and GOAWAY", at: atCall, send: func(p *frames.Peer, id uint32) {
			header(p, id).Data(id, message, false)
			goAway(p, byte(id))
		}},
		// that say too much
		{name: "HTTP/1", at: atPreface, ends: true, send: func(p *frames.Peer, _ uint32) {
			p.Out = append(p.Out, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"...)
		}},
		{name: "PING before SETTINGS", at: atPreface, ends: true, send: func(p *frames.Peer, _ uint32) { p.Frame(frames.Ping, 0, 0, make([]byte, 8)) }},
		{name: "GOAWAY without the call", at: atCall, ends: true, want: "Unavailable", send: func(p *frames.Peer, _ uint32) { goAway(p, 0) }},
	}
	spares := func(name string, send func(p *frames.Peer, id uint32)) {
		all = append(all, oddServer{name: name, at: atCall, ends: true, spares: true, send: send})
	}
	spares("an answer", func(p *frames.Peer, id uint32) {
		header(p, id).Data(id, "\x00\x00\x00\x00\x00", false).Headers(id, true, done...)
	})
	spares("RST_STREAM", func(p *frames.Peer, id uint32) { p.Reset(id, 8) })
	spares("RST_STREAM behind the header", func(p *frames.Peer, id uint32) { header(p, id).Reset(id, 2) })
	spares("RST_STREAM in a message", func(p *frames.Peer, id uint32) { header(p, id).Data(id, message[:7], false).Reset(id, 11) })
	spares("RST_STREAM without an error", func(p *frames.Peer, id uint32) { header(p, id).Data(id, message, false).Reset(id, 0) })
	spares("RST_STREAM in an answer that is not gRPC's", func(p *frames.Peer, id uint32) {
		p.Headers(id, false, html...).Data(id, "not", false).Reset(id, 11)
	})
	spares("an answer that is not gRPC's", func(p *frames.Peer, id uint32) { p.Headers(id, false, html...).Data(id, "not", true) })
	spares("no trailers", func(p *frames.Peer, id uint32) { header(p, id).Data(id, message, true) })
	spares("trailers in a message", func(p *frames.Peer, id uint32) { header(p, id).Data(id, message[:7], false).Headers(id, true, done...) })
	spares("trailers without a status", func(p *frames.Peer, id uint32) { header(p, id).Headers(id, true, "a", "b") })
	spares("a status that is no number", func(p *frames.Peer, id uint32) { p.Headers(id, false, append(ok[:4:4], "grpc-status", "x")...) })
	spares("metadata that is not base64", func(p *frames.Peer, id uint32) { p.Headers(id, false, append(ok[:4:4], "a-bin", "?")...) })
	spares("a compressor that is not there", func(p *frames.Peer, id uint32) {
		p.Headers(id, false, append(ok[:4:4], "grpc-encoding", "x")...).Data(id, "\x01"+message[1:], false)
	})
	spares("a message that is not protobuf", func(p *frames.Peer, id uint32) { header(p, id).Data(id, "\x00\x00\x00\x00\x01\xff", false) })
	spares("a long message", func(p *frames.Peer, id uint32) { header(p, id).Data(id, "\x00\x7f\xff\xff\xff", false) })
	spares("a long header", func(p *frames.Peer, id uint32) { p.Headers(id, false, append(ok[:4:4], long...)...) })
	spares("long trailers", func(p *frames.Peer, id uint32) { header(p, id).Headers(id, true, append(done[:2:2], long...)...) })
	return all
}()

// A play is a call to an oddServer.
type play struct {
	*oddServer
	server  *tls.Config // nil: in clear
	creds   credentials.TransportCredentials
	streams bool
	ending  string        // "cancel", "deadline", "FIN", "RST", "itself" or "beside", which is beside a call that lasts
	reached chan struct{} // gets something when the server has sent everything
	leave   chan struct{} // is closed when it may leave
}

// serve plays the server on a connection.
func (c *play) serve(t *testing.T, nc net.Conn) {
	p := frames.NewPeer(t, nc)
	p.Out = nil
	if c.at > atBegin {
		if _, err := io.ReadFull(nc, make([]byte, len(clientPreface))); err != nil {
			return
		}
	}
	send := func() {
		_, _ = nc.Write(p.Out)
		p.Out = nil
	}
	if c.at > atPreface {
		p.Frame(frames.Settings, 0, 0, nil).Frame(frames.Settings, frames.Ack, 0, nil)
		send()
	}
	id := uint32(1)
	if c.ending == "beside" {
		nextCall(p)
		id = 3
	}
	if c.at == atCall && !nextCall(p) {
		return
	}
	if c.send != nil {
		c.send(p, id)
		send()
	}
	select {
	case c.reached <- struct{}{}:
	default:
	}
	<-c.leave
	if c.ending == "beside" {
		answer(p, 1)
	}
}

// call makes the call, and returns how it ends.
func (c *play) call(ctx context.Context, cc grpc.ClientConnInterface) string {
	if !c.streams {
		return fmt.Sprint(status.Code(callUnary(ctx, cc, nil)))
	}
	s, err := tryChat(ctx, cc)
	if err != nil {
		return fmt.Sprint(status.Code(err))
	}
	_ = s.SendMsg(wrapperspb.Bytes(nil))
	for err == nil {
		err = s.RecvMsg(new(wrapperspb.BytesValue))
	}
	if err == io.EOF {
		err = nil
	}
	if s.SendMsg(wrapperspb.Bytes(nil)) == nil {
		return "SendMsg goes on"
	}
	return fmt.Sprint(status.Code(err))
}

// run returns how the call ends with one of the two clients.
func (c *play) run(t *testing.T, isOurs bool, others grpc.ClientConnInterface) (result string) {
	c.reached, c.leave = make(chan struct{}, 1), make(chan struct{})
	leave := sync.OnceFunc(func() { close(c.leave) })
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	var conns sync.WaitGroup
	defer testnet.Within(t, "the connections' end", conns.Wait)
	defer leave()
	defer lis.Close()
	conns.Go(func() {
		for {
			nc, err := lis.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer nc.Close()
				if c.ending == "FIN" || c.ending == "RST" {
					defer testnet.HangUp(nc.(*net.TCPConn), c.ending == "RST")
				}
				if c.server != nil && c.at != atBegin {
					c.serve(t, tls.Server(nc, c.server))
				} else {
					c.serve(t, nc)
				}
			})
		}
	})
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if c.at == atDial {
			c.reached <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	var cc differingClient
	if isOurs {
		cc = dialClient(t, lis, WithTransportCredentials(c.creds), WithMaxHeaderListSize(maxHeader), WithContextDialer(dial))
	} else {
		cc = dialServer(t, lis, grpc.WithTransportCredentials(c.creds), grpc.WithMaxHeaderListSize(maxHeader), grpc.WithContextDialer(dial))
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	callCtx, cancelCall := context.WithCancel(ctx)
	if c.ending == "deadline" {
		callCtx, cancelCall = context.WithTimeout(ctx, 5*time.Millisecond)
	}
	defer cancelCall()
	var other grpc.ClientStream
	if c.ending == "beside" {
		other = openChat(t, ctx, cc)
	}
	results := make(chan string, 1)
	go func() { results <- c.call(callCtx, cc) }()
	if c.ending != "deadline" { // which may pass before
		testnet.Receive(t, "the server's answer", c.reached)
	}
	if err := callUnary(ctx, others, pattern(100)); err != nil {
		t.Errorf("a call to another server: %v", err)
	}
	switch c.ending {
	case "cancel":
		cancelCall()
	case "FIN", "RST":
		leave()
	}
	result = testnet.Receive(t, c.name+": the call's end", results)
	if other != nil {
		leave()
		if err := other.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
			t.Errorf("the call that lasts: %v", err)
		}
		if err := other.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
			t.Errorf("the end of the call that lasts: %v", err)
		}
	}
	if ours, ok := cc.(*Client); ok {
		testnet.Eventually(t, "the end of all calls", func() bool { return ours.Stats().Calls == 0 && ours.Stats().HTTP2.Streams == 0 })
		ours.Close()
		testnet.Eventually(t, "the end of all connections", func() bool { return ours.Stats().HTTP2.Conns == 0 })
	}
	return result
}

// TestClientPeers makes calls to servers that stop, leave or do something else that is odd, at any
// point of a call, in clear and over TLS. Each call ends as with grpc-go, whether the server then says
// no more or leaves; the calls to another server go on, and so does another call of the connection,
// unless it has ended. Nothing is kept.
func TestClientPeers(t *testing.T) {
	overTLS, client := testnet.TLS(t)
	overTLS.NextProtos = []string{"h2"}
	for name, creds := range map[string]credentials.TransportCredentials{
		"clear": insecure.NewCredentials(), "TLS": credentials.NewTLS(client), // which all clients share
	} {
		server := overTLS
		if name == "clear" {
			server = nil
		}
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := serveEcho(t)
			others := dialClient(t, lis)
			for _, s := range oddServers {
				endings := []string{"cancel", "deadline", "FIN", "RST"}
				switch {
				case s.spares:
					endings = []string{"itself", "beside"}
				case s.ends:
					endings = []string{"itself"}
				case s.stays:
					endings = endings[:2]
				}
				for _, ending := range endings {
					for _, streams := range []bool{false, true} {
						c := &play{oddServer: &s, server: server, creds: creds, streams: streams, ending: ending}
						got, want := c.run(t, true, others), s.want
						if want == "" {
							want = c.run(t, false, others)
						}
						if got != want {
							t.Errorf("%s, %s, streams %t: got %s, want %s", s.name, ending, streams, got, want)
						}
					}
				}
			}
		})
	}
}

// TestClientRoomForOne: calls wait while the only stream that the server allows has a long answer. One
// may leave, and the next has the stream at the end of the answer, as with grpc-go.
func TestClientRoomForOne(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	serveOn(t, lis, grpc.NewServer(grpc.MaxConcurrentStreams(1)), &echo)
	for name, cc := range map[string]grpc.ClientConnInterface{"grpc-go": dialServer(t, lis), "ours": dialClient(t, lis)} {
		long := openChat(t, callContext(t), cc)
		if err := say(long, nil); err != nil { // the limit has come
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(callContext(t))
		leaves, waits := make(chan error, 1), make(chan error, 1)
		go func() { leaves <- callUnary(ctx, cc, nil) }()
		go func() { waits <- callUnary(callContext(t), cc, nil) }()
		cancel()
		if err := testnet.Receive(t, "the end of the call that leaves", leaves); status.Code(err) != codes.Canceled {
			t.Errorf("%s: got %v, want Canceled", name, err)
		}
		if err := say(long, pattern(100)); err != nil {
			t.Errorf("%s: the long answer: %v", name, err)
		}
		_ = long.CloseSend()
		if err := testnet.Receive(t, "the end of the call that waits", waits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
