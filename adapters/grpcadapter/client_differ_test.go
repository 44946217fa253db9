package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// The tests of this file make the same random calls with a grpc.ClientConn and with a Client, to the
// same kinds of servers, and compare everything that can be seen: what each call of the client returns,
// the order of its interceptors and stats events, and what the server has got.

// differingClient is what the clients have that are compared.
type differingClient interface {
	grpc.ClientConnInterface
	Close() error
}

// differingClients are the kinds of clients. The first is right.
var differingClients = []struct {
	name string
	make func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error)
}{
	{"grpc-go", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithUserAgent("differ/1")}
		if log != nil {
			options = append(options, grpc.WithChainUnaryInterceptor(unaryClientLog("u2", log), unaryClientLog("u3", log)),
				grpc.WithUnaryInterceptor(unaryClientLog("u1", log)), grpc.WithStatsHandler(clientStatsLog{statsLog{"x", log}}),
				grpc.WithChainStreamInterceptor(streamClientLog("s2", log)), grpc.WithStreamInterceptor(streamClientLog("s1", log)),
				grpc.WithStatsHandler(clientStatsLog{statsLog{"y", log}}))
		}
		return grpc.NewClient("passthrough:///"+addr, options...)
	}},
	{"NewClient", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		return newDifferingClient(addr, creds, log)
	}},
	{"ClientConn", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		c, err := newDifferingClient(addr, creds, log)
		if err != nil {
			return nil, err
		}
		return c.ClientConn(), nil
	}},
}

func newDifferingClient(addr string, creds credentials.TransportCredentials, log *callLog) (*Client, error) {
	options := []ClientOption{WithTransportCredentials(creds), WithUserAgent("differ/1")}
	if log != nil {
		options = append(options,
			WithChainUnaryInterceptor(unaryClientLog("u1", log), unaryClientLog("u2", log), unaryClientLog("u3", log)),
			WithStatsHandler(clientStatsLog{statsLog{"x", log}}),
			WithChainStreamInterceptor(streamClientLog("s1", log)), WithChainStreamInterceptor(streamClientLog("s2", log)),
			WithStatsHandler(clientStatsLog{statsLog{"y", log}}))
	}
	return NewClient("passthrough:///"+addr, options...)
}

// addOutgoing is add for a client's context.
func (l *callLog) addOutgoing(ctx context.Context, format string, args ...any) {
	md, _ := metadata.FromOutgoingContext(ctx)
	l.add(metadata.NewIncomingContext(context.Background(), md), format, args...)
}

func unaryClientLog(name string, log *callLog) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		log.addOutgoing(ctx, "%s: %s %T %T %v, %d options", name, method, req, reply, strings.HasPrefix(cc.Target(), "passthrough:"), len(opts))
		err := invoke(context.WithValue(ctx, statsKey(name), true), method, req, reply, cc, opts...)
		log.addOutgoing(ctx, "%s: %s", name, statusText(err))
		return err
	}
}

func streamClientLog(name string, log *callLog) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		log.addOutgoing(ctx, "%s: %s %v %v %v", name, method, desc.ClientStreams, desc.ServerStreams, strings.HasPrefix(cc.Target(), "passthrough:"))
		s, err := streamer(ctx, desc, cc, method, opts...)
		log.addOutgoing(ctx, "%s: %v %s", name, s != nil, statusText(err))
		return s, err
	}
}

// clientStatsLog is statsLog for clients.
type clientStatsLog struct{ statsLog }

func (s clientStatsLog) HandleConn(ctx context.Context, e stats.ConnStats) {
	s.log.add(context.Background(), "%s: %T, tagged %v, client %v", s.name, e, ctx.Value(statsKey(s.name)), e.IsClient())
}

func (s clientStatsLog) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	info.NameResolutionDelay = false // the first call has it, or not
	s.log.addOutgoing(ctx, "%s: tag %+v", s.name, *info)
	return context.WithValue(ctx, statsKey("rpc "+s.name), info.FullMethodName)
}

func (s clientStatsLog) HandleRPC(ctx context.Context, e stats.RPCStats) {
	text := ""
	switch e := e.(type) {
	case *stats.InHeader:
		text = fmt.Sprintf("%q %s", e.Compression, mdText(e.Header))
	case *stats.OutHeader:
		named := e.Authority == e.RemoteAddr.String()
		text = fmt.Sprintf("%q %q %v %v %s", e.FullMethod, e.Compression, named, e.LocalAddr != nil, mdText(e.Header))
	case *stats.InPayload:
		text = fmt.Sprintf("%d %d %d", e.Length, e.CompressedLength, e.WireLength)
	case *stats.OutPayload:
		text = fmt.Sprintf("%d %d %d", e.Length, e.CompressedLength, e.WireLength)
	case *stats.InTrailer:
		text = mdText(e.Trailer)
	case *stats.Begin:
		text = fmt.Sprint(e.IsClientStream, e.IsServerStream, e.FailFast, e.IsTransparentRetryAttempt)
	case *stats.End:
		text = statusText(e.Error) + mdText(e.Trailer)
	case *stats.DelayedPickComplete:
		return // the first call has it, or not
	}
	s.log.addOutgoing(ctx, "%s: %T %s, %v %v", s.name, e, text, ctx.Value(statsKey("rpc "+s.name)), e.IsClient())
}

// runClient makes the call as a generated stub would, and returns what the client sees.
func (s callScript) runClient(t *testing.T, cc grpc.ClientConnInterface, id int, log *callLog) string {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	if s.deadline {
		ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "id", fmt.Sprint(id), "script", strings.Join(s.handler, " "))
	ctx = metadata.AppendToOutgoingContext(ctx, s.metadata...)
	var header, trailer metadata.MD
	var from peer.Peer
	finished := make(chan error, 1)
	opts := append(s.options(), grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from), grpc.OnFinish(func(err error) { finished <- err }))
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	ended := func() string {
		err := testnet.Receive(t, "OnFinish", finished)
		if s.deadline {
			return deadlineText(err)
		}
		say("finished: %s, header %s, trailer %s, peer %v", statusText(err), mdText(header), mdText(trailer), from.Addr != nil && from.LocalAddr != nil)
		return strings.Join(lines, "\n")
	}
	if s.kind == 0 && len(s.sizes) == 1 {
		out := new(wrapperspb.BytesValue)
		err := cc.Invoke(ctx, s.path, wrapperspb.Bytes(pattern(s.sizes[0])), out, opts...)
		say("%s, %d bytes, right %v", statusText(err), len(out.Value), len(out.Value) == 0 || reflect.DeepEqual(out.Value, pattern(len(out.Value))))
		return ended()
	}
	desc := &grpc.StreamDesc{ClientStreams: s.kind&1 != 0, ServerStreams: s.kind&2 != 0}
	stream, err := cc.NewStream(ctx, desc, s.path, opts...)
	if err != nil {
		say("NewStream: %s", statusText(err))
		return ended()
	}
	for i, n := range s.sizes {
		if err := stream.SendMsg(wrapperspb.Bytes(pattern(n))); err != nil && err != io.EOF {
			say("SendMsg %d: %s", i, statusText(err))
			return ended()
		} else if err != nil {
			break // the status says why
		}
	}
	if s.cancel < 0 {
		_ = stream.CloseSend()
	}
	for got := 0; ; got++ {
		if got == s.cancel {
			testnet.Eventually(t, "SendMsg's return", func() bool { return log.has(fmt.Sprint(id), "send:10: ") })
			cancel()
		}
		in := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(in); err != nil {
			say("end: %s", statusText(err))
			break
		}
		say("message of %d bytes, right %v", len(in.Value), len(in.Value) == 0 || reflect.DeepEqual(in.Value, pattern(len(in.Value))))
		if !desc.ServerStreams {
			break
		}
	}
	if s.cancel < 0 && !s.deadline {
		header, err := stream.Header()
		say("header: %s %s", mdText(header), statusText(err))
		say("trailer: %s", mdText(stream.Trailer()))
	}
	return ended()
}

// onlyAnswer takes a second answer out of calls that must have one: grpc-go does not finish such a call,
// and a Client does.
func onlyAnswer(s callScript) callScript {
	if s.kind&1 == 0 {
		s.sizes = s.sizes[:min(len(s.sizes), 1)]
	}
	sent := false
	s.handler = slices.DeleteFunc(s.handler, func(word string) bool {
		again := s.kind&2 == 0 && sent && strings.HasPrefix(word, "send:")
		sent = sent || strings.HasPrefix(word, "send:")
		return again
	})
	return s
}

// TestClientDiffers makes random calls. Run with -count for more of them: each run has another seed.
func TestClientDiffers(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, watched %v", secure, watched), func(t *testing.T) {
				testnet.NoLeaks(t)
				seed := rand.Uint64()
				calls := make([]callScript, 60)
				r := rand.New(rand.NewPCG(seed, 0))
				for i := range calls {
					calls[i] = onlyAnswer(randomCall(r))
				}
				for _, server := range differingServers[:2] {
					compareClients(t, fmt.Sprintf("%s, seed %d", server.name, seed), calls, secure, watched, server.listen,
						func(log *callLog, creds credentials.TransportCredentials) differingServer {
							return server.make(t, settingsCases[0], log, creds)
						})
				}
			})
		}
	}
}

// sorted returns the log with the events of stats handlers in another order: grpc-go reports a header
// and trailers when they come, which may be before or behind the messages. How many messages were sent
// before a server has answered is left out: that is chance. So is the end of a call, which grpc-go
// reports without its error if SendMsg has noticed it first: many requests, or a method that there
// isn't. The interceptors' lines stay.
func (l *callLog) sorted() *callLog {
	to := &callLog{lines: make(map[string][]string)}
	for id, lines := range l.copied().lines {
		isEvent := func(line string) bool { return strings.Contains(line, ": *stats.") }
		events := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			one := strings.Contains(line, "/Script/Unary") || strings.Contains(line, "/Script/Download")
			return !isEvent(line) || strings.Contains(line, ": *stats.OutPayload ") || !one && strings.Contains(line, ": *stats.End ")
		})
		slices.Sort(events)
		to.lines[id] = append(slices.DeleteFunc(slices.Clone(lines), isEvent), events...)
	}
	return to
}

// compareClients makes the calls with clients of each kind.
func compareClients(t *testing.T, name string, calls []callScript, secure, watched bool, listen testnet.ListenFunc,
	makeServer func(*callLog, credentials.TransportCredentials) differingServer) {
	creds := [2]credentials.TransportCredentials{insecure.NewCredentials(), insecure.NewCredentials()}
	if secure {
		server, client := testnet.TLS(t)
		creds[0], creds[1] = credentials.NewTLS(server), credentials.NewTLS(client)
	}
	var wantLog, wantOwn *callLog
	var want []string
	for _, kind := range differingClients {
		log, own := &callLog{lines: make(map[string][]string)}, &callLog{lines: make(map[string][]string)}
		lis := testnet.Listen(t, listen, testnet.TCP4)
		srv := makeServer(log, creds[0])
		srv.RegisterService(scriptService(log), nil)
		served := goServe(func() error { return srv.Serve(lis) })
		of := own
		if !watched {
			of = nil
		}
		cc, err := kind.make(lis.Addr().String(), creds[1], of)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, call := range calls {
			got = append(got, call.runClient(t, cc, i, log))
		}
		if err := cc.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if err := cc.Close(); !isClosing(err) {
			t.Errorf("%s: Close returned %v the second time", name, err)
		}
		stopped := make(chan bool)
		go func() { srv.GracefulStop(); close(stopped) }()
		testnet.Receive(t, "GracefulStop", stopped)
		if err := testnet.Receive(t, "Serve returning", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if want == nil {
			want, wantLog, wantOwn = got, log, own
			continue
		}
		compareLogs(t, name, calls, got, want, log, wantLog)
		if !t.Failed() {
			compareLogs(t, name+", the client's log", calls, got, want, own.sorted(), wantOwn.sorted())
		}
	}
}
