package grpcadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// The tests of this file make the same random calls to a grpc.Server on package net, to a Server, and to
// a grpc.Server past grpc-go's transport, and compare everything that can be seen from outside: what the
// client gets, the order of interceptors and stats events, and what each call in the handler returns.
//
// A call is a script. The handler's part is a list of words in the metadata; the client's part is in
// the fields.

// callScript is a call.
type callScript struct {
	path     string
	kind     int      // 1: the client streams; 2: the server streams
	handler  []string // words: see runScript
	metadata []string // pairs
	sizes    []int    // of the client's messages
	gzip     bool
	subtype  string
	unknown  string // a grpc-encoding that no server has
	cancel   int    // the client cancels when it has got so many messages; -1: never
	deadline bool   // the deadline passes while the handler waits for it
	stub     bool   // the client knows the kind, as generated code does
}

func (s callScript) String() string { return fmt.Sprintf("%+v", struct{ callScript any }{s}) }

// callLog is what has happened at the server, by call.
type callLog struct {
	own bool // of a Server, which needs grpcadapter's functions for compressors

	mu    sync.Mutex
	lines map[string][]string
}

func newCallLog() *callLog { return &callLog{lines: make(map[string][]string)} }

// callID returns the number of the call of a context, at either end.
func callID(ctx context.Context) string {
	sent, _ := metadata.FromOutgoingContext(ctx)
	for _, v := range [][]string{metadata.ValueFromIncomingContext(ctx, "id"), sent["id"]} {
		if len(v) == 1 {
			return v[0]
		}
	}
	return "none"
}

func (l *callLog) add(ctx context.Context, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := callID(ctx)
	l.lines[id] = append(l.lines[id], fmt.Sprintf(format, args...))
}

// copied returns the log as it is now. Events may come later: the end of a connection does.
func (l *callLog) copied() *callLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &callLog{own: l.own, lines: maps.Clone(l.lines)}
}

// has reports whether a call has a line that begins like that.
func (l *callLog) has(id, prefix string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines[id], func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// statusText describes an error with all that a status has.
func statusText(err error) string {
	if err == nil || err == io.EOF {
		return fmt.Sprint(err)
	}
	st, ok := status.FromError(err)
	return fmt.Sprintf("%v %v %q %v", ok, st.Code(), st.Message(), st.Details())
}

// mdText describes metadata, without what differs from connection to connection.
func mdText(md metadata.MD) string {
	names := make([]string, 0, len(md))
	for name, values := range md {
		if name == ":authority" {
			values = []string{"it"}
		}
		names = append(names, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// statsLog is a stats handler that logs.
type statsLog struct {
	name string
	log  *callLog
}

type statsKey string

func (s statsLog) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, statsKey(s.name), info.RemoteAddr != nil && info.LocalAddr != nil)
}

func (s statsLog) HandleConn(ctx context.Context, e stats.ConnStats) {
	s.log.add(context.Background(), "%s: %T, tagged %v, client %v", s.name, e, ctx.Value(statsKey(s.name)), e.IsClient())
}

func (s statsLog) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	info.NameResolutionDelay = false // a client's first call has it, or not
	s.log.add(ctx, "%s: tag %+v", s.name, *info)
	return context.WithValue(ctx, statsKey("rpc "+s.name), info.FullMethodName)
}

func (s statsLog) HandleRPC(ctx context.Context, e stats.RPCStats) {
	if _, ok := e.(*stats.DelayedPickComplete); ok {
		return // the first call has it, or not
	}
	text := serverAddress.ReplaceAllString(eventText(e), "it") // of the authority
	s.log.add(ctx, "%s: *%s, %v", s.name, text, ctx.Value(statsKey("rpc "+s.name)))
}

var serverAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// unaryLog and streamLog are interceptors that log.
func unaryLog(name string, log *callLog) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		log.add(ctx, "%s: %s %T", name, info.FullMethod, req)
		out, err := handler(context.WithValue(ctx, statsKey(name), true), req)
		log.add(ctx, "%s: %T %s", name, out, statusText(err))
		return out, err
	}
}

func streamLog(name string, log *callLog) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		log.add(ss.Context(), "%s: %+v", name, *info)
		err := handler(srv, ss)
		log.add(ss.Context(), "%s: %s", name, statusText(err))
		return err
	}
}

// runScript does what the words of a call's script say, and logs the results. stream is nil for a
// unary call, which returns the size of its answer.
func runScript(ctx context.Context, log *callLog, stream grpc.ServerStream) (size int, err error) {
	p, ok := peer.FromContext(ctx)
	_, hasDeadline := ctx.Deadline()
	method, _ := grpc.Method(ctx)
	log.add(ctx, "handler: peer %v, deadline %v, method %s, ctx %v", ok && p.Addr != nil && p.LocalAddr != nil && p.AuthInfo == nil, hasDeadline, method, ctx.Err())
	for _, word := range strings.Fields(strings.Join(metadata.ValueFromIncomingContext(ctx, "script"), " ")) {
		name, arg, _ := strings.Cut(word, ":")
		n := 0
		_, _ = fmt.Sscan(arg, &n)
		md := metadata.Pairs(arg, "value", arg+"-bin", "\x00\xff"+arg, "grpc-status", "3", ":pseudo", "x")
		var result error
		switch name {
		case "set-header":
			result = grpc.SetHeader(ctx, md)
		case "send-header":
			result = grpc.SendHeader(ctx, md)
		case "set-trailer":
			result = grpc.SetTrailer(ctx, md)
		case "stream-header":
			result = stream.SetHeader(metadata.Pairs(arg, "w"))
		case "stream-send-header":
			result = stream.SendHeader(metadata.Pairs(arg, "w"))
		case "stream-bad-header":
			result = stream.SetHeader(metadata.MD{arg: {"bad\x01"}, "Upper": {"x"}})
			if result != nil { // the one that is found first
				result = status.Error(status.Code(result), "")
			}
		case "stream-trailer":
			stream.SetTrailer(metadata.Pairs(arg, "w"))
		case "compress":
			set := grpc.SetSendCompressor
			if log.own {
				set = SetSendCompressor
			}
			result = set(ctx, arg)
		case "compressors":
			supported := grpc.ClientSupportedCompressors
			if log.own {
				supported = ClientSupportedCompressors
			}
			all, err := supported(ctx)
			result = err
			slices.Sort(all)
			log.add(ctx, "compressors: %v", all)
		case "recv", "recv-on":
			in := new(wrapperspb.BytesValue)
			result = stream.RecvMsg(in)
			log.add(ctx, "got %d bytes", len(in.Value))
		case "send":
			result = stream.SendMsg(wrapperspb.Bytes(pattern(n)))
		case "send-wrong":
			result = stream.SendMsg("no message")
		case "size":
			size = n
		case "await-end":
			<-ctx.Done()
			result = ctx.Err()
		case "deadline":
			<-ctx.Done()
			log.add(ctx, "deadline: %v", ctx.Err() != nil)
			return size, context.DeadlineExceeded
		case "fail":
			st, _ := status.New(codes.Code(n), "told to: 100% größe\n").WithDetails(durationpb.New(time.Duration(n)))
			return size, st.Err()
		case "fail-plain":
			return size, errors.New("a plain error \x80%")
		case "fail-wrapped":
			return size, fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "inside"))
		case "fail-canceled":
			return size, context.Canceled
		case "fail-eof":
			return size, io.EOF
		}
		log.add(ctx, "%s: %s", word, statusText(result))
		switch {
		case stream == nil || result == nil:
		case name == "recv" && result != io.EOF, // grpc-go returns one thing or another later
			strings.HasPrefix(name, "se"):
			return size, result
		}
	}
	return size, nil
}

// handle is the handler of streams.
func (l *callLog) handle(_ any, stream grpc.ServerStream) error {
	_, err := runScript(stream.Context(), l, stream)
	return err
}

// scriptService returns the service of the scripts.
func scriptService(log *callLog) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: "percore.test.Script", HandlerType: (*any)(nil), Metadata: "script.proto"}
	desc.Methods = []grpc.MethodDesc{unaryMethod("/percore.test.Script/Unary", func(ctx context.Context, _ *wrapperspb.BytesValue) (any, error) {
		size, err := runScript(ctx, log, nil)
		if err != nil {
			return nil, err
		}
		return wrapperspb.Bytes(pattern(size)), nil
	})}
	for kind, name := range map[int]string{1: "Upload", 2: "Download", 3: "Both"} {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{
			StreamName: name, ClientStreams: kind&1 != 0, ServerStreams: kind&2 != 0, Handler: log.handle,
		})
	}
	return desc
}

// options returns the options of the call.
func (s callScript) options() (opts []grpc.CallOption) {
	if s.gzip {
		opts = append(opts, grpc.UseCompressor(gzip.Name))
	}
	if s.unknown != "" {
		opts = append(opts, grpc.UseCompressor(s.unknown))
	}
	if s.subtype != "" {
		opts = append(opts, grpc.CallContentSubtype(s.subtype))
	}
	return opts
}

// run makes the call, and returns what the client sees.
func (s callScript) run(t *testing.T, cc grpc.ClientConnInterface, id int, log *callLog) string {
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
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	if s.stub {
		desc = &grpc.StreamDesc{ClientStreams: s.kind&1 != 0, ServerStreams: s.kind&2 != 0}
	}
	if s.stub && s.kind == 0 && len(s.sizes) == 1 {
		out := new(wrapperspb.BytesValue)
		err := cc.Invoke(ctx, s.path, wrapperspb.Bytes(pattern(s.sizes[0])), out, opts...)
		say("%s, %s", statusText(err), patternText(out))
		return ended()
	}
	stream, err := cc.NewStream(ctx, desc, s.path, opts...)
	if err != nil {
		say("NewStream: %s", statusText(err))
		return ended()
	}
	for i, n := range s.sizes {
		if err := stream.SendMsg(wrapperspb.Bytes(pattern(n))); err == io.EOF {
			break // the status says why
		} else if err != nil {
			say("SendMsg %d: %s", i, statusText(err))
			return ended()
		}
	}
	if s.cancel < 0 {
		_ = stream.CloseSend()
	}
	for got := 0; ; got++ {
		if got == s.cancel {
			// The message may be here before SendMsg has returned, which would fail if its call was cancelled.
			testnet.Eventually(t, "SendMsg's return", func() bool { return log.has(fmt.Sprint(id), "send:10: ") })
			cancel()
		}
		in := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(in); err != nil {
			say("end: %s", statusText(err))
			break
		}
		if say("message of %s", patternText(in)); !desc.ServerStreams {
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

// patternText describes a message.
func patternText(m *wrapperspb.BytesValue) string {
	return fmt.Sprintf("%d bytes, right %v", len(m.Value), bytes.Equal(m.Value, pattern(len(m.Value))))
}

// deadlineText describes the end of a call whose deadline passes: the client's or the server's is first.
func deadlineText(err error) string { return "end: " + status.Code(err).String() }

// randomCalls makes scripts up.
func randomCalls(seed uint64, n int) []callScript {
	calls, r := make([]callScript, n), rand.New(rand.NewPCG(seed, 0))
	for i := range calls {
		calls[i] = randomCall(r)
	}
	return calls
}

// randomCall makes a script up.
func randomCall(r *rand.Rand) callScript {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	size := func() int { return []int{0, 1, 100, 1000, 2000, 20_000, 70_000}[r.IntN(7)] }
	kind := r.IntN(4)
	s := callScript{
		path: "/percore.test.Script/" + []string{"Unary", "Upload", "Download", "Both"}[kind], kind: kind, cancel: -1,
	}
	for range r.IntN(3) {
		s.metadata = append(s.metadata, pick("a", "b", "c"), pick("1", "two words", ""))
	}
	if r.IntN(4) == 0 {
		s.metadata = append(s.metadata, "x-bin", pick("", "\x00", "\xff\xfe", "abc"))
	}
	messages := 1
	if kind&1 != 0 || r.IntN(10) == 0 {
		messages = r.IntN(4)
	}
	for range messages {
		s.sizes = append(s.sizes, size())
	}
	s.gzip = r.IntN(4) == 0
	switch r.IntN(40) {
	case 0:
		s.path = pick("/percore.test.Script/None", "/none/None", "/a/b/c", "/x", "//")
	case 1:
		s.subtype = "proto"
	case 2:
		s.subtype = "reversed"
	case 3:
		s.unknown = "unheard-of"
	case 4:
		s.metadata = append(s.metadata, "host", pick("one", "two"))
	}
	unary := []string{"set-header:h1", "set-header:h2", "send-header:h3", "set-trailer:t1", "set-trailer:t2", "compress:gzip",
		"compress:identity", "compress:none", "compressors", fmt.Sprint("size:", size())}
	ends := []string{"", "", "", fmt.Sprint("fail:", r.IntN(18)), "fail-plain", "fail-wrapped", "fail-canceled", "fail-eof"}
	words := unary
	if kind != 0 {
		words = append(words, "stream-header:s1", "stream-send-header:s2", "stream-bad-header:s3", "stream-trailer:s4",
			"recv", "recv", "recv", "recv", "recv")
		for range 6 {
			words = append(words, fmt.Sprint("send:", size()))
		}
		if r.IntN(10) == 0 {
			words = append(words, "send-wrong")
		}
	}
	if kind == 2 {
		s.handler = append(s.handler, "recv")
	}
	for range r.IntN(10) {
		s.handler = append(s.handler, pick(words...))
	}
	switch {
	case kind == 3 && r.IntN(8) == 0:
		s.handler, s.cancel = []string{"recv", "send:10", "await-end", "recv-on", "set-header:x", "set-trailer:y", "send:1"}, 1
		s.sizes = []int{1}
	case r.IntN(40) == 0:
		// Nothing else may end this call, since that would happen before the deadline or after it.
		s = callScript{path: "/percore.test.Script/Both", kind: 3, cancel: -1, sizes: []int{1}, handler: []string{"deadline"}, deadline: true}
	default:
		s.handler = append(s.handler, pick(ends...))
	}
	return s
}

// reversed is a codec of another name, of the old kind.
type reversed struct{}

func (reversed) Marshal(v any) ([]byte, error) {
	in, ok := v.(*wrapperspb.BytesValue)
	if !ok {
		return nil, fmt.Errorf("not a message: %T", v)
	}
	b := slices.Clone(in.Value)
	slices.Reverse(b)
	return b, nil
}

func (reversed) Unmarshal(p []byte, v any) error {
	b := slices.Clone(p)
	slices.Reverse(b)
	v.(*wrapperspb.BytesValue).Value = b
	return nil
}

func (reversed) Name() string { return "reversed" }

func init() { encoding.RegisterCodec(reversed{}) }

// A settingsCase is a way to set servers up.
type settingsCase struct {
	name string
	go_  func(*callLog) []grpc.ServerOption
	own  func(*callLog) []Option
}

var settingsCases = []settingsCase{
	{
		name: "nothing",
		go_:  func(*callLog) []grpc.ServerOption { return nil },
		own:  func(*callLog) []Option { return nil },
	},
	{
		name: "interceptors and stats",
		go_: func(l *callLog) []grpc.ServerOption {
			return []grpc.ServerOption{
				grpc.ChainUnaryInterceptor(unaryLog("u2", l), unaryLog("u3", l)), grpc.UnaryInterceptor(unaryLog("u1", l)),
				grpc.ChainStreamInterceptor(streamLog("s2", l)), grpc.ChainStreamInterceptor(streamLog("s3", l)),
				grpc.StreamInterceptor(streamLog("s1", l)),
				grpc.StatsHandler(statsLog{"x", l}), grpc.StatsHandler(statsLog{"y", l}),
			}
		},
		own: func(l *callLog) []Option {
			return []Option{
				ChainUnaryInterceptor(unaryLog("u1", l), unaryLog("u2", l), unaryLog("u3", l)),
				ChainStreamInterceptor(streamLog("s1", l), streamLog("s2", l)), ChainStreamInterceptor(streamLog("s3", l)),
				StatsHandler(statsLog{"x", l}), StatsHandler(statsLog{"y", l}),
			}
		},
	},
	{
		name: "limits and an unknown handler",
		go_: func(l *callLog) []grpc.ServerOption {
			return []grpc.ServerOption{grpc.MaxRecvMsgSize(15000), grpc.MaxSendMsgSize(1500), grpc.StatsHandler(statsLog{"x", l}),
				grpc.UnknownServiceHandler(l.handle)}
		},
		own: func(l *callLog) []Option {
			return []Option{MaxRecvMsgSize(15000), MaxSendMsgSize(1500), StatsHandler(statsLog{"x", l}),
				UnknownServiceHandler(l.handle)}
		},
	},
}

// TestServerDiffers makes random calls. Run with -count for more of them: each run has another seed.
func TestServerDiffers(t *testing.T) {
	for _, settings := range settingsCases {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", settings.name, secure), func(t *testing.T) {
				testnet.NoLeaks(t)
				seed := rand.Uint64()
				calls := randomCalls(seed, 60)
				compareServers(t, seed, settings, calls, secure)
			})
		}
	}
}

// compareServers makes the calls to servers of each kind.
func compareServers(t *testing.T, seed uint64, settings settingsCase, calls []callScript, secure bool) {
	serverCreds, clientCreds := credentialsOf(t, secure)
	var wantLog *callLog
	var want []string
	for i, kind := range serverKinds {
		log := newCallLog()
		log.own = kind.name == "NewServer"
		srv := kind.make(append(settings.go_(log), grpc.Creds(serverCreds)), append(settings.own(log), Creds(serverCreds)))
		got := playCalls(t, kind.listen, srv, log, calls, func(lis net.Listener) differingClient {
			return dialServer(t, lis, grpc.WithTransportCredentials(clientCreds))
		})
		if i == 0 {
			want, wantLog = got, log
			continue
		}
		compareLogs(t, fmt.Sprintf("%s, seed %d", kind.name, seed), calls, got, want, log, wantLog)
	}
}

// playCalls makes the calls to a server, and returns what the client sees.
func playCalls(t *testing.T, listen testnet.ListenFunc, srv testServer, log *callLog, calls []callScript,
	dial func(net.Listener) differingClient) (seen []string) {
	lis := testnet.Listen(t, listen, testnet.TCP4)
	srv.RegisterService(scriptService(log), nil)
	served := goServe(func() error { return srv.Serve(lis) })
	cc := dial(lis)
	for i, call := range calls {
		seen = append(seen, call.run(t, cc, i, log))
	}
	if err := cc.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := cc.Close(); !isClosing(err) {
		t.Errorf("Close returned %v the second time", err)
	}
	testnet.Within(t, "GracefulStop", srv.GracefulStop)
	if err := testnet.Receive(t, "Serve returning", served); err != nil {
		t.Errorf("Serve: %v", err)
	}
	return seen
}

// compareLogs compares the results of calls with the right ones.
func compareLogs(t *testing.T, name string, calls []callScript, got, want []string, gotLog, wantLog *callLog) {
	for i, call := range calls {
		if got[i] != want[i] {
			t.Errorf("%s, call %d, %v: the client got\n%s\nwant\n%s", name, i, call, got[i], want[i])
		}
		id := fmt.Sprint(i)
		if got, want := strings.Join(gotLog.lines[id], "\n"), strings.Join(wantLog.lines[id], "\n"); got != want && !call.deadline {
			t.Errorf("%s, call %d, %v: at the server\n%s\nwant\n%s", name, i, call, got, want)
		}
		if t.Failed() {
			return
		}
	}
	if got, want := strings.Join(gotLog.lines["none"], "\n"), strings.Join(wantLog.lines["none"], "\n"); got != want {
		t.Errorf("%s: the events of connections are\n%s\nwant\n%s", name, got, want)
	}
}
