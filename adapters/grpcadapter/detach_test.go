package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// watches is a service that Detach was designed with: a call's first message names what it watches, and
// the test sends what comes of it.
type watches struct {
	t  testing.TB
	do func(key string, stream grpc.ServerStream) error // nil: register the Answer

	mu      sync.Mutex
	streams map[string]*Answer
	ends    map[string]chan error
}

func newWatches(t testing.TB) *watches {
	return &watches{t: t, streams: make(map[string]*Answer), ends: make(map[string]chan error)}
}

func (w *watches) desc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "Watches", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Watch", ServerStreams: true, Handler: w.watch},
		{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: w.watch},
	}}
}

func (w *watches) watch(_ any, stream grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	key := string(in.Value)
	if w.do != nil {
		return w.do(key, stream)
	}
	return Detach(stream, func(s *Answer) { w.register(key, s) })
}

func (w *watches) register(key string, s *Answer) {
	ended := make(chan error, 1)
	s.OnEnd(func(err error) { ended <- err })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[key], w.ends[key] = s, ended
}

// stream returns the Answer of a key, once it is there.
func (w *watches) stream(key string) (s *Answer) {
	w.t.Helper()
	testnet.Eventually(w.t, "the Answer "+key, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		s = w.streams[key]
		return s != nil
	})
	return s
}

func (w *watches) ended(key string) error {
	w.t.Helper()
	w.mu.Lock()
	ended := w.ends[key]
	w.mu.Unlock()
	return testnet.Receive(w.t, "the end of "+key, ended)
}

// open opens a watch.
func (w *watches) open(ctx context.Context, cc grpc.ClientConnInterface, key string) grpc.ClientStream {
	w.t.Helper()
	stream, err := w.tryOpen(ctx, cc, key)
	if err != nil {
		w.t.Fatalf("opening %s: %v", key, err)
	}
	return stream
}

func (w *watches) tryOpen(ctx context.Context, cc grpc.ClientConnInterface, key string) (grpc.ClientStream, error) {
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/Watches/Watch")
	if err == nil {
		err = stream.SendMsg(wrapperspb.Bytes([]byte(key)))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	return stream, err
}

// next returns what a client gets next.
func next(stream grpc.ClientStream) string {
	out := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(out); err != nil {
		return statusText(err)
	}
	return string(out.Value)
}

// text is a message.
func text(format string, args ...any) *wrapperspb.BytesValue {
	return wrapperspb.Bytes(fmt.Appendf(nil, format, args...))
}

// A detachDoor is a way to serve watches.
type detachDoor struct {
	name   string
	waits  bool // without a goroutine
	kind   int  // of serverKinds
	theirs []grpc.ServerOption
	ours   []Option
}

// start serves watches. detached is how many wait without a goroutine.
func (d *detachDoor) start(t testing.TB, lis net.Listener, w *watches, h stats.Handler) (srv testServer, detached func() int) {
	theirs, ours := d.theirs, append(d.ours, StatsHandler(h))
	if h != nil {
		theirs = append(theirs, grpc.StatsHandler(h))
	}
	srv = serverKinds[d.kind].make(theirs, ours)
	serveOn(t, lis, srv, w.desc())
	if own, ok := srv.(ownServer); ok {
		detached = func() int { return own.Stats().Detached }
	}
	return srv, detached
}

// startWatches serves watches with NewServer.
func startWatches(t testing.TB, lis net.Listener, w *watches, opts ...Option) *Server {
	srv := NewServer(opts...)
	serveOn(t, lis, srv, w.desc())
	return srv
}

func passOn(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, ss)
}

var detachDoors = []detachDoor{
	{name: "NewServer", waits: true, kind: 1},
	{name: "DetachInterceptors", waits: true, kind: 1, ours: []Option{ChainStreamInterceptor(passOn), DetachInterceptors()}},
	{name: "interceptors", kind: 1, ours: []Option{ChainStreamInterceptor(passOn)}},
	{name: "Wrap", waits: true, kind: 2},
	{
		name: "Wrap, DetachInterceptors", waits: true, kind: 2,
		theirs: []grpc.ServerOption{grpc.StreamInterceptor(passOn)}, ours: []Option{DetachInterceptors()},
	},
	{name: "grpc-go", kind: 0},
}

// A detachFixture is a door that is open.
type detachFixture struct {
	detachDoor
	t        *testing.T
	w        *watches
	srv      testServer
	cc       *grpc.ClientConn
	detached func() int
}

func (f *detachFixture) open(key string) grpc.ClientStream {
	return f.w.open(callContext(f.t), f.cc, key)
}

// awaitDetached waits until n calls are detached, if this door has such.
func (f *detachFixture) awaitDetached(n int) {
	f.t.Helper()
	if f.waits {
		testnet.Eventually(f.t, fmt.Sprintf("%d detached calls", n), func() bool { return f.detached() == n })
	}
}

func eachDetachDoor(t *testing.T, do func(t *testing.T, f *detachFixture)) { eachDoorWith(t, nil, do) }

func eachDoorWith(t *testing.T, h stats.Handler, do func(t *testing.T, f *detachFixture)) {
	for _, door := range detachDoors {
		t.Run(door.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			f := &detachFixture{detachDoor: door, t: t, w: newWatches(t)}
			f.srv, f.detached = door.start(t, lis, f.w, h)
			f.cc = dialServer(t, lis)
			do(t, f)
		})
	}
}

// TestDetach: what the client gets is the same behind each door.
func TestDetach(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		for i, end := range []error{nil, status.Error(codes.NotFound, "no such key"), errors.New("other"), context.DeadlineExceeded} {
			key := fmt.Sprint(i)
			client := f.open(key)
			s := f.w.stream(key)
			f.awaitDetached(1)
			for j := range 5 {
				if err := s.SendMsg(text("message %d", j)); err != nil {
					t.Fatal(err)
				}
				if got, want := next(client), fmt.Sprintf("message %d", j); got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			if err := s.Context().Err(); err != nil {
				t.Errorf("the context of an Answer that waits: %v", err)
			}
			for j := range 5 {
				s.SendMsg(text("last %d", j))
			}
			s.CloseWithError(end)
			s.CloseWithError(errors.New("a second Close"))
			if err := s.SendMsg(text("behind")); err == nil {
				t.Error("SendMsg after Close succeeded")
			}
			for j := range 5 {
				if got, want := next(client), fmt.Sprintf("last %d", j); got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
			want := []string{"EOF", `true NotFound "no such key" []`, `true Unknown "other" []`, `true DeadlineExceeded "context deadline exceeded" []`}[i]
			if got := next(client); got != want {
				t.Errorf("got the end %s, want %s", got, want)
			}
			err := f.w.ended(key)
			if f.waits && err != nil || !f.waits && err != nil && err != end {
				t.Errorf("OnEnd got %v", err)
			}
			testnet.Receive(t, "the context's end", s.Context().Done())
			f.awaitDetached(0)
			again := make(chan error, 1)
			s.OnEnd(func(err error) { again <- err })
			testnet.Receive(t, "OnEnd after the end", again)
		}
	})
}

// TestDetachMetadata: headers and trailers that are set before Detach, and after, come in their places.
func TestDetachMetadata(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		streams := make(chan grpc.ServerStream, 1)
		f.w.do = func(key string, stream grpc.ServerStream) error {
			_ = stream.SetHeader(metadata.Pairs("early", "1"))
			stream.SetTrailer(metadata.Pairs("tail", "1"))
			return Detach(stream, func(s *Answer) {
				f.w.register(key, s)
				streams <- stream
			})
		}
		client := f.open("key")
		stream := testnet.Receive(t, "the stream", streams)
		s := f.w.stream("key")
		f.awaitDetached(1)
		if err := stream.SetHeader(metadata.Pairs("late", "2")); err != nil {
			t.Error(err)
		}
		s.SendMsg(text("message"))
		if got := next(client); got != "message" {
			t.Fatalf("got %q", got)
		}
		stream.SetTrailer(metadata.Pairs("tail", "2"))
		s.Close()
		if got := next(client); got != "EOF" {
			t.Errorf("got %q", got)
		}
		header, err := client.Header()
		if err != nil || fmt.Sprint(header["early"], header["late"], client.Trailer()["tail"]) != "[1] [2] [1 2]" {
			t.Errorf("got the header %v, %v, and the trailer %v", header, err, client.Trailer())
		}
	})
}

// TestDetachEnds: a call that the client cancels, whose deadline passes, or that the program aborts.
func TestDetachEnds(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		ctx, cancel := context.WithCancel(callContext(t))
		f.w.open(ctx, f.cc, "cancelled")
		s := f.w.stream("cancelled")
		f.awaitDetached(1)
		cancel()
		if err := f.w.ended("cancelled"); status.Code(err) != codes.Canceled {
			t.Errorf("a call that the client has cancelled: OnEnd got %v", err)
		}
		if err := s.SendMsg(text("late")); status.Code(err) != codes.Canceled {
			t.Errorf("SendMsg returned %v", err)
		}
		s.Close()
		s.Abort(nil)

		for timeout := 100 * time.Millisecond; !f.endsLate(timeout); timeout *= 4 {
			if timeout > testnet.HangTimeout {
				t.Fatalf("the call was not detached within %v", timeout)
			}
		}

		client := f.open("aborted")
		f.w.stream("aborted").Abort(status.Error(codes.DataLoss, "lost"))
		if got := next(client); got != `true DataLoss "lost" []` {
			t.Errorf("an aborted call: got %s", got)
		}
		if err := f.w.ended("aborted"); status.Code(err) != codes.DataLoss {
			t.Errorf("OnEnd got %v", err)
		}
		f.awaitDetached(0)
	})
}

// endsLate checks what ends a call whose deadline passes. It returns false if that was before the call
// was detached, which a busy machine can cause with a short timeout.
func (f *detachFixture) endsLate(timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(callContext(f.t), timeout)
	defer cancel()
	key := "late after " + timeout.String()
	client, err := f.w.tryOpen(ctx, f.cc, key)
	if err == nil || err == io.EOF {
		err = client.RecvMsg(new(wrapperspb.BytesValue))
	}
	if status.Code(err) != codes.DeadlineExceeded {
		f.t.Errorf("got %v at the deadline", err)
	}
	f.w.mu.Lock()
	isDetached := f.w.streams[key] != nil
	f.w.mu.Unlock()
	if !isDetached {
		return false
	}
	if err := f.w.ended(key); status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
		f.t.Errorf("a call whose deadline has passed: OnEnd got %v", err)
	}
	return true
}

// headerGate is a stats handler that holds up the event of a header.
type headerGate struct {
	noStats
	reached, open chan bool
}

func (g *headerGate) HandleRPC(_ context.Context, e stats.RPCStats) {
	if _, ok := e.(*stats.OutHeader); ok {
		close(g.reached)
		<-g.open
	}
}

// TestDetachEndsAtClose: the client cancels a call that is about to send its status. Not all was sent,
// and OnEnd says so.
func TestDetachEndsAtClose(t *testing.T) {
	testnet.NoLeaks(t)
	gate := &headerGate{reached: make(chan bool), open: make(chan bool)}
	streams := make(chan grpc.ServerStream, 1)
	w := newWatches(t)
	w.do = func(key string, stream grpc.ServerStream) error {
		streams <- stream
		return Detach(stream, func(s *Answer) { w.register(key, s) })
	}
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := startWatches(t, lis, w, StatsHandler(gate))
	ctx, cancel := context.WithCancel(callContext(t))
	defer cancel()
	w.open(ctx, dialServer(t, lis), "key")
	s := w.stream("key")
	testnet.Eventually(t, "it is detached", func() bool { return srv.Stats().Detached == 1 })
	stream := testnet.Receive(t, "the stream", streams)
	go stream.SendHeader(metadata.Pairs("k", "v"))
	testnet.Receive(t, "the header", gate.reached)
	s.Close()
	stacks := make([]byte, 1<<20)
	testnet.Eventually(t, "the status waits for the header", func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".(*call).sendStatus(")
	})
	cancel()
	testnet.Receive(t, "the end of the call", s.Context().Done())
	close(gate.open)
	if err := w.ended("key"); status.Code(err) != codes.Canceled {
		t.Errorf("OnEnd got %v, want Canceled", err)
	}
}

// TestDetachFails: a message that can't be sent ends the call as it does in a method.
func TestDetachFails(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		client := f.open("key")
		f.w.stream("key").SendMsg("no message of protobuf")
		if got := next(client); !strings.HasPrefix(got, "true Internal") {
			t.Errorf("got %s", got)
		}
		if err := f.w.ended("key"); status.Code(err) != codes.Internal {
			t.Errorf("OnEnd got %v", err)
		}
		f.awaitDetached(0)
	})
}

// TestDetachInMethod: everything happens before the method returns.
func TestDetachInMethod(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		twice := make(chan error, 1)
		f.w.do = func(key string, stream grpc.ServerStream) error {
			err := Detach(stream, func(s *Answer) {
				f.w.register(key, s)
				s.SendMsg(text("1"))
				s.SendMsg(text("2"))
				s.Close()
			})
			if f.waits {
				twice <- Detach(stream, func(*Answer) { t.Error("a second Detach has begun") })
			}
			if key == "fails" && err == nil {
				return status.Error(codes.Aborted, "behind Detach")
			}
			return err
		}
		client := f.open("key")
		for _, want := range []string{"1", "2", "EOF"} {
			if got := next(client); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if err := f.w.ended("key"); err != nil {
			t.Errorf("OnEnd got %v", err)
		}
		if f.waits {
			if err := testnet.Receive(t, "the second Detach", twice); status.Code(err) != codes.Internal {
				t.Errorf("a second Detach returned %v", err)
			}
			client = f.open("fails")
			if got := next(client); got != `true Aborted "behind Detach" []` {
				t.Errorf("a method that fails behind Detach: got %s", got)
			}
			if err := f.w.ended("fails"); status.Code(err) != codes.Aborted {
				t.Errorf("OnEnd got %v", err)
			}
		}
		f.awaitDetached(0)
	})
}

// TestDetachStops: GracefulStop waits for detached calls, and Stop ends them.
func TestDetachStops(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		one, two := f.open("one"), f.open("two")
		s := f.w.stream("one")
		f.w.stream("two")
		f.awaitDetached(2)
		stopped := make(chan bool)
		go func() { f.srv.GracefulStop(); close(stopped) }()
		for i := range 10 {
			s.SendMsg(text("%d", i))
			if got := next(one); got != fmt.Sprint(i) {
				t.Fatalf("got %s during GracefulStop", got)
			}
		}
		s.Close()
		if got := next(one); got != "EOF" {
			t.Errorf("got %s", got)
		}
		select {
		case <-stopped:
			t.Error("GracefulStop has returned with a call detached")
		default:
		}
		f.srv.Stop()
		testnet.Receive(t, "GracefulStop", stopped)
		if err := f.w.ended("two"); status.Code(err) != codes.Canceled {
			t.Errorf("OnEnd got %v", err)
		}
		if got := next(two); !strings.HasPrefix(got, "true Unavailable") {
			t.Errorf("the client of a call that Stop has ended got %s", got)
		}
		f.awaitDetached(0)
	})
}

// TestDetachDrain: the functions of RegisterOnDrain are called once.
func TestDetachDrain(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			w := newWatches(t)
			srv := kind.makeOwn(nil, nil)
			serveOn(t, lis, srv, w.desc())
			calls := make(chan bool, 10)
			srv.RegisterOnDrain(func() {
				calls <- true
				w.stream("key").CloseWithError(status.Error(codes.Unavailable, "the server is drained"))
			})
			client := w.open(callContext(t), dialServer(t, lis), "key")
			w.stream("key")
			_ = srv.HandOver(context.Background(), lis, nil)
			if got := next(client); got != `true Unavailable "the server is drained" []` {
				t.Errorf("got %s", got)
			}
			srv.GracefulStop()
			srv.RegisterOnDrain(func() { calls <- false })
			if !testnet.Receive(t, "the first function", calls) || testnet.Receive(t, "a late one", calls) || len(calls) > 0 {
				t.Error("the functions of RegisterOnDrain were called in another way")
			}
		})
	}
}

// TestDetachSlow: what is unsent is bounded, and a slow client is dropped if that is wanted.
func TestDetachSlow(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		for _, drop := range []bool{false, true} {
			key := fmt.Sprint(drop)
			client := f.open(key)
			s := f.w.stream(key)
			const limit = 300 << 10
			s.SetLimit(limit, drop)
			f.awaitDetached(1)
			message, sent := wrapperspb.Bytes(pattern(64<<10)), 0
			var err error
			testnet.Eventually(t, "a full Stream", func() bool {
				if err = s.SendMsg(message); err == nil {
					sent++
				}
				if n := s.Unsent(); n > limit {
					t.Fatalf("%d bytes are unsent, want %d at most", n, limit)
				}
				return err != nil
			})
			if err != ErrSlowClient {
				t.Fatalf("got the error %v", err)
			}
			if drop {
				if err := f.w.ended(key); status.Code(err) != codes.ResourceExhausted {
					t.Errorf("OnEnd got %v", err)
				}
				for got := next(client); ; got = next(client) {
					if !strings.HasPrefix(got, "true ") {
						continue
					}
					if !strings.HasPrefix(got, "true Canceled") && !strings.HasPrefix(got, "true ResourceExhausted") {
						t.Errorf("the client got %s", got)
					}
					break
				}
			} else {
				s.Close()
				for range sent {
					if got := next(client); len(got) != 64<<10 {
						t.Fatalf("got %s", got)
					}
				}
				if got := next(client); got != "EOF" {
					t.Errorf("got %s", got)
				}
			}
			f.awaitDetached(0)
		}
	})
}

// TestDetachReceives: another goroutine may receive from a call that is detached.
func TestDetachReceives(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		f.w.do = func(_ string, stream grpc.ServerStream) error {
			return Detach(stream, func(s *Answer) {
				go func() {
					for {
						in := new(wrapperspb.BytesValue)
						if err := stream.RecvMsg(in); err != nil {
							s.Close()
							return
						}
						s.SendMsg(in)
					}
				}()
			})
		}
		client, err := f.cc.NewStream(callContext(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/Watches/Chat")
		if err == nil {
			err = client.SendMsg(text("key"))
		}
		for i := 0; err == nil && i < 100; i++ {
			err = say(client, fmt.Appendf(nil, "%d", i))
		}
		if err == nil {
			err = client.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := next(client); got != "EOF" {
			t.Errorf("got %s", got)
		}
	})
}

// endLog is a stats handler that keeps the names of events.
type endLog struct {
	noStats
	noted
}

func (l *endLog) HandleRPC(_ context.Context, e stats.RPCStats) {
	text := fmt.Sprintf("%T", e)
	if end, ok := e.(*stats.End); ok {
		text += " " + statusText(end.Error)
		if end.EndTime.Sub(end.BeginTime) < 20*time.Millisecond {
			text += " too early"
		}
	}
	l.add(text)
}

// TestDetachReports: stats handlers see the same events behind each door, the end when the call ends.
func TestDetachReports(t *testing.T) {
	for _, end := range []error{nil, status.Error(codes.NotFound, "gone")} {
		log, first := new(endLog), []string(nil)
		eachDoorWith(t, log, func(t *testing.T, f *detachFixture) {
			log.take()
			client := f.open("key")
			s := f.w.stream("key")
			f.awaitDetached(1)
			s.SendMsg(text("1"))
			next(client)
			time.Sleep(20 * time.Millisecond) // what the events' times are compared with
			s.CloseWithError(end)
			next(client)
			last := "*stats.End " + statusText(end)
			testnet.Eventually(t, last, func() bool { return slices.Contains(log.copied(), last) })
			events := log.take()
			if first == nil {
				first = events
			}
			if !slices.Equal(events, first) {
				t.Errorf("got the events\n%q, want those of the first door:\n%q", events, first)
			}
		})
	}
}

// TestDetachInterceptors: without the option an interceptor sees the end of the call, and with it the
// method's return; in both cases its wrapper sees each message.
func TestDetachInterceptors(t *testing.T) {
	for _, test := range []struct {
		opts  []Option
		early bool
	}{{nil, false}, {[]Option{DetachInterceptors()}, true}} {
		testnet.NoLeaks(t)
		returned, counted := make(chan error, 1), new(countingStream)
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		w := newWatches(t)
		srv := startWatches(t, lis, w, append(test.opts, ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			ctx, cancel := context.WithCancel(context.WithValue(ss.Context(), statsKey("of"), "interceptor"))
			defer cancel()
			counted.ServerStream, counted.ctx = ss, ctx
			err := handler(srv, counted)
			returned <- err
			return err
		}))...)
		client := w.open(callContext(t), dialServer(t, lis), "key")
		s := w.stream("key")
		if test.early {
			if err := testnet.Receive(t, "the interceptor", returned); err != nil {
				t.Errorf("the interceptor got %v", err)
			}
		}
		ctx := s.Context()
		if ctx.Value(statsKey("of")) != "interceptor" || ctx.Err() != nil {
			t.Errorf("the context of an Answer has the value %v, and is %v", ctx.Value(statsKey("of")), ctx.Err())
		}
		called := make(chan bool)
		context.AfterFunc(ctx, func() { close(called) })
		s.SendMsg(text("1"))
		s.SendMsg(text("2"))
		next(client)
		next(client)
		if len(returned) > 0 {
			t.Error("the interceptor has returned before the end")
		}
		s.CloseWithError(status.Error(codes.NotFound, "gone"))
		if got := next(client); got != `true NotFound "gone" []` {
			t.Errorf("got %s", got)
		}
		if !test.early {
			if err := testnet.Receive(t, "the interceptor", returned); status.Code(err) != codes.NotFound {
				t.Errorf("the interceptor got %v", err)
			}
		}
		testnet.Receive(t, "the function of AfterFunc", called)
		testnet.Eventually(t, "the end", func() bool { return srv.Stats().Calls == 0 })
		if counted.n != 2 {
			t.Errorf("the wrapper has seen %d messages, want 2", counted.n)
		}
	}
}

// countingStream is an interceptor's wrapper. It isn't safe for concurrent use.
type countingStream struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (s *countingStream) Context() context.Context { return s.ctx }

func (s *countingStream) SendMsg(m any) error {
	s.n++
	return s.ServerStream.SendMsg(m)
}
