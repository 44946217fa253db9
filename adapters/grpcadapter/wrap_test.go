package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/innards"
	"github.com/percore/percore/admission"
	"github.com/percore/percore/internal/testnet"
)

// TestProof: this package knows the grpc-go that it is built with.
func TestProof(t *testing.T) {
	testnet.NoLeaks(t)
	if _, err := probe(); err != nil {
		t.Errorf("grpc-go %s: %v", grpc.Version, err)
	}
}

// TestWrapRefused: a server that the fast path can't serve is served by grpc-go's transport, one line
// says why, and a panic is a reason, too.
func TestWrapRefused(t *testing.T) {
	testnet.NoLeaks(t)
	for _, test := range []struct {
		name, want string
		probe      func() (*innards.Keys, error)
		server     []grpc.ServerOption
		listen     testnet.ListenFunc
		added      []Option
	}{
		{
			name: "unknown", want: "grpc-go " + grpc.Version + ": it sings",
			probe: func() (*innards.Keys, error) { return nil, errors.New("it sings") }, listen: percore.Listen,
		},
		{
			name: "a surprise", want: "grpc-go " + grpc.Version + ": it dances",
			probe: func() (*innards.Keys, error) { panic("it dances") }, listen: net.Listen,
		},
		{
			name: "an option", want: "the server has the option WaitForHandlers", probe: proven,
			server: []grpc.ServerOption{grpc.WaitForHandlers(true)}, listen: percore.Listen,
		},
		{
			name: "a limit", want: "the server has the option WaitForHandlers; the limit of LimitWork does not hold", probe: proven,
			server: []grpc.ServerOption{grpc.WaitForHandlers(true)}, listen: percore.Listen,
			added: []Option{DetachInterceptors(), LimitWork(admission.New(admission.Limits{Handlers: 1}), nil)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := grpc.NewServer(test.server...)
			srv.RegisterService(&echo, nil)
			var lines []string
			w := wrap(srv, func(w *wrapping) {
				w.probe = test.probe
				w.add(test.added)
				w.logf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			})
			refusal := w.Refusal()
			for range 2 {
				lis := testnet.Listen(t, test.listen, testnet.TCP4)
				serveOn(t, lis, wrapped{w, srv})
				if err := callUnary(callContext(t), dialServer(t, lis), pattern(10)); err != nil {
					t.Error(err)
				}
			}
			if fmt.Sprint(refusal) != test.want {
				t.Errorf("got the reason %v, want %s", refusal, test.want)
			}
			if want := "grpcadapter: grpc-go's own transport serves: " + test.want; len(lines) != 1 || lines[0] != want {
				t.Errorf("got the lines %q, want %q once", lines, want)
			}
			if w.inner != nil {
				t.Error("an inner server was made")
			}
		})
	}
}

// TestWrapBypassed: a line in the log says that the grpc.Server's own Serve was called instead of the
// WrappedServer's, once.
func TestWrapBypassed(t *testing.T) {
	for _, test := range []struct {
		name  string
		serve func(*grpc.Server, *WrappedServer, net.Listener) error
		late  time.Duration // between Wrap and Serve
		lines int
	}{
		{name: "at once", serve: func(srv *grpc.Server, _ *WrappedServer, lis net.Listener) error { return srv.Serve(lis) }, lines: 1},
		{name: "later", serve: func(srv *grpc.Server, _ *WrappedServer, lis net.Listener) error { return srv.Serve(lis) }, late: 20 * time.Second, lines: 1},
		{name: "the right one", serve: func(_ *grpc.Server, w *WrappedServer, lis net.Listener) error { return w.Serve(lis) }},
		{name: "both", serve: func(srv *grpc.Server, w *WrappedServer, lis net.Listener) error {
			w.used.Store(true)
			return srv.Serve(lis)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lines []string
			srv := grpc.NewServer()
			w := wrap(srv, func(w *wrapping) {
				w.logf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			})
			time.Sleep(test.late)
			lis := newOnceListener()
			served := make(chan error, 1)
			go func() { served <- test.serve(srv, w, lis) }()
			time.Sleep(2 * bypassCheckLast)
			synctest.Wait()
			if len(lines) != test.lines || test.lines > 0 && !strings.Contains(lines[0], "Call Serve of what it has returned") {
				t.Errorf("%s: got the lines %q, want %d", test.name, lines, test.lines)
			}
			srv.Stop()
			if err := <-served; err != nil {
				t.Errorf("%s: Serve: %v", test.name, err)
			}
		})
	}
}

// TestWrapListeners: several listeners are served, by the fast path and by grpc-go, and a Stop of the
// grpc.Server ends all of them. Connections outlive their listener, and are ended by Stop, too.
func TestWrapListeners(t *testing.T) {
	testnet.NoLeaks(t)
	for _, stop := range []func(*grpc.Server){(*grpc.Server).Stop, (*grpc.Server).GracefulStop} {
		srv := grpc.NewServer()
		srv.RegisterService(&echo, nil)
		w := wrapFast(srv)
		serves := []func(net.Listener) error{w.Serve, w.Serve, srv.Serve, func(l net.Listener) error { return serveByGRPC(srv, l) }}
		served := make(chan error, len(serves))
		var listeners []net.Listener
		for i, serve := range serves {
			lis := listenOnLoops(t, 1+i%2, testnet.TCP4)
			listeners = append(listeners, lis)
			go func() { served <- serve(lis) }()
		}
		var clients []*grpc.ClientConn
		for _, lis := range listeners {
			var dialed atomic.Bool
			cc := dialServer(t, lis, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				if dialed.Swap(true) { // the port may be another program's
					return nil, errors.New("the connection has ended")
				}
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}))
			clients = append(clients, cc)
			if err := callUnary(callContext(t), cc, pattern(10)); err != nil {
				t.Fatal(err)
			}
		}
		listeners[0].Close()
		if err := testnet.Receive(t, "Serve returning", served); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve of a listener that was closed: got %v", err)
		}
		if err := callUnary(callContext(t), clients[0], pattern(10)); err != nil {
			t.Errorf("a connection whose listener was closed: %v", err)
		}
		stop(srv)
		for range len(serves) - 1 {
			if err := testnet.Receive(t, "Serve returning", served); err != nil {
				t.Errorf("Serve after a stop: got %v, want nil", err)
			}
		}
		if err := callUnary(callContext(t), clients[0], pattern(10)); status.Code(err) != codes.Unavailable {
			t.Errorf("a call after a stop: got %v", err)
		}
		if err := w.Serve(testnet.Listen(t, percore.Listen, testnet.TCP4)); err != grpc.ErrServerStopped {
			t.Errorf("Serve after a stop: got %v", err)
		}
	}
}

// TestWrapAgain: when neither a listener nor a connection is left, nothing is held, and the server can
// serve again.
func TestWrapAgain(t *testing.T) {
	srv := grpc.NewServer()
	srv.RegisterService(&echo, nil)
	w := wrapFast(srv)
	for range 3 {
		t.Run("round", func(t *testing.T) {
			testnet.NoLeaks(t) // the server is not stopped
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			served := goServe(func() error { return w.Serve(lis) })
			cc := dialServer(t, lis)
			if err := callUnary(callContext(t), cc, pattern(10)); err != nil {
				t.Error(err)
			}
			lis.Close()
			if err := testnet.Receive(t, "Serve returning", served); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Serve: got %v", err)
			}
		})
	}
	srv.Stop()
}

// TestWrapStopInHandler: a handler may stop the server.
func TestWrapStopInHandler(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range append(serverKinds, directKind) {
		srv := kind.make(nil, nil)
		stopped := make(chan bool, 1)
		srv.RegisterService(&grpc.ServiceDesc{ServiceName: "end", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
			MethodName: "End",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				srv.Stop()
				stopped <- true
				return nil, errors.New("stopped")
			},
		}}}, nil)
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		served := goServe(func() error { return srv.Serve(lis) })
		err := dialServer(t, lis).Invoke(callContext(t), "/end/End", new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: a call that stops the server: got %v", kind.name, err)
		}
		testnet.Receive(t, "Stop returning", stopped)
		if err := testnet.Receive(t, "Serve returning", served); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	}
}

// TestWrapConcurrently starts and stops in any order.
func TestWrapConcurrently(t *testing.T) {
	testnet.NoLeaks(t)
	for range 50 {
		srv := grpc.NewServer()
		srv.RegisterService(&echo, nil)
		w := wrapFast(srv)
		const each = 3
		ended := make(chan error, 2*each)
		for range each {
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			go func() { ended <- w.Serve(lis) }()
			go func() {
				if nc, err := net.Dial("tcp", lis.Addr().String()); err == nil {
					nc.Close()
				}
				srv.GracefulStop()
				ended <- nil
			}()
		}
		for range 2 * each {
			if err := testnet.Receive(t, "the end", ended); err != nil && err != grpc.ErrServerStopped {
				t.Fatal(err)
			}
		}
	}
}
