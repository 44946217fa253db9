package grpcadapter

import (
	"context"
	"fmt"
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

// TestDetachStorm: hundreds of calls of one connection get messages from two goroutines each, and at the
// same time they are closed or aborted in the method or later, or cancelled by clients. No call gets the
// messages of another, and each learns of its end once. Then Stop ends calls that are still sent to.
func TestDetachStorm(t *testing.T) {
	eachDetachDoor(t, func(t *testing.T, f *detachFixture) {
		var begun, ended atomic.Int64
		f.w.do = func(key string, stream grpc.ServerStream) error {
			return Detach(stream, func(s *Answer) {
				begun.Add(1)
				s.OnEnd(func(error) { ended.Add(1) })
				end, kind := func() {}, strings.Fields(key)[0]
				if kind != "stays" {
					end = func() {
						if kind == "abort" {
							s.Abort(status.Error(codes.Aborted, kind))
						} else {
							s.Close()
						}
					}
				}
				send := func() {
					for range 20 {
						_ = s.SendMsg(text("%s", key)) // fails behind an end
					}
				}
				if strings.HasSuffix(key, "now") {
					send()
					end()
					return
				}
				var senders sync.WaitGroup
				for range 2 {
					senders.Go(func() {
						for send(); kind == "stays" && s.Context().Err() == nil; runtime.Gosched() {
							_ = s.SendMsg(text("%s", key))
						}
					})
				}
				go func() {
					senders.Wait()
					end()
				}()
			})
		}
		var calls, lasting sync.WaitGroup
		for i := range 300 {
			kind := []string{"close", "abort", "cancel", "close", "cancel", "stays"}[i%6]
			key := strings.Repeat(fmt.Sprint(kind, " ", i, " "), 1+i%30) + []string{"later", "now"}[i%4/2]
			ctx, cancel := context.WithCancel(callContext(t))
			client := f.w.open(ctx, f.cc, key)
			of := &calls
			if kind == "stays" {
				of = &lasting
			}
			of.Go(func() {
				defer cancel()
				n, want, got := 0, 40, next(client)
				if strings.HasSuffix(key, "now") {
					want = 20
				}
				for ; got == key; got = next(client) {
					if n++; kind == "cancel" && n == i%20 {
						return
					}
				}
				switch {
				case kind == "close" && n == want && got == "EOF", kind == "cancel" && got == "EOF":
				case kind == "abort" && (got == `true Aborted "abort" []` || strings.HasPrefix(got, "true Canceled")):
				case kind == "stays" && strings.HasPrefix(got, "true Unavailable"):
				default:
					t.Errorf("%d messages to %s, and then %s", n, key, got)
				}
			})
		}
		calls.Wait()
		f.srv.Stop()
		lasting.Wait()
		testnet.Eventually(t, "all ends", func() bool { return ended.Load() == begun.Load() })
		f.awaitDetached(0)
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
			door.start(b, lis, w)
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
