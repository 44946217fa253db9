package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/admission"
	"github.com/percore/percore/internal/testnet"
)

// works is a service whose handlers do what the client's message says.
type works struct {
	began   chan string // gets the messages of slow handlers
	proceed chan bool   // lets one return
	running atomic.Int64
	most    atomic.Int64 // of running
}

func newWorks() *works { return &works{began: make(chan string), proceed: make(chan bool)} }

func (w *works) do(what string) (any, error) {
	n := w.running.Add(1)
	defer w.running.Add(-1)
	for m := w.most.Load(); n > m && !w.most.CompareAndSwap(m, n); m = w.most.Load() {
	}
	switch {
	case strings.HasPrefix(what, "slow"):
		w.began <- what
		<-w.proceed
	case what == "work":
		time.Sleep(100 * time.Microsecond)
	case what == "exit":
		runtime.Goexit()
	case what == "fail":
		return nil, status.Error(codes.NotFound, "failed")
	}
	return text("%s", what), nil
}

func (w *works) register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Works", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{unaryMethod("/Works/Unary", func(_ context.Context, in *wrapperspb.BytesValue) (any, error) {
			return w.do(string(in.Value))
		})},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				in := new(wrapperspb.BytesValue)
				if err := stream.RecvMsg(in); err != nil {
					return err
				}
				out, err := w.do(string(in.Value))
				if err != nil {
					return err
				}
				return stream.SendMsg(out)
			},
		}},
	}, nil)
	healthpb.RegisterHealthServer(to, health.NewServer())
}

// workFixture is a server with a limit, and its client.
type workFixture struct {
	*works
	*admission.Limiter
	t   *testing.T
	srv ownServer
	lis net.Listener
	cc  *grpc.ClientConn
}

func eachWorkDoor(t *testing.T, limits admission.Limits, do func(t *testing.T, f *workFixture)) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			f := &workFixture{t: t, works: newWorks(), Limiter: admission.New(limits), lis: testnet.Listen(t, percore.Listen, testnet.TCP4)}
			f.srv = kind.makeOwn(nil, []Option{LimitWork(f.Limiter, nil)})
			f.works.register(f.srv)
			serveOn(t, f.lis, f.srv)
			f.cc = dialServer(t, f.lis)
			do(t, f)
		})
	}
}

// codeText is the code and the text of a status.
func codeText(err error) string {
	st := status.Convert(err)
	return st.Code().String() + ": " + st.Message()
}

// call calls a method, and returns the answer, or the status.
func (f *workFixture) call(ctx context.Context, cc *grpc.ClientConn, method, what string) string {
	if method == "Unary" {
		out := new(wrapperspb.BytesValue)
		if err := cc.Invoke(ctx, "/Works/Unary", text("%s", what), out); err != nil {
			return codeText(err)
		}
		return string(out.Value)
	}
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/Works/Stream")
	if err != nil {
		return codeText(err)
	}
	if err := stream.SendMsg(text("%s", what)); err != nil {
		return codeText(err)
	}
	_ = stream.CloseSend()
	out := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(out); err != nil {
		return codeText(err)
	}
	return string(out.Value)
}

// begin begins a call, whose result comes later.
func (f *workFixture) begin(ctx context.Context, method, what string) chan string {
	done := make(chan string, 1)
	go func() { done <- f.call(ctx, f.cc, method, what) }()
	return done
}

// await waits until so many places are taken, and so many calls wait for one.
func (f *workFixture) await(running, waiting int) {
	f.t.Helper()
	testnet.Eventually(f.t, fmt.Sprintf("%d running methods and %d that wait", running, waiting), func() bool {
		s := f.Limiter.Stats()
		return s.Running == running && s.Waiting == waiting
	})
}

func wantResult(t *testing.T, what string, result chan string, want string) {
	t.Helper()
	if got := testnet.Receive(t, what, result); got != want {
		t.Errorf("%s got %q, want %q", what, got, want)
	}
}

// TestLimitWork: calls wait for their turn, are refused, leave the queue, or are exempt, and however a
// method ends its place is free again.
func TestLimitWork(t *testing.T) {
	limits := admission.Limits{Handlers: 1, Queue: 2, Wait: testnet.HangTimeout}
	eachWorkDoor(t, limits, func(t *testing.T, f *workFixture) {
		for _, method := range []string{"Unary", "Stream"} {
			ctx := callContext(t)
			slow := f.begin(ctx, method, "slow 1")
			testnet.Receive(t, "the first method", f.began)

			cancelled, cancel := context.WithCancel(ctx)
			result := f.begin(cancelled, method, "never")
			f.await(1, 1)
			cancel()
			wantResult(t, "a call that is cancelled", result, "Canceled: context canceled")
			f.await(1, 0)

			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			result = f.begin(short, method, "never")
			if got := testnet.Receive(t, "a call whose deadline passes", result); !strings.HasPrefix(got, "DeadlineExceeded: ") {
				t.Errorf("a call whose deadline has passed got %q", got)
			}
			cancel()
			f.await(1, 0)

			first := f.begin(ctx, method, "slow 2")
			f.await(1, 1)
			second := f.begin(ctx, method, "fail")
			f.await(1, 2)
			if got := f.call(ctx, f.cc, method, "never"); !strings.HasPrefix(got, "ResourceExhausted: grpcadapter: the server has too many calls") {
				t.Errorf("a call that is too much got %q", got)
			}
			if reply, err := healthpb.NewHealthClient(f.cc).Check(ctx, new(healthpb.HealthCheckRequest)); err != nil {
				t.Errorf("a health check got %v, %v", reply, err)
			}
			f.proceed <- true
			wantResult(t, "the first call", slow, "slow 1")
			if got := testnet.Receive(t, "the next method", f.began); got != "slow 2" {
				t.Errorf("the next method to run has %q", got)
			}
			f.proceed <- true
			wantResult(t, "the second call", first, "slow 2")
			wantResult(t, "the third call", second, "NotFound: failed")
			f.await(0, 0)
			f.call(ctx, f.cc, method, "exit") // the goroutine ends, as of a method that panics
			f.await(0, 0)
		}
	})
}

// TestLimitWorkWait: a call that has waited for too long is refused, and the figures say so.
func TestLimitWorkWait(t *testing.T) {
	eachWorkDoor(t, admission.Limits{Handlers: 1, Wait: time.Millisecond}, func(t *testing.T, f *workFixture) {
		slow := f.begin(callContext(t), "Unary", "slow")
		testnet.Receive(t, "the method", f.began)
		if got := f.call(callContext(t), f.cc, "Stream", "never"); !strings.HasPrefix(got, "ResourceExhausted: ") {
			t.Errorf("got %q", got)
		}
		f.proceed <- true
		wantResult(t, "the call", slow, "slow")
		testnet.Eventually(t, "a refused call with ResourceExhausted", func() bool { // counted behind its answer
			s := f.srv.Stats()
			return s.Refused == 1 && s.Ended[codes.ResourceExhausted] == 1
		})
		if s := f.Limiter.Stats(); s.Refused != 1 {
			t.Errorf("got %d refused requests, want 1", s.Refused)
		}
	})
}

// TestLimitWorkFair: a client that fills the queue makes room for another one.
func TestLimitWorkFair(t *testing.T) {
	limits := admission.Limits{Handlers: 1, Queue: 4, Wait: testnet.HangTimeout}
	eachWorkDoor(t, limits, func(t *testing.T, f *workFixture) {
		ctx := callContext(t)
		first := f.begin(ctx, "Unary", "slow")
		testnet.Receive(t, "the method", f.began)
		flood := make(chan string, limits.Queue)
		for range limits.Queue {
			go func() { flood <- f.call(ctx, f.cc, "Unary", "flood") }()
		}
		f.await(1, limits.Queue)
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			return d.DialContext(ctx, "tcp", addr)
		}
		if nc, err := dial(ctx, f.lis.Addr().String()); err != nil {
			t.Skipf("run it on Linux, which has all of 127.0.0.0/8: %v", err)
		} else {
			nc.Close()
		}
		other := dialServer(t, f.lis, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
		result := make(chan string, 1)
		go func() { result <- f.call(ctx, other, "Stream", "other") }()
		if got := testnet.Receive(t, "the youngest of the flood", flood); !strings.HasPrefix(got, "ResourceExhausted: ") {
			t.Errorf("the youngest of the flood got %q", got)
		}
		f.proceed <- true
		wantResult(t, "the call of the other client", result, "other")
		wantResult(t, "the first call", first, "slow")
		for range limits.Queue - 1 {
			wantResult(t, "a call of the flood", flood, "flood")
		}
	})
}

// TestLimitWorkStops: GracefulStop lets calls that wait have their turn, and Stop ends them.
func TestLimitWorkStops(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		eachWorkDoor(t, admission.Limits{Handlers: 1, Wait: testnet.HangTimeout}, func(t *testing.T, f *workFixture) {
			ctx := callContext(t)
			first := f.begin(ctx, "Unary", "slow")
			testnet.Receive(t, "the method", f.began)
			second := f.begin(ctx, "Stream", "next")
			f.await(1, 1)
			stopped := make(chan bool)
			go func() {
				defer close(stopped)
				if graceful {
					f.srv.GracefulStop()
				} else {
					f.srv.Stop()
				}
			}()
			if graceful {
				f.proceed <- true
				wantResult(t, "the first call", first, "slow")
				wantResult(t, "the call that waits", second, "next")
			} else {
				if got := testnet.Receive(t, "the call that waits", second); !strings.HasPrefix(got, "Unavailable: ") {
					t.Errorf("the call that waits got %q", got)
				}
				f.await(1, 0)
				f.proceed <- true
				testnet.Receive(t, "the first call", first)
			}
			testnet.Receive(t, "the stop", stopped)
			f.await(0, 0)
		})
	}
}

// TestLimitWorkDetached: a call that is detached takes no place.
func TestLimitWorkDetached(t *testing.T) {
	testnet.NoLeaks(t)
	lis, w := testnet.Listen(t, percore.Listen, testnet.TCP4), newWatches(t)
	l := admission.New(admission.Limits{Handlers: 1, Wait: testnet.HangTimeout})
	srv := startWatches(t, lis, w, LimitWork(l, nil))
	cc := dialServer(t, lis)
	var clients []grpc.ClientStream
	for i := range 3 {
		clients = append(clients, w.open(callContext(t), cc, fmt.Sprint(i)))
		w.stream(fmt.Sprint(i))
	}
	testnet.Eventually(t, "the places are free", func() bool { return srv.Stats().Detached == 3 && l.Stats().Running == 0 })
	for i, client := range clients {
		w.stream(fmt.Sprint(i)).Close()
		if got := next(client); got != "EOF" {
			t.Errorf("got %q at the end", got)
		}
	}
}

// TestLimitWorkShared: an http.Server and the gRPC server behind it share places, and a call takes one,
// whichever way it comes.
func TestLimitWorkShared(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		for _, below := range []bool{true, false} {
			t.Run(fmt.Sprint(kind.name, " below ", below), func(t *testing.T) {
				testnet.NoLeaks(t)
				w, l := newWorks(), admission.New(admission.Limits{Handlers: 1, Wait: testnet.HangTimeout})
				own := kind.makeOwn(nil, []Option{LimitWork(l, nil)})
				w.register(own)
				handler := own.Handler(http.NotFoundHandler())
				t.Cleanup(own.Stop)
				if !below {
					of := handler
					handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of.ServeHTTP(w, r) })
				}
				protocols := new(http.Protocols)
				protocols.SetUnencryptedHTTP2(true)
				srv := httpadapter.Wrap(&http.Server{Handler: handler, Protocols: protocols}, httpadapter.LimitWork(l, nil))
				lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
				serveOn(t, lis, &onePort{ownServer: own, web: srv})
				f := &workFixture{t: t, works: w, Limiter: l, cc: dialServer(t, lis)}
				for _, method := range []string{"Unary", "Stream"} {
					first := f.begin(callContext(t), method, "slow")
					testnet.Receive(t, "the method", f.began)
					second := f.begin(callContext(t), method, "next")
					f.await(1, 1)
					f.proceed <- true
					wantResult(t, "the first call", first, "slow")
					wantResult(t, "the second call", second, "next")
					f.await(0, 0)
				}
			})
		}
	}
}

// TestLimitWorkMost: no more methods run than may, whatever clients do, and no place is lost.
func TestLimitWorkMost(t *testing.T) {
	const most = 3
	eachWorkDoor(t, admission.Limits{Handlers: most, Queue: 10, Wait: 5 * time.Millisecond}, func(t *testing.T, f *workFixture) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 20 {
					ctx, cancel := context.WithCancel(callContext(t))
					switch (i + j) % 5 {
					case 0:
						time.AfterFunc(time.Millisecond, cancel)
					case 1:
						ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
					}
					f.call(ctx, f.cc, [...]string{"Unary", "Stream"}[j%2], "work")
					cancel()
				}
			})
		}
		wg.Wait()
		f.await(0, 0)
		if n := f.most.Load(); n > most {
			t.Errorf("%d methods have run at a time, want %d at most", n, most)
		}
	})
}
