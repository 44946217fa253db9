package grpcadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter/internal/innards"
)

// This file proves, once per process, that this package can stand in for servers of the grpc-go
// version that the program runs with:
//
//  1. Types: innards.Check.
//  2. Contexts: this package knows what grpc-go puts into them, and channelz, which counts calls, is
//     off.
//  3. Stops: the server's own Stop and GracefulStop end the calls served here.
//  4. Calls: a server with all kinds of hooks and limits gets the same calls through grpc-go's
//     transport and past it. The client's results, and everything that the server sees, must be the
//     same.
//
// A grpc.ClientConn makes the calls, on connections in memory.

// probeTime is how long the probe may take. It is over within milliseconds unless a call hangs.
const probeTime = 20 * time.Second

// proof is the result of probe.
var proof struct {
	once sync.Once
	keys *innards.Keys
	err  error
}

func proven() (*innards.Keys, error) {
	proof.once.Do(func() { proof.keys, proof.err = probe() })
	return proof.keys, proof.err
}

// probe returns what the contexts of calls must have, or why this package knows grpc-go too little.
func probe() (keys *innards.Keys, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the probe has panicked: %v", p)
		}
	}()
	if err := innards.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	srv := grpc.NewServer()
	log := new(probeLog)
	srv.RegisterService(probeService(log), nil)
	defer srv.Stop()
	if keys, err = findKeys(ctx, srv, log); err != nil {
		return nil, err
	}
	if err := probeStops(ctx, srv, keys); err != nil {
		return nil, fmt.Errorf("stopping a server: %w", err)
	}
	return keys, probeCalls(ctx, keys)
}

// findKeys makes a call to srv, which has no options, and looks at its context.
func findKeys(ctx context.Context, srv *grpc.Server, log *probeLog) (*innards.Keys, error) {
	s, err := openProbe(srv, nil)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if _, err := (probeCall{kind: "Unary", id: "keys", sizes: []int{1}}).play(ctx, s.client); err != nil {
		return nil, err
	}
	if innards.Look(srv).CallsCounted() > 0 {
		return nil, errors.New("channelz is on: something imports google.golang.org/grpc/channelz/service")
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	keys, err := innards.FindKeys(log.ctx)
	return &keys, err
}

// A probeServer is a server on a listener in memory, with a client.
type probeServer struct {
	client *grpc.ClientConn
	lis    net.Listener
	past   *WrappedServer // nil: grpc-go's transport serves
	door   *door          // of past
	served chan error     // the result of Serve
}

// openProbe serves srv by grpc-go's transport, or, with keys, past it and without a proof.
func openProbe(srv *grpc.Server, keys *innards.Keys) (s *probeServer, err error) {
	lis := bufconn.Listen(64 << 10)
	s = &probeServer{lis: lis, served: make(chan error, 1)}
	serve := srv.Serve
	if keys != nil {
		s.past = wrap(srv, func(w *wrapping) { w.hidden = true })
		if s.past.decision.Do(func() { err = s.past.openWith(keys) }); err != nil {
			return nil, err
		}
		if s.door = s.past.enter(); s.door == nil {
			return nil, grpc.ErrServerStopped
		}
		serve = func(lis net.Listener) error { defer s.past.leave(); return s.past.inner.Serve(lis) }
	}
	go func() { s.served <- serve(lis) }()
	s.client, err = grpc.NewClient("passthrough:///proof", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	return s, err
}

// close ends the client and the listener, and waits until srv's Serve has returned.
func (s *probeServer) close() {
	s.client.Close()
	s.lis.Close()
	<-s.served
}

// probeStops serves srv, which has no options, past grpc-go's transport, and stops it while a call is
// open: GracefulStop must wait for the call, and Stop must end it.
func probeStops(ctx context.Context, srv *grpc.Server, keys *innards.Keys) error {
	s, err := openProbe(srv, keys)
	if err != nil {
		return err
	}
	defer s.past.inner.Stop() // whatever has happened
	defer s.client.Close()
	stream, err := s.client.NewStream(ctx, &bothWays, probePath+"Both")
	for range 2 {
		if err == nil {
			err = echoed(stream, 10)
		}
	}
	if err != nil {
		return err
	}
	graceful, stopped := make(chan error, 1), make(chan error, 1)
	go func() { srv.GracefulStop(); graceful <- nil }()
	if err := await(ctx, s.door.closed); err != nil || s.door.kind != gracefulStop {
		return fmt.Errorf("GracefulStop was taken for another call (%v)", err)
	}
	if err := echoed(stream, 10); err != nil {
		return fmt.Errorf("GracefulStop has ended an open call: %w", err)
	}
	select {
	case <-graceful:
		return errors.New("GracefulStop has not waited for an open call")
	default:
	}
	go func() { srv.Stop(); stopped <- nil }()
	for _, c := range []chan error{stopped, graceful, s.served} {
		select {
		case err = <-c:
		case <-time.After(probeTime / 4):
			err = errors.New("Stop does not end a GracefulStop")
		}
		if err != nil {
			return err
		}
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
		return fmt.Errorf("a call that Stop has ended: %v", err)
	}
	return nil
}

func await(ctx context.Context, c chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// probeCalls makes calls to two servers, which grpc-go's transport and an inner server serve.
func probeCalls(ctx context.Context, keys *innards.Keys) error {
	var results [2]map[string]string
	for i, keys := range []*innards.Keys{nil, keys} {
		log := &probeLog{lines: make(map[string][]string)}
		srv := grpc.NewServer(log.options()...)
		srv.RegisterService(probeService(log), nil)
		var err error
		if results[i], err = playAll(ctx, srv, log, keys); err != nil {
			return err
		}
	}
	if len(results[0]) != len(results[1]) {
		return fmt.Errorf("%d calls were seen past grpc-go's transport instead of %d", len(results[1]), len(results[0]))
	}
	for id, want := range results[0] {
		if got := results[1][id]; got != want {
			return fmt.Errorf("call %q has another result past grpc-go's transport: %s", id, difference(got, want))
		}
	}
	return nil
}

// difference returns the first lines that differ.
func difference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("%.300q instead of %.300q", a[i], b[min(i, len(b)):min(i+1, len(b))])
		}
	}
	return fmt.Sprintf("%.300q is missing", b[len(a):])
}

// playAll makes all calls to srv, and returns everything that could be seen of each. keys are those of
// openProbe.
func playAll(ctx context.Context, srv *grpc.Server, log *probeLog, keys *innards.Keys) (map[string]string, error) {
	defer srv.Stop()
	defer context.AfterFunc(ctx, srv.Stop)()
	s, err := openProbe(srv, keys)
	if err != nil {
		return nil, err
	}
	defer s.client.Close()
	results := make(map[string]string)
	for _, call := range callsToProbe() {
		if results[call.id], err = call.play(ctx, s.client); err != nil {
			return nil, fmt.Errorf("call %q: %w", call.id, err)
		}
	}
	s.client.Close()
	srv.GracefulStop()
	if err := <-s.served; err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	for id, lines := range log.lines {
		results[id] += strings.Join(lines, "\n")
	}
	return results, nil
}

// A probeCall is a call and what its handler does: see probeLog.handle.
type probeCall struct {
	id      string
	kind    string // the method, or a path
	sizes   []int  // of the client's messages
	handler string
	gzip    bool
	details []string // pairs of metadata
}

const probePath = "/percore.proof.Calls/"

var bothWays = grpc.StreamDesc{StreamName: "Both", ClientStreams: true, ServerStreams: true}

// callsToProbe returns the calls that are made.
func callsToProbe() []probeCall {
	calls := []probeCall{
		{id: "unary", kind: "Unary", sizes: []int{100}, handler: "info header trailer send:100", details: []string{"k", "v", "k", "w", "k-bin", "\x00\xff"}},
		{id: "error", kind: "Unary", sizes: []int{0}, handler: "header trailer fail"},
		{id: "plain error", kind: "Unary", sizes: []int{0}, handler: "fail-plain"},
		{id: "too long to receive", kind: "Unary", sizes: []int{probeLimit + 1}, handler: "send:1"},
		{id: "too long to send", kind: "Unary", sizes: []int{1}, handler: "send:" + fmt.Sprint(probeLimit+1)},
		{id: "too many", kind: "Unary", sizes: []int{1, 1}, handler: "send:1"},
		{id: "upload", kind: "Upload", sizes: []int{1, 1000, 0}, handler: "recv recv recv recv-end trailer send:5"},
		{id: "download", kind: "Download", sizes: []int{9}, handler: "recv send-header send:0 send:70 prepared:50 trailer"},
		{id: "both", kind: "Both", sizes: []int{5, 6}, handler: "header recv send:7 recv send:8 recv-end fail"},
		{id: "refused by the tap", kind: "Unary", sizes: []int{1}, handler: "send:1", details: []string{"tap", "no"}},
		{id: "unknown", kind: "/percore.proof.None/None", sizes: []int{1}, handler: "recv send:3"},
		{id: "malformed", kind: "/x", handler: "send:3"},
	}
	if encoding.GetCompressor("gzip") != nil { // it must not be registered by a proof
		calls = append(calls,
			probeCall{id: "gzip", kind: "Both", sizes: []int{5, 600}, handler: "recv recv send:700 prepared:800 send:0", gzip: true},
			probeCall{id: "compressed answer", kind: "Unary", sizes: []int{5}, handler: "compress:gzip send:900"},
			probeCall{id: "plain answer", kind: "Both", sizes: []int{5}, handler: "compress:identity recv send:900 compress:gzip", gzip: true},
			probeCall{id: "no such compressor", kind: "Unary", sizes: []int{5}, handler: "compress:tea send:900", gzip: true},
		)
	}
	return calls
}

const probeLimit = 10_000 // bytes of a message

// play makes the call, and returns what the client sees.
func (p probeCall) play(ctx context.Context, cc *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, append(p.details, "id", p.id, "handler", p.handler)...)
	path := p.kind
	if !strings.HasPrefix(path, "/") {
		path = probePath + path
	}
	var opts []grpc.CallOption
	if p.gzip {
		opts = append(opts, grpc.UseCompressor("gzip"))
	}
	stream, err := cc.NewStream(ctx, &bothWays, path, opts...)
	if err != nil {
		return "", err
	}
	for _, n := range p.sizes {
		if stream.SendMsg(wrapperspb.Bytes(make([]byte, n))) != nil {
			break // the status says why
		}
	}
	_ = stream.CloseSend()
	var seen strings.Builder
	for {
		in := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(in)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(&seen, "end: %s\n", errorText(err))
			break
		}
		fmt.Fprintf(&seen, "message of %d bytes\n", len(in.Value))
	}
	header, err := stream.Header()
	fmt.Fprintf(&seen, "header: %v, %v\ntrailer: %v\n", header, err, stream.Trailer())
	return seen.String(), nil
}

// echoed sends a message and waits for one.
func echoed(stream grpc.ClientStream, n int) error {
	if err := stream.SendMsg(wrapperspb.Bytes(bytes.Repeat([]byte{1}, n))); err != nil {
		return err
	}
	return stream.RecvMsg(new(wrapperspb.BytesValue))
}

// errorText describes an error with all that a status has.
func errorText(err error) string {
	if err == nil || err == io.EOF {
		return fmt.Sprint(err)
	}
	st, ok := status.FromError(err)
	return fmt.Sprintf("%v, status %t: %v %q, %d details", err, ok, st.Code(), st.Message(), len(st.Details()))
}

// probeLog is what a server has seen, by call.
type probeLog struct {
	mu    sync.Mutex
	lines map[string][]string // nil: nothing is logged
	ctx   context.Context     // of the last handler
}

func (l *probeLog) add(ctx context.Context, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		return
	}
	id := strings.Join(metadata.ValueFromIncomingContext(ctx, "id"), " ")
	l.lines[id] = append(l.lines[id], fmt.Sprintf(format, args...))
}

// options returns options of all kinds.
func (l *probeLog) options() []grpc.ServerOption {
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			l.add(ctx, "%s %s before %T", name, info.FullMethod, req)
			out, err := handler(context.WithValue(ctx, probeKey(name), name), req)
			l.add(ctx, "%s after: %T %s", name, out, errorText(err))
			return out, err
		}
	}
	stream := func(name string) grpc.StreamServerInterceptor {
		return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			l.add(ss.Context(), "%s before %+v", name, *info)
			err := handler(srv, ss)
			l.add(ss.Context(), "%s after: %s", name, errorText(err))
			return err
		}
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(unary("u1")), grpc.ChainUnaryInterceptor(unary("u2"), unary("u3")),
		grpc.StreamInterceptor(stream("s1")), grpc.ChainStreamInterceptor(stream("s2"), stream("s3")),
		grpc.StatsHandler(probeStats{l, "x"}), grpc.StatsHandler(probeStats{l, "y"}),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			l.add(ctx, "tap %s %v", info.FullMethodName, info.Header)
			if len(info.Header["tap"]) > 0 {
				return nil, status.Error(codes.ResourceExhausted, "the tap is closed")
			}
			return context.WithValue(ctx, probeKey("tap"), "open"), nil
		}),
		grpc.MaxRecvMsgSize(probeLimit), grpc.MaxSendMsgSize(probeLimit),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			_, err := l.handle(stream.Context(), stream)
			return err
		}),
	}
}

type probeKey string

// probeStats is a stats handler that logs.
type probeStats struct {
	log  *probeLog
	name string
}

// TagConn implements [stats.Handler].
func (s probeStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, probeKey("conn "+s.name), s.name)
}

// HandleConn implements [stats.Handler].
func (s probeStats) HandleConn(ctx context.Context, e stats.ConnStats) {
	s.log.add(ctx, "%s: %s, tagged %v", s.name, eventText(e), ctx.Value(probeKey("conn "+s.name)))
}

// TagRPC implements [stats.Handler].
func (s probeStats) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	s.log.add(ctx, "%s: tag %+v", s.name, *info)
	return context.WithValue(ctx, probeKey("call "+s.name), s.name)
}

// HandleRPC implements [stats.Handler].
func (s probeStats) HandleRPC(ctx context.Context, e stats.RPCStats) {
	s.log.add(ctx, "%s: %s, tagged %v", s.name, eventText(e), ctx.Value(probeKey("call "+s.name)))
}

// eventText describes an event by all its fields but those that differ from call to call.
func eventText(e any) string {
	v := reflect.ValueOf(e).Elem()
	text := v.Type().String()
	for i := range v.NumField() {
		switch value := v.Field(i).Interface().(type) {
		case time.Time:
			text += fmt.Sprintf(" time %t", !value.IsZero())
		case net.Addr:
			text += fmt.Sprintf(" address %t", value != nil)
		case error:
			text += " " + errorText(value)
		case *wrapperspb.BytesValue:
			text += fmt.Sprintf(" message of %d", len(value.GetValue()))
		case *grpc.PreparedMsg: // which is compressed earlier, or later
			text += " prepared message"
		default:
			if name := v.Type().Name(); v.Type().Field(i).Name == "WireLength" && (name == "InHeader" || name == "InTrailer") {
				continue // it is 0 here: see docs/DIFFERENCES.md
			}
			text += fmt.Sprintf(" %T %v", value, value)
		}
	}
	return text
}

// probeService returns the service of the calls.
func probeService(log *probeLog) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: strings.Trim(probePath, "/"), HandlerType: (*any)(nil)}
	desc.Methods = []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			handle := func(ctx context.Context, _ any) (any, error) { return log.handle(ctx, nil) }
			if interceptor == nil {
				return handle(ctx, in)
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: probePath + "Unary"}, handle)
		},
	}}
	for name, d := range map[string]grpc.StreamDesc{"Upload": {ClientStreams: true}, "Download": {ServerStreams: true}, "Both": bothWays} {
		d.StreamName = name
		d.Handler = func(_ any, stream grpc.ServerStream) error {
			_, err := log.handle(stream.Context(), stream)
			return err
		}
		desc.Streams = append(desc.Streams, d)
	}
	return desc
}

// handle does what the words of the metadata "handler" say, or sends back what comes if there are none.
// stream is nil for a unary call.
func (l *probeLog) handle(ctx context.Context, stream grpc.ServerStream) (out *wrapperspb.BytesValue, err error) {
	l.mu.Lock()
	l.ctx = ctx
	l.mu.Unlock()
	out = new(wrapperspb.BytesValue)
	words := strings.Fields(strings.Join(metadata.ValueFromIncomingContext(ctx, "handler"), " "))
	for len(words) == 0 && stream != nil {
		if err := stream.RecvMsg(out); err != nil {
			return nil, nil // the end, whatever the reason
		}
		if err := stream.SendMsg(out); err != nil {
			return nil, err
		}
	}
	for _, word := range words {
		name, arg, _ := strings.Cut(word, ":")
		n := 0
		_, _ = fmt.Sscan(arg, &n)
		md := metadata.Pairs(name, "value", name+"-bin", "\x00\xff")
		switch name {
		case "info":
			md, _ := metadata.FromIncomingContext(ctx)
			method, _ := grpc.Method(ctx)
			_, hasDeadline := ctx.Deadline()
			p, ok := peer.FromContext(ctx)
			names, compressorsErr := grpc.ClientSupportedCompressors(ctx)
			l.add(ctx, "%v %s %v %t, %v %v, %v %v %v %v", md, method, hasDeadline, ok && p.Addr != nil && p.LocalAddr != nil,
				names, compressorsErr, ctx.Value(probeKey("tap")), ctx.Value(probeKey("conn x")), ctx.Value(probeKey("call y")), ctx.Err())
		case "header":
			err = grpc.SetHeader(ctx, md)
		case "send-header":
			err = stream.SendHeader(md)
		case "trailer":
			err = grpc.SetTrailer(ctx, md)
		case "compress":
			err = grpc.SetSendCompressor(ctx, arg)
			l.add(ctx, "%s: %v", word, err)
			err = nil
		case "recv", "recv-end":
			err = stream.RecvMsg(out)
			l.add(ctx, "%s: %d bytes, %s", word, len(out.Value), errorText(err))
			if name == "recv-end" && err == io.EOF {
				err = nil
			}
		case "send":
			if out = wrapperspb.Bytes(make([]byte, n)); stream != nil {
				err = stream.SendMsg(out)
			}
		case "prepared":
			m := new(grpc.PreparedMsg)
			if err = m.Encode(stream, wrapperspb.Bytes(make([]byte, n))); err == nil {
				err = stream.SendMsg(m)
			}
		case "fail":
			st, _ := status.New(codes.Aborted, "told to: 100% größe\n").WithDetails(durationpb.New(time.Second))
			err = st.Err()
		case "fail-plain":
			err = errors.New("a plain error")
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
