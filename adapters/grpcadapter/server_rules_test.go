package grpcadapter

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// ruleBreakers are calls that break a rule of HTTP, or nearly do: see the table in package rpc. Those
// that a server of HTTP resets have http set.
var ruleBreakers = []struct {
	frameCall
	http bool
}{
	{frameCall: frameCall{name: "https", fields: []string{":scheme=https"}}},
	{frameCall: frameCall{name: "scheme", fields: []string{":scheme=unix"}}, http: true},
	{frameCall: frameCall{name: "scheme in capitals", fields: []string{":scheme=HTTP"}}, http: true},
	{frameCall: frameCall{name: "empty scheme", fields: []string{":scheme="}}, http: true},
	{frameCall: frameCall{name: "no scheme", without: ":scheme"}, http: true},
	{frameCall: frameCall{name: "abstract socket", fields: []string{":authority=@/containerd-shim/x.sock"}}, http: true},
	{frameCall: frameCall{name: "user", fields: []string{":authority=a@b"}}, http: true},
	{frameCall: frameCall{name: "abstract socket, scheme", fields: []string{":authority=@x", ":scheme=unix"}}, http: true},
	{frameCall: frameCall{name: "user in the host", without: ":authority", fields: []string{"host=a@b"}}, http: true},
	{frameCall: frameCall{name: "path as authority", fields: []string{":authority=/run/x.sock"}}},
	{frameCall: frameCall{name: "coded path as authority", fields: []string{":authority=%2Frun%2Fx.sock"}}},
	{frameCall: frameCall{name: "wrong code in the authority", fields: []string{":authority=%zz"}}},
	{frameCall: frameCall{name: "authority with a space", fields: []string{":authority=a b"}}},
	{frameCall: frameCall{name: "authority of bytes", fields: []string{":authority=\xff\xfe"}}},
	{frameCall: frameCall{name: "numbers as authority", fields: []string{":authority=[::]:50051"}}},
	{frameCall: frameCall{name: "empty authority", fields: []string{":authority="}}},
	{frameCall: frameCall{name: "host", without: ":authority", fields: []string{"host=/run/x.sock"}}},
	{frameCall: frameCall{name: "empty host", without: ":authority", fields: []string{"host="}}},
	{frameCall: frameCall{name: "the same host", fields: []string{":authority=x", "host=x"}}},
	{frameCall: frameCall{name: "another host", fields: []string{":authority=x", "host=y"}}},
	{frameCall: frameCall{name: "neither", without: ":authority"}},
	{frameCall: frameCall{name: "two hosts", without: ":authority", fields: []string{"host=x", "host=y"}}},
	{frameCall: frameCall{name: "two hosts and an authority", fields: []string{"host=x", "host=y"}}},
	{frameCall: frameCall{name: "two hosts, connection", fields: []string{"host=x", "host=y", "connection=close"}}},
	{frameCall: frameCall{name: "empty path", fields: []string{":path="}}, http: true},
	{frameCall: frameCall{name: "no path", without: ":path"}, http: true},
	{frameCall: frameCall{name: "path with a query", fields: []string{":path=/a/B?c"}}},
	{frameCall: frameCall{name: "coded path", fields: []string{":path=/a%2Fb/%zz"}}, http: true},
	{frameCall: frameCall{name: "star", fields: []string{":path=*"}}},
	{frameCall: frameCall{name: "URL as path", fields: []string{":path=http://h/a/B"}}},
	{frameCall: frameCall{name: "empty method", fields: []string{":method="}}, http: true},
	{frameCall: frameCall{name: "no method", without: ":method"}, http: true},
	{frameCall: frameCall{name: "method that is no token", fields: []string{":method=a b"}}, http: true},
	{frameCall: frameCall{name: "method in small letters", fields: []string{":method=post"}}},
	{frameCall: frameCall{name: "CONNECT", fields: []string{":method=CONNECT"}}, http: true},
	{frameCall: frameCall{name: "protocol", fields: []string{":protocol=websocket"}}, http: true},
	{frameCall: frameCall{name: "extended CONNECT", fields: []string{":method=CONNECT", ":protocol=websocket"}}, http: true},
	{frameCall: frameCall{name: "unknown pseudo-header field", fields: []string{":x=y"}}, http: true},
	{frameCall: frameCall{name: "status", fields: []string{":status=200"}}, http: true},
	{frameCall: frameCall{name: "connection", fields: []string{"connection=close"}}},
	{frameCall: frameCall{name: "fields of connections", fields: []string{"keep-alive=x", "proxy-connection=x", "upgrade=x", "transfer-encoding=chunked"}}},
	{frameCall: frameCall{name: "te", fields: []string{"te=gzip"}}},
	{frameCall: frameCall{name: "no te", without: "te"}},
	{frameCall: frameCall{name: "expect", fields: []string{"expect=100-continue"}}},
	{frameCall: frameCall{name: "value with a zero", fields: []string{"x=a\x00"}}, http: true},
	{frameCall: frameCall{name: "name in capitals", fields: []string{"X=a"}}, http: true},
	{frameCall: frameCall{name: "longer than declared", fields: []string{"content-length=3"}}, http: true},
	{frameCall: frameCall{name: "shorter than declared", fields: []string{"content-length=300"}}},
	{frameCall: frameCall{name: "no number", fields: []string{"content-length=x"}}, http: true},
	{frameCall: frameCall{name: "negative length", fields: []string{"content-length=-1"}}, http: true},
}

// tellCall is a handler of unknown services that answers with what it knows of the call.
func tellCall(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(stream.Context())
	names := make([]string, 0, len(md))
	for name, values := range md {
		names = append(names, name+"="+strings.Join(values, ","))
	}
	slices.Sort(names)
	return status.Error(codes.OutOfRange, strings.ReplaceAll(method+" "+strings.Join(names, " "), " ", ";"))
}

// TestServerRules plays calls that break rules of HTTP to a grpc.Server, and to all doors of this
// package, and compares the frames and what the handlers see.
func TestServerRules(t *testing.T) {
	testnet.NoLeaks(t)
	theirs, ours := []grpc.ServerOption{grpc.UnknownServiceHandler(tellCall)}, []Option{UnknownServiceHandler(tellCall)}
	doors := serveKinds(t, theirs, ours)
	if portWays[0].past {
		for _, kind := range serverKinds[1:] {
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			serveOn(t, lis, newPort(0, kind.makeOwn(theirs, ours), nil))
			doors = append(doors, serving{lis, kind.name + "'s port"})
		}
	}
	for _, call := range ruleBreakers {
		call.body = goodMessage
		t.Run(call.name, func(t *testing.T) {
			call.compare(t, doors)
		})
	}
}

// TestOnePortRules: HTTP is as strict on a port that gRPC shares as without gRPC.
func TestOnePortRules(t *testing.T) {
	if !portWays[0].past {
		t.Skip("connections are net/http's here: run it on Linux, without the build tag percore_net")
	}
	testnet.NoLeaks(t)
	shared, alone := testnet.Listen(t, percore.Listen, testnet.TCP4), testnet.Listen(t, percore.Listen, testnet.TCP4)
	serveOn(t, shared, newPort(0, NewServer(UnknownServiceHandler(tellCall)), nil))
	plain := new(http.Server)
	plain.Protocols = new(http.Protocols)
	plain.Protocols.SetUnencryptedHTTP2(true)
	serveOn(t, alone, &onePort{
		ownServer: NewServer(), web: httpadapter.Wrap(plain),
	})
	for _, call := range ruleBreakers {
		call.body = goodMessage
		call.fields = append([]string{"content-type=text/plain"}, call.fields...)
		t.Run(call.name, func(t *testing.T) {
			want := call.play(t, alone)
			got := call.play(t, shared)
			resets := call.http
			if call.name == "URL as path" { // a server of HTTP resets it since Go 1.27
				resets = strings.HasPrefix(want, "reset 1 PROTOCOL_ERROR")
			}
			if reset := strings.HasPrefix(got, "reset 1 PROTOCOL_ERROR"); reset != resets || reset != strings.HasPrefix(want, "reset 1 PROTOCOL_ERROR") {
				t.Errorf("got the frames\n%s\nwant a reset: %v; without gRPC\n%s", got, resets, want)
			}
		})
	}
}

// onEachDoor calls play with a client of grpc-go's server, and of each of this package's.
func onEachDoor(t *testing.T, play func(name string, p *frames.Peer)) {
	testnet.NoLeaks(t)
	for _, on := range serveKinds(t, nil, nil, &echo) {
		p := framePeer(t, on)
		play(on.name, p)
		p.Conn.Close()
	}
}

// TestServerClientGoesAway: a client may make calls behind its own GOAWAY, which says nothing of them.
func TestServerClientGoesAway(t *testing.T) {
	onEachDoor(t, func(name string, p *frames.Peer) {
		p.Headers(1, false, echoFields...).Frame(frames.GoAway, 0, 0, make([]byte, 8)).Data(1, goodMessage, false).Flush()
		for _, want := range []string{"data 1", "data 3"} {
			line := nextOfBody(p)
			if !strings.HasPrefix(line, want) {
				t.Errorf("%s: got the frame %s, want %s", name, line, want)
			}
			p.Headers(3, false, echoFields...).Data(3, goodMessage, false).Flush()
		}
	})
}

// TestServerIdleReset: gRPC's C core resets the stream of a call that is cancelled before its header was
// written. The calls of its connection go on.
func TestServerIdleReset(t *testing.T) {
	onEachDoor(t, func(name string, p *frames.Peer) {
		p.Headers(1, false, echoFields...).Frame(frames.RSTStream, 0, 3, []byte{0, 0, 0, 8}).Data(1, goodMessage, false).Flush()
		line := nextOfBody(p)
		if !strings.HasPrefix(line, "data 1") {
			t.Errorf("%s: got the frame %s, want data 1", name, line)
		}
	})
}

// nextOfBody returns the next frame that is not about settings, windows or headers.
func nextOfBody(p *frames.Peer) string {
	for {
		line := p.Next()
		if !strings.HasPrefix(line, "settings") && !strings.HasPrefix(line, "window") && !strings.HasPrefix(line, "headers") {
			return line
		}
	}
}
