package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// sockets returns how many listening sockets lis has, or 1 if it can't be determined.
func sockets(lis net.Listener) int {
	if l, ok := lis.(interface{ Stats() percore.ListenerStats }); ok {
		return max(l.Stats().Sockets, 1)
	}
	return 1
}

// TestServePerLoop: there is one Serve for each socket, and every connection is served.
func TestServePerLoop(t *testing.T) {
	const loops = 4
	for kind, lis := range map[string]func(t *testing.T) net.Listener{
		"percore": func(t *testing.T) net.Listener { return listenOnLoops(t, loops, testnet.TCP4) },
		"unix":    func(t *testing.T) net.Listener { return listenOnLoops(t, loops, testnet.Unix) },
		"net":     func(t *testing.T) net.Listener { return testnet.Listen(t, net.Listen, testnet.TCP4) },
	} {
		t.Run(kind, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := lis(t)
			want := sockets(lis)
			srv := grpc.NewServer()
			srv.RegisterService(&echo, nil)
			var serves atomic.Int64
			served := goServe(func() error {
				return serveSockets(lis, func(l net.Listener) error {
					serves.Add(1)
					return srv.Serve(l)
				})
			})
			testnet.Eventually(t, fmt.Sprintf("%d calls of Serve", want), func() bool { return serves.Load() == int64(want) })
			// Dial so many that the kernel gives some to every socket.
			var wg sync.WaitGroup
			for range 40 {
				wg.Go(func() {
					cc := dialServer(t, lis)
					defer cc.Close()
					if err := callUnary(callContext(t), cc, pattern(100)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			select {
			case err := <-served:
				t.Fatalf("Serve returned %v before the server was stopped", err)
			default:
			}
			srv.Stop()
			if err := testnet.Receive(t, "Serve returning", served); err != nil {
				t.Errorf("Serve after Stop: got %v, want nil", err)
			}
			if got := serves.Load(); got != int64(want) {
				t.Errorf("got %d calls of Serve, want %d", got, want)
			}
		})
	}
}

// TestServeStops: GracefulStop waits for streams of connections from all sockets, and Stop ends them,
// also while GracefulStop waits. Serve waits for both.
func TestServeStops(t *testing.T) {
	for _, kind := range append(serverKinds, fallbackKind, directKind) {
		for _, end := range []string{"Stop", "GracefulStop", "both"} {
			t.Run(kind.name+", "+end, func(t *testing.T) {
				testnet.NoLeaks(t)
				lis, srv := listenOnLoops(t, 3, testnet.TCP4), kind.make(nil, nil)
				srv.RegisterService(&echo, nil)
				served, stopped := goServe(func() error { return srv.Serve(lis) }), make(chan bool, 1)
				chats := make([]grpc.ClientStream, 10)
				for i := range chats {
					chats[i] = startChat(t, dialServer(t, lis))
				}
				if end != "Stop" {
					testnet.GoBlocked(t, "GracefulStop", func() { srv.GracefulStop(); stopped <- true })
				}
				for i, stream := range chats {
					if end == "Stop" {
						break
					}
					if err := say(stream, pattern(1000)); err != nil || len(served)+len(stopped) > 0 {
						t.Errorf("stream %d during GracefulStop: %v, and %d have returned", i, err, len(served)+len(stopped))
					}
				}
				if end != "GracefulStop" {
					srv.Stop()
				}
				for i, stream := range chats {
					if end == "GracefulStop" {
						endChat(t, stream)
					} else if err := stream.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
						t.Errorf("stream %d after Stop: got %v, want Unavailable", i, err)
					}
				}
				if err := testnet.Receive(t, "Serve returning", served); err != nil {
					t.Errorf("Serve: got %v, want nil", err)
				}
				if end != "Stop" {
					testnet.Receive(t, "GracefulStop returning", stopped)
				}
				srv.GracefulStop() // again
			})
		}
	}
}

// TestServeErrors: Serve returns the same as grpc.Server.Serve in the same case.
func TestServeErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(t *testing.T, srv testServer, lis net.Listener) error
	}{
		{"stopped before", func(t *testing.T, srv testServer, lis net.Listener) error {
			srv.Stop()
			return srv.Serve(lis)
		}},
		{"listener closed before", func(t *testing.T, srv testServer, lis net.Listener) error {
			lis.Close()
			return srv.Serve(lis)
		}},
		{"listener closed", func(t *testing.T, srv testServer, lis net.Listener) error {
			served := goServe(func() error { return srv.Serve(lis) })
			if err := callUnary(callContext(t), dialServer(t, lis), nil); err != nil {
				t.Error(err)
			}
			lis.Close()
			return testnet.Receive(t, "Serve returning", served)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			want := ""
			for _, kind := range append(serverKinds, fallbackKind) {
				srv := kind.make(nil, nil)
				srv.RegisterService(&echo, nil)
				lis := listenOnLoops(t, 3, testnet.TCP4)
				err := test.play(t, srv, lis)
				srv.Stop()
				var op *net.OpError
				if errors.As(err, &op) {
					op.Addr = nil
				}
				got := fmt.Sprint(err)
				if kind.name == serverKinds[0].name {
					want = got
				} else if got != want {
					t.Errorf("%s: got %q, want grpc.Server.Serve's %q", kind.name, got, want)
				}
			}
		})
	}
}

// TestServeStoppedWhileStarting stops the server at any point of the start: Serve returns nil or
// the error that the server was stopped, and nothing is left behind.
func TestServeStoppedWhileStarting(t *testing.T) {
	testnet.NoLeaks(t)
	for i := range 400 {
		kind := []serverKind{fallbackKind, directKind, serverKinds[1]}[i%3]
		lis, srv := listenOnLoops(t, 4, testnet.TCP4), kind.make(nil, nil)
		served := goServe(func() error { return srv.Serve(lis) })
		go srv.Stop()
		if err := testnet.Receive(t, "Serve returning", served); err != nil && err != grpc.ErrServerStopped {
			t.Fatalf("Serve: got %v, want nil or %v", err, grpc.ErrServerStopped)
		}
		srv.Stop()
	}
}

// TestListenerClosedOnce: a listener may panic when it is closed a second time, so all servers close it
// once, whatever ends it.
func TestListenerClosedOnce(t *testing.T) {
	for _, end := range []struct {
		name string
		call func(testServer, *onceListener)
	}{
		{"Stop", func(srv testServer, _ *onceListener) { srv.Stop() }},
		{"GracefulStop", func(srv testServer, _ *onceListener) { srv.GracefulStop() }},
		{"Accept fails", func(_ testServer, lis *onceListener) { close(lis.broken) }},
	} {
		for _, kind := range serverKinds {
			t.Run(end.name+", "+kind.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				srv, lis := kind.make(nil, nil), newOnceListener()
				served := goServe(func() error { return srv.Serve(lis) })
				testnet.Receive(t, "Accept", lis.accepting)
				end.call(srv, lis)
				if err := testnet.Receive(t, "Serve returning", served); err != nil && err != errBroken {
					t.Errorf("Serve: got %v, want nil or %v", err, errBroken)
				}
				srv.Stop()
				late := newOnceListener()
				if err := srv.Serve(late); err != grpc.ErrServerStopped {
					t.Errorf("Serve after Stop: got %v, want %v", err, grpc.ErrServerStopped)
				}
				if n, lateN := lis.closes.Load(), late.closes.Load(); n != 1 || lateN != 1 {
					t.Errorf("the listeners were closed %d and %d times, want once each", n, lateN)
				}
			})
		}
	}
}

// TestShutdown: it waits for the calls that are open, but not when its context ends. Then they go
// on until Close.
func TestShutdown(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			srv := kind.makeOwn(nil, nil)
			srv.RegisterService(&echo, nil)
			served := goServe(func() error { return srv.Serve(lis) })
			stream := startChat(t, dialServer(t, lis))
			over, cancel := context.WithCancel(t.Context())
			cancel()
			if err := srv.Shutdown(over); err != context.Canceled {
				t.Errorf("Shutdown while a call is open: got %v, want %v", err, context.Canceled)
			}
			if err := say(stream, pattern(10)); err != nil {
				t.Errorf("the open call: %v", err)
			}
			stopped := make(chan error, 1)
			go func() { stopped <- srv.Shutdown(t.Context()) }()
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
			if err := testnet.Receive(t, "Shutdown", stopped); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if err := testnet.Receive(t, "Serve returning", served); err != nil {
				t.Errorf("Serve: %v", err)
			}
			if err := srv.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// onceListener has no connections, and counts how often it is closed.
type onceListener struct {
	accepting chan bool     // gets a value from the first Accept
	broken    chan struct{} // once it is closed, Accept fails
	closed    chan struct{}
	closes    atomic.Int32
}

func newOnceListener() *onceListener {
	return &onceListener{accepting: make(chan bool, 1), broken: make(chan struct{}), closed: make(chan struct{})}
}

func (l *onceListener) Accept() (net.Conn, error) {
	l.accepting <- true
	select {
	case <-l.broken:
		return nil, errBroken
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *onceListener) Close() error {
	if l.closes.Add(1) == 1 {
		close(l.closed)
	}
	return nil
}

func (l *onceListener) Addr() net.Addr { return doorAddr{} }

var errBroken = errors.New("the socket is broken")

// TestOutcome tests the results that several calls of Serve can have together.
func TestOutcome(t *testing.T) {
	closed := fmt.Errorf("accept: %w", net.ErrClosed)
	for _, test := range []struct {
		name string
		errs []error
		want error
	}{
		{"stopped", []error{nil, nil}, nil},
		{"stopped while starting", []error{grpc.ErrServerStopped, nil}, nil},
		{"stopped before", []error{grpc.ErrServerStopped, grpc.ErrServerStopped}, grpc.ErrServerStopped},
		{"closed", []error{closed, closed}, closed},
		{"one failed", []error{closed, errBroken}, errBroken},
		{"one failed, the first", []error{errBroken, closed}, errBroken},
		{"one failed, others stopped", []error{nil, errBroken}, errBroken},
	} {
		if got := outcome(slices.Clone(test.errs)); got != test.want {
			t.Errorf("%s: outcome(%v): got %v, want %v", test.name, test.errs, got, test.want)
		}
	}
}
