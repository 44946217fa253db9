package grpcadapter

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A frameCall is a request as a client writes it that is not grpc-go's.
type frameCall struct {
	name    string
	fields  []string // "name=value"; in place of those of a good request with the same name
	without string   // a field that is left out
	body    string
	more    string // a second part of the body
	open    bool   // the client does not end the stream
}

const goodMessage = "\x00\x00\x00\x00\x03\x0a\x01x"

var frameCalls = []frameCall{
	{name: "good", body: goodMessage},
	{name: "in two parts", body: goodMessage[:3], more: goodMessage[3:]},
	{name: "subtype", fields: []string{"content-type=application/grpc+proto"}, body: goodMessage},
	{name: "subtype behind a semicolon", fields: []string{"content-type=application/grpc;proto"}, body: goodMessage},
	{name: "empty subtype", fields: []string{"content-type=application/grpc+"}, body: goodMessage},
	{name: "unknown subtype", fields: []string{"content-type=application/grpc+tea"}, body: goodMessage},
	{name: "no content-type", without: "content-type", body: goodMessage},
	{name: "another content-type", fields: []string{"content-type=text/plain"}, body: goodMessage},
	{name: "nearly the content-type", fields: []string{"content-type=application/grpcs"}, body: goodMessage},
	{name: "another content-type, open", fields: []string{"content-type=text/plain"}, open: true},
	{name: "GET", fields: []string{":method=GET"}, body: goodMessage},
	{name: "PUT, wrong content-type", fields: []string{":method=PUT", "content-type=x"}, body: goodMessage},
	{name: "timeout", fields: []string{"grpc-timeout=1H"}, body: goodMessage},
	{name: "long timeout", fields: []string{"grpc-timeout=99999999H"}, body: goodMessage},
	{name: "no timeout", fields: []string{"grpc-timeout="}, body: goodMessage},
	{name: "timeout without unit", fields: []string{"grpc-timeout=12"}, body: goodMessage},
	{name: "timeout without number", fields: []string{"grpc-timeout=SS"}, body: goodMessage},
	{name: "negative timeout", fields: []string{"grpc-timeout=-1S"}, body: goodMessage},
	{name: "too long a timeout", fields: []string{"grpc-timeout=123456789S"}, body: goodMessage},
	{name: "over", fields: []string{"grpc-timeout=0n"}, body: goodMessage},
	{name: "binary", fields: []string{"x-bin=AAEC", "y-bin=AA==", "z-bin="}, body: goodMessage},
	{name: "no base64", fields: []string{"x-bin=!"}, body: goodMessage},
	{name: "no base64, no timeout", fields: []string{"x-bin=!", "grpc-timeout=1"}, body: goodMessage},
	{name: "host", without: ":authority", fields: []string{"host=h"}, body: goodMessage},
	{name: "host and authority", fields: []string{"host=h"}, body: goodMessage},
	{name: "two hosts", fields: []string{"host=h", "host=i"}, body: goodMessage},
	{name: "no host", without: ":authority", body: goodMessage},
	{name: "empty authority", fields: []string{":authority="}, body: goodMessage},
	{name: "empty authority and a host", fields: []string{":authority=", "host=h"}, body: goodMessage},
	{name: "empty host", without: ":authority", fields: []string{"host="}, body: goodMessage},
	{name: "two hosts, no authority", without: ":authority", fields: []string{"host=h", "host=i"}, body: goodMessage},
	{name: "connection", fields: []string{"connection=close"}, body: goodMessage},
	{name: "te", fields: []string{"te=gzip"}, body: goodMessage},
	{name: "path without a slash", fields: []string{":path=x"}, body: goodMessage},
	{name: "rootless path", fields: []string{":path=percore.test.Echo/Unary"}, body: goodMessage},
	{name: "path with one slash", fields: []string{":path=/x"}, body: goodMessage},
	{name: "two slashes", fields: []string{":path=//"}, body: goodMessage},
	{name: "service with a slash", fields: []string{":path=/percore.test.Echo/x/Unary"}, body: goodMessage},
	{name: "unknown method", fields: []string{":path=/percore.test.Echo/None"}, body: goodMessage},
	{name: "unknown service", fields: []string{":path=/percore.test.None/Unary"}, open: true},
	{name: "unknown encoding", fields: []string{"grpc-encoding=tea"}, body: goodMessage},
	{name: "identity", fields: []string{"grpc-encoding=identity"}, body: goodMessage},
	{name: "compressed without encoding", body: "\x01" + goodMessage[1:]},
	{name: "compressed with identity", fields: []string{"grpc-encoding=identity"}, body: "\x01" + goodMessage[1:]},
	{name: "no gzip", fields: []string{"grpc-encoding=gzip"}, body: "\x01" + goodMessage[1:]},
	{name: "plain though gzip", fields: []string{"grpc-encoding=gzip"}, body: "\x00" + goodMessage[1:]},
	{name: "unknown flag", body: "\x02" + goodMessage[1:]},
	{name: "no message"},
	{name: "two messages", body: goodMessage + goodMessage},
	{name: "part of a head", body: goodMessage[:3]},
	{name: "head alone", body: goodMessage[:5]},
	{name: "part of a message", body: goodMessage[:7]},
	{name: "no protobuf", body: "\x00\x00\x00\x00\x01\xff"},
	{name: "too long a message", body: "\x00\x7f\xff\xff\xff"},
	{name: "longest message", body: "\x00\xff\xff\xff\xff", open: true},
	{name: "short body", fields: []string{"content-length=100"}, body: goodMessage},
}

// play makes the call on a connection of its own, and returns the frames of the answer.
func (c frameCall) play(t *testing.T, lis net.Listener) string {
	nc := testnet.Dial(t, lis)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	p := frames.NewPeer(t, nc)
	var fields []string
	for _, f := range []string{":method=POST", ":scheme=http", ":path=/percore.test.Echo/Unary", ":authority=h", "content-type=application/grpc", "te=trailers"} {
		name, value, _ := strings.Cut(f, "=")
		i := slices.IndexFunc(c.fields, func(f string) bool { return strings.HasPrefix(f, name+"=") })
		switch {
		case i >= 0:
			_, value, _ = strings.Cut(c.fields[i], "=")
		case name == c.without:
			continue
		}
		fields = append(fields, name, value)
	}
	for _, f := range c.fields {
		switch name, value, _ := strings.Cut(f, "="); {
		case slices.Contains(fields, name) && name != "host":
		case strings.HasPrefix(name, ":"):
			fields = append([]string{name, value}, fields...)
		default:
			fields = append(fields, name, value)
		}
	}
	p.Headers(1, false, fields...)
	if c.more != "" {
		p.Data(1, c.body, false).Flush()
		p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
		for line := p.Next(); !strings.HasPrefix(line, "pong"); line = p.Next() {
		}
		p.Data(1, c.more, !c.open).Flush()
	} else if c.body != "" || !c.open {
		p.Data(1, c.body, !c.open)
	}
	p.Flush()
	var lines []string
	for {
		line := p.Next()
		switch {
		case strings.HasPrefix(line, "headers"):
			words := strings.Split(line, " ")
			slices.Sort(words[2:])
			words = slices.DeleteFunc(words, func(w string) bool { return w == "grpc-message=" })
			lines = append(lines, strings.Join(words, " "))
		case strings.HasPrefix(line, "data 1"), strings.HasPrefix(line, "reset 1"):
			lines = append(lines, line)
		case strings.HasPrefix(line, "error"), line == "end":
			return strings.Join(append(lines, line), "\n")
		}
		if strings.HasPrefix(line, "reset") || strings.HasSuffix(line, " end") && !c.open {
			return strings.Join(lines, "\n")
		}
	}
}

// TestServerFrames plays requests, good and bad, to a grpc.Server, to a Server, and to a grpc.Server
// past grpc-go's transport, and compares the frames of the answers.
func TestServerFrames(t *testing.T) {
	testnet.NoLeaks(t)
	doors := serveKinds(t, nil, nil, &echo)
	for _, call := range frameCalls {
		t.Run(call.name, func(t *testing.T) { call.compare(t, doors) })
	}
}

// compare plays the call to servers, of which the first is right.
func (c frameCall) compare(t *testing.T, doors []serving) {
	want := c.play(t, doors[0])
	for _, on := range doors[1:] {
		if got := c.play(t, on); got != want {
			t.Errorf("%s: got the frames\n%s\nwant\n%s", on.name, got, want)
		}
	}
}

// TestServerHeaderLimit: a header that the client doesn't take ends the call.
func TestServerHeaderLimit(t *testing.T) {
	testnet.NoLeaks(t)
	for _, on := range serveKinds(t, nil, nil, &echo) {
		err := callUnary(callContext(t), dialServer(t, on, grpc.WithMaxHeaderListSize(60)), nil)
		if got := fmt.Sprint(err); got != "rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: INTERNAL_ERROR" {
			t.Errorf("%s: got %v", on.name, err)
		}
	}
}

// TestServerLongHeader: without an option, headers of half a megabyte are served, as by grpc-go.
func TestServerLongHeader(t *testing.T) {
	testnet.NoLeaks(t)
	long := make([]string, 0, 2*1000)
	for i := range cap(long) / 2 {
		long = append(long, fmt.Sprint("x", i), strings.Repeat("y", 500))
	}
	for _, lis := range serveKinds(t, nil, nil, &echo) {
		ctx := metadata.AppendToOutgoingContext(callContext(t), long...)
		if err := callUnary(ctx, dialServer(t, lis), pattern(100)); err != nil {
			t.Errorf("1,000 fields of 500 bytes: got %v", err)
		}
	}
}

// goAways play what makes a server send GOAWAY.
var goAways = []struct {
	name string
	keep keepalive.ServerParameters
	send func(p *frames.Peer) // nil: nothing
	stop bool                 // the server is stopped gracefully
}{
	{name: "max_idle", keep: keepalive.ServerParameters{MaxConnectionIdle: time.Millisecond}},
	{name: "max_idle without PINGs", keep: keepalive.ServerParameters{Time: never, MaxConnectionIdle: time.Millisecond}},
	{name: "max_age", keep: keepalive.ServerParameters{MaxConnectionAge: time.Millisecond}},
	{name: "graceful_stop", stop: true},
	{name: "an even stream", send: func(p *frames.Peer) { p.Headers(2, true, echoFields...) }},
	{name: "a stream that goes down", send: func(p *frames.Peer) { p.Headers(3, false, echoFields...).Headers(1, true, echoFields...) }},
	{name: "too_many_pings", send: func(p *frames.Peer) {
		for range 10 {
			p.Frame(frames.Ping, 0, 0, make([]byte, 8))
		}
	}},
}

var echoFields = []string{
	":method", "POST", ":scheme", "http", ":path", "/percore.test.Echo/Chat", ":authority", "h",
	"content-type", "application/grpc", "te", "trailers",
}

// TestServerGoAways compares the GOAWAYs of the three kinds of servers, with their texts.
func TestServerGoAways(t *testing.T) {
	for _, test := range goAways {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			want := ""
			for _, kind := range serverKinds {
				got := playGoAway(t, test.send, test.stop, kind.make(
					[]grpc.ServerOption{grpc.KeepaliveParams(test.keep)}, []Option{KeepaliveParams(test.keep)}))
				if want == "" {
					want = got
				}
				if !strings.Contains(want, "goaway") || got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", kind.name, got, want)
				}
			}
		})
	}
}

// playGoAway returns the GOAWAYs of a server, without the frame as Go prints it that grpc-go adds to a
// text.
func playGoAway(t *testing.T, send func(*frames.Peer), stop bool, srv testServer) string {
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	serveOn(t, lis, srv, &echo)
	p := framePeer(t, lis)
	defer p.Conn.Close()
	if send != nil {
		send(p)
	}
	p.Flush()
	if stop {
		for p.Next() != "settings ack" { // the server knows the connection
		}
		go srv.GracefulStop()
	}
	var lines []string
	for {
		line := p.Next()
		if line == "end" || strings.HasPrefix(line, "error") {
			return strings.Join(append(lines, line), "\n")
		}
		if !strings.HasPrefix(line, "goaway") {
			continue
		}
		line, _, _ = strings.Cut(line, " headers frame")
		lines = append(lines, strings.TrimSuffix(line, `"`))
		if !strings.HasPrefix(line, "goaway 2147483647") { // the last one
			return strings.Join(lines, "\n")
		}
	}
}
