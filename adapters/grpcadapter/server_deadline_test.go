package grpcadapter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// deadlines is a server of one method, whose handlers do what the field "do" says until the deadline.
type deadlines struct {
	noStats
	ready   atomic.Bool   // a handler has come to where it waits for the deadline, before that
	release chan struct{} // closed when handlers that ignore the deadline may return
	results chan error    // of what a handler was doing at the deadline

	noted // the events of the stats handler
}

func newDeadlines() *deadlines {
	return &deadlines{release: make(chan struct{}), results: make(chan error, 1)}
}

func (d *deadlines) serve(_ any, s grpc.ServerStream) error {
	ctx := s.Context()
	do := strings.Join(metadata.ValueFromIncomingContext(ctx, "do"), "")
	switch do {
	case "metadata":
		_ = s.SetHeader(metadata.Pairs("h", "1"))
		s.SetTrailer(metadata.Pairs("t", "2"))
	case "message", "send much":
		_ = s.SendMsg(wrapperspb.Bytes([]byte("x")))
	}
	d.ready.Store(ctx.Err() == nil)
	switch do {
	case "run on":
		<-d.release
		return nil
	case "receive":
		d.results <- s.RecvMsg(new(wrapperspb.BytesValue))
	case "send": // until the deadline, see HandleRPC
		_ = s.SendMsg(wrapperspb.Bytes([]byte("x")))
	case "send much": // than the client's window
		d.results <- s.SendMsg(wrapperspb.Bytes(make([]byte, 100_000)))
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *deadlines) HandleRPC(ctx context.Context, e stats.RPCStats) {
	if _, ok := e.(*stats.OutPayload); ok && slices.Equal(metadata.ValueFromIncomingContext(ctx, "do"), []string{"send"}) {
		<-ctx.Done()
	}
	d.add(strings.TrimPrefix(fmt.Sprintf("%T", e), "*stats."))
}

// awaitEvents returns the events of a call, each kind once.
func (d *deadlines) awaitEvents(t *testing.T) (text string) {
	testnet.Eventually(t, "the call's end", func() bool {
		text = strings.Join(slices.Compact(d.copied()), " ")
		return strings.HasSuffix(text, "End")
	})
	return text
}

// deadlineCase is a call whose deadline passes.
type deadlineCase struct {
	do     string
	open   bool   // the client goes on sending
	want   string // the last frames
	events string // between Begin and End
	result codes.Code
}

var deadlineCases = []deadlineCase{
	{do: "wait", want: onlyTrailers, events: "OutTrailer"},
	{do: "wait", open: true, want: onlyTrailers + "\nreset 1 NO_ERROR", events: "OutTrailer"},
	{do: "run on", want: onlyTrailers, events: "OutTrailer"},
	{do: "run on", open: true, want: onlyTrailers + "\nreset 1 NO_ERROR", events: "OutTrailer"},
	{do: "metadata", want: "headers 1 :status=200 content-type=application/grpc h=1\n" + strings.Replace(trailers, " end", " t=2 end", 1), events: "OutHeader OutTrailer"},
	{do: "message", want: "headers 1 :status=200 content-type=application/grpc\ndata 1\n" + trailers, events: "OutHeader OutPayload OutTrailer"},
	{do: "receive", open: true, want: onlyTrailers + "\nreset 1 NO_ERROR", events: "OutTrailer", result: codes.DeadlineExceeded},
	{do: "send", want: "headers 1 :status=200 content-type=application/grpc\ndata 1\n" + trailers, events: "OutHeader OutPayload OutTrailer"},
	{do: "send much", want: "headers 1 :status=200 content-type=application/grpc\ndata 1\nreset 1 CANCEL", events: "OutHeader OutPayload", result: codes.DeadlineExceeded},
}

const (
	trailers     = "headers 1 grpc-status=4 grpc-message=context deadline exceeded end"
	onlyTrailers = "headers 1 :status=200 content-type=application/grpc grpc-status=4 grpc-message=context deadline exceeded end"
)

// TestServerDeadline: a client without a clock of its own gets the status at the server's deadline,
// whatever the handler does, and the stats handler is told of it before the end.
func TestServerDeadline(t *testing.T) {
	for _, door := range []struct {
		name string
		make func(d *deadlines) testServer
	}{
		{"NewServer", func(d *deadlines) testServer { return NewServer(UnknownServiceHandler(d.serve)) }},
		{"NewServer, stats", func(d *deadlines) testServer { return NewServer(UnknownServiceHandler(d.serve), StatsHandler(d)) }},
		{"Wrap", func(d *deadlines) testServer {
			return newWrapped([]grpc.ServerOption{grpc.UnknownServiceHandler(d.serve)})
		}},
		{"Wrap, stats", func(d *deadlines) testServer {
			return newWrapped([]grpc.ServerOption{grpc.UnknownServiceHandler(d.serve), grpc.StatsHandler(d)})
		}},
		{"NewServer, tap", func(d *deadlines) testServer {
			return NewServer(UnknownServiceHandler(d.serve), InTapHandle(tapDeadline))
		}},
		{"ServeHTTP, stats", func(d *deadlines) testServer {
			return newPort(1, NewServer(UnknownServiceHandler(d.serve), StatsHandler(d)), nil)
		}},
		{"ServeHTTP by net/http, stats", func(d *deadlines) testServer {
			return newPort(2, NewServer(UnknownServiceHandler(d.serve), StatsHandler(d)), nil)
		}},
		{"port", func(d *deadlines) testServer { return newPort(0, NewServer(UnknownServiceHandler(d.serve)), nil) }},
	} {
		if door.name == "port" && !portWays[0].past {
			continue // net/http's streams have their status when the handler returns
		}
		for _, test := range deadlineCases {
			switch {
			case test.do == "send" && !strings.HasSuffix(door.name, "stats"):
				continue
			case strings.HasPrefix(door.name, "ServeHTTP") && (test.do == "run on" || strings.HasPrefix(test.do, "send")):
				continue // the status goes when the handler returns, and net/http resets what is being sent
			}
			name := fmt.Sprintf("%s/%s/open=%v", door.name, test.do, test.open)
			t.Run(name, func(t *testing.T) {
				testnet.NoLeaks(t)
				for timeout := 20; !test.play(t, door.name, door.make, timeout); timeout *= 2 {
					t.Logf("the deadline came too early: %d ms", timeout)
				}
			})
		}
	}
}

// play makes a call, and reports false if the machine was too slow for a deadline after so many
// milliseconds: it has passed before the handler waits for it, or before the handler does what it does.
func (c *deadlineCase) play(t *testing.T, door string, server func(*deadlines) testServer, timeout int) bool {
	d := newDeadlines()
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	serveOn(t, lis, server(d))
	p, field := framePeer(t, lis), "grpc-timeout"
	if strings.HasSuffix(door, "tap") {
		field = "tap-timeout"
	}
	p.Headers(1, !c.open, append(slices.Clone(echoFields), "do", c.do, field, fmt.Sprint(timeout, "m"))...).Flush()
	got := strings.ReplaceAll(lastFrames(p, c.open), // net/http sorts fields
		"grpc-message=context deadline exceeded grpc-status=4", "grpc-status=4 grpc-message=context deadline exceeded")
	close(d.release)
	switch {
	case !d.ready.Load(), c.do == "send" && got == onlyTrailers, c.do == "send much" && strings.HasSuffix(got, trailers):
		return false
	}
	if got != c.want {
		t.Errorf("got the frames\n%s\nwant\n%s", got, c.want)
	}
	if c.result != codes.OK {
		if err := testnet.Receive(t, "the handler's result", d.results); status.Code(err) != c.result {
			t.Errorf("the handler got %v, want %v", err, c.result)
		}
	}
	if strings.HasSuffix(door, "stats") {
		if got, want := d.awaitEvents(t), "InHeader Begin "+c.events+" End"; got != want {
			t.Errorf("got the events %s, want %s", got, want)
		}
	}
	return true
}

// tapDeadline gives calls a deadline that is not gRPC's.
func tapDeadline(ctx context.Context, info *tap.Info) (context.Context, error) {
	d, err := time.ParseDuration(info.Header["tap-timeout"][0] + "s")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx, nil
}

// lastFrames returns the frames of stream 1 up to its end, or up to a reset behind it. Several of DATA
// are one line.
func lastFrames(p *frames.Peer, reset bool) string {
	var lines []string
	for {
		line := p.Next()
		switch {
		case strings.HasPrefix(line, "data 1"):
			if line = "data 1"; lines[len(lines)-1] == line {
				continue
			}
		case strings.HasPrefix(line, "headers 1"), strings.HasPrefix(line, "reset 1"), strings.HasPrefix(line, "e"):
		default:
			continue
		}
		lines = append(lines, line)
		if line[0] == 'r' || line[0] == 'e' || strings.HasSuffix(line, " end") && !reset {
			return strings.Join(lines, "\n")
		}
	}
}

// TestServerDeadlines: many calls of one connection that have one deadline all get their status.
func TestServerDeadlines(t *testing.T) {
	testnet.NoLeaks(t)
	const calls = 500
	d := newDeadlines()
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	serveOn(t, lis, NewServer(UnknownServiceHandler(d.serve)))
	p := framePeer(t, lis)
	for i := range uint32(calls) {
		p.Headers(2*i+1, i%2 == 0, append(slices.Clone(echoFields), "do", "wait", "grpc-timeout", "100m")...)
	}
	p.Flush()
	for got := 0; got < calls; {
		switch line := p.Next(); {
		case strings.Contains(line, "grpc-status=4"):
			got++
		case strings.HasPrefix(line, "reset") && strings.HasSuffix(line, "NO_ERROR"):
		case strings.HasPrefix(line, "reset"), strings.HasPrefix(line, "goaway"), strings.HasPrefix(line, "e"):
			t.Fatalf("got the frame %s behind %d statuses, want %d", line, got, calls)
		}
	}
}
