package grpcadapter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestDetachStreams: a hundred calls of one connection, each with its own messages from two goroutines.
// A third of the clients reset theirs in the middle. None gets a message of another.
func TestDetachStreams(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		f.w.do = func(key string, stream grpc.ServerStream) error {
			return Detach(stream, func(s *Answer) {
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						for range 20 {
							_ = s.SendMsg(text("%s", key)) // fails behind a reset
						}
					})
				}
				go func() {
					wg.Wait()
					s.Close()
				}()
			})
		}
		var wg sync.WaitGroup
		for i := range 100 {
			key := strings.Repeat(fmt.Sprint(i, " "), i+1)
			ctx, cancel := context.WithCancel(callContext(t))
			client := f.w.open(ctx, f.cc, key)
			wg.Go(func() {
				defer cancel()
				for n := range 41 {
					want := key
					if n == 40 {
						want = "EOF"
					}
					if got := next(client); got != want {
						t.Errorf("message %d of call %d: got %q", n, i, got)
						return
					}
					if i%3 == 0 && n == 5 {
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestDetachResets: clients open calls, and reset them at once, or when these have been detached. Each
// Stream learns of its end once.
func TestDetachResets(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	w := newWatches(t)
	var begun, ended atomic.Int64
	w.do = func(_ string, stream grpc.ServerStream) error {
		return Detach(stream, func(s *Answer) {
			begun.Add(1)
			s.OnEnd(func(error) { ended.Add(1) })
			for i := range 3 {
				s.SendMsg(text("%d", i))
			}
		})
	}
	srv := startWatches(t, lis, w)
	p := framePeer(t, lis)
	none := func() bool {
		st := srv.Stats()
		return st.Calls == 0 && st.Detached == 0 && st.HTTP2.Streams == 0 && begun.Load() == ended.Load()
	}
	id := uint32(1)
	reset := func(id uint32) { p.Frame(frames.RSTStream, 0, id, []byte{0, 0, 0, 8}) }
	for i := range 500 {
		call(p, id, "/Watches/Watch").Data(id, goodMessage, true)
		if i%2 == 0 {
			p.Flush()
		}
		reset(id)
		id += 2
	}
	p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
	for p.Next() != "pong 0000000000000000" {
	}
	testnet.Eventually(t, "no calls", none)
	const n = 300
	before := begun.Load()
	for i := range uint32(n) {
		call(p, id+2*i, "/Watches/Watch").Data(id+2*i, goodMessage, true)
	}
	p.Flush()
	testnet.Eventually(t, "calls that wait", func() bool { return srv.Stats().Detached == n })
	for i := range uint32(n) {
		reset(id + 2*i)
	}
	p.Flush()
	testnet.Eventually(t, "no calls", none)
	if got := begun.Load() - before; got != n {
		t.Errorf("%d calls have begun, want %d", got, n)
	}
}

// TestDetachFlood: calls that are detached and closed at once, by the method and by others, at the same
// time as others are cancelled, aborted, or cut off by Stop.
func TestDetachFlood(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		var ended atomic.Int64
		f.w.do = func(key string, stream grpc.ServerStream) error {
			return Detach(stream, func(s *Answer) {
				s.OnEnd(func(error) { ended.Add(1) })
				end := func() {
					s.SendMsg(text("%s", key))
					if strings.HasPrefix(key, "abort") {
						s.Abort(status.Error(codes.Aborted, key))
					} else {
						s.Close()
					}
				}
				if strings.HasSuffix(key, "now") {
					end()
				} else {
					go end()
				}
			})
		}
		var wg sync.WaitGroup
		const n = 300
		for i := range n {
			wg.Go(func() {
				key := []string{"close now", "close", "abort now", "abort", "cancel"}[i%5]
				ctx, cancel := context.WithCancel(callContext(t))
				defer cancel()
				client, err := f.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/Watches/Watch")
				if err == nil {
					err = client.SendMsg(text("%s", key))
				}
				if err == nil {
					err = client.CloseSend()
				}
				if key == "cancel" && rand.IntN(2) == 0 {
					cancel()
				}
				if key == "cancel" || i > 250 {
					return // the first of these to come to its end stops the server
				}
				if err != nil {
					t.Error(err)
					return
				}
				got := next(client)
				switch {
				case got == key:
					got = next(client)
				case strings.HasPrefix(key, "close"):
					t.Errorf("%s: got %s", key, got)
				}
				if want := "EOF"; strings.HasPrefix(key, "abort") {
					if want = fmt.Sprintf("true Aborted %q []", key); got != want && !strings.HasPrefix(got, "true Canceled") {
						t.Errorf("got %s", got)
					}
				} else if got != want {
					t.Errorf("%s: got %s", key, got)
				}
			})
		}
		wg.Wait()
		f.srv.Stop()
		f.awaitDetached(0)
	})
}

// TestDetachStopped: Stop, while many goroutines send to many calls.
func TestDetachStopped(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		const n = 50
		var wg sync.WaitGroup
		streams := make([]*Answer, n)
		for i := range streams {
			client := f.open(fmt.Sprint(i))
			streams[i] = f.w.stream(fmt.Sprint(i))
			wg.Go(func() {
				for next(client) == "message" {
				}
			})
		}
		for range 8 {
			wg.Go(func() {
				for ended := 0; ended < n; runtime.Gosched() {
					ended = 0
					for _, s := range streams {
						if err := s.SendMsg(text("message")); err != nil && err != ErrSlowClient {
							ended++
						}
					}
				}
			})
		}
		f.srv.Stop()
		wg.Wait()
		for i := range n {
			if err := f.w.ended(fmt.Sprint(i)); err == nil {
				t.Error("an Answer that Stop has ended has no error")
			}
		}
		f.awaitDetached(0)
	})
}

// TestDetachPanics: a panic in begin is the method's, which an interceptor may recover.
func TestDetachPanics(t *testing.T) {
	for _, opts := range [][]Option{nil, {DetachInterceptors()}} {
		testnet.NoLeaks(t)
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		w := newWatches(t)
		w.do = func(key string, stream grpc.ServerStream) error {
			return Detach(stream, func(s *Answer) {
				w.register(key, s)
				s.SendMsg(text("never sent"))
				panic("of begin")
			})
		}
		srv := startWatches(t, lis, w, append(opts, ChainStreamInterceptor(
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
				defer func() {
					if reason := recover(); reason != nil {
						err = status.Errorf(codes.Unknown, "panic %v", reason)
					}
				}()
				return handler(srv, ss)
			}))...)
		client := w.open(callContext(t), dialServer(t, lis), "key")
		if got := next(client); got != `true Unknown "panic of begin" []` {
			t.Errorf("got %s", got)
		}
		if err := w.ended("key"); err != errPanicked {
			t.Errorf("OnEnd got %v", err)
		}
		testnet.Eventually(t, "no calls", func() bool { return srv.Stats().Calls == 0 && srv.Stats().Detached == 0 })
	}
}

// exiting is a stream whose SendMsg ends its goroutine.
type exiting struct{ grpc.ServerStream }

func (exiting) SendMsg(any) error { runtime.Goexit(); return nil }

// TestDetachGoexit: a wrapper that ends its goroutine ends the call, as in a method.
func TestDetachGoexit(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		f.w.do = func(key string, stream grpc.ServerStream) error {
			return Detach(exiting{stream}, func(s *Answer) { f.w.register(key, s) })
		}
		for _, early := range []bool{false, true} {
			key := fmt.Sprint(early)
			client := f.open(key)
			s := f.w.stream(key)
			if !early {
				f.awaitDetached(1)
			}
			s.SendMsg(text("never sent"))
			if got := next(client); !strings.Contains(got, "Internal") {
				t.Errorf("got %s", got)
			}
			if err := f.w.ended(key); err != errPanicked {
				t.Errorf("OnEnd got %v", err)
			}
			f.awaitDetached(0)
		}
		testnet.Within(t, "GracefulStop", f.srv.GracefulStop)
	})
}

// BenchmarkDetachedSend sends a message on a call that waits, and waits until the client has it.
func BenchmarkDetachedSend(b *testing.B) {
	for _, door := range detachDoors {
		b.Run(door.name, func(b *testing.B) {
			lis := testnet.Listen(b, percore.Listen, testnet.TCP4)
			w := newWatches(b)
			door.start(b, lis, w, nil)
			client := w.open(callContext(b), dialServer(b, lis), "key")
			s := w.stream("key")
			message, out := wrapperspb.Bytes(pattern(100)), new(wrapperspb.BytesValue)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.SendMsg(message); err != nil {
					b.Fatal(err)
				}
				if err := client.RecvMsg(out); err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
		})
	}
}
