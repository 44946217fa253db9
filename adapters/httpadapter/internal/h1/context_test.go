package h1

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestRequestContext: whatever derives from a request's context behaves as if it derived from a
// context of package context.
func TestRequestContext(t *testing.T) {
	type key struct{}
	for _, tt := range []struct {
		name string
		new  func(parent context.Context) (context.Context, func())
	}{
		{"package context's", func(parent context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(parent)
			return ctx, cancel
		}},
		{"a request's", func(parent context.Context) (context.Context, func()) {
			c := &requestContext{parent: parent}
			return c, c.cancel
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := tt.new(context.WithValue(context.Background(), key{}, "value"))
			if got := ctx.Value(key{}); got != "value" {
				t.Errorf("got the value %v", got)
			}
			if at, ok := ctx.Deadline(); ok {
				t.Errorf("got the deadline %v, want none", at)
			}
			if err := ctx.Err(); err != nil {
				t.Errorf("got %v before it is cancelled", err)
			}
			before := runtime.NumGoroutine()
			child, cancelChild := context.WithCancelCause(ctx)
			timed, cancelTimed := context.WithTimeout(ctx, time.Hour)
			defer cancelTimed()
			ended, cancelEnded := context.WithCancel(ctx)
			cancelEnded()
			free := context.WithoutCancel(ctx)
			called := make(chan bool, 2)
			stop := context.AfterFunc(ctx, func() { called <- true })
			stopped := context.AfterFunc(ctx, func() { t.Error("a function was called that was stopped") })
			if !stopped() || stopped() {
				t.Error("stop did not report that it stopped the function, once")
			}
			if got := runtime.NumGoroutine(); got > before { // other tests' goroutines may be ending
				t.Errorf("got %d goroutines more, want none", got-before)
			}
			if ended.Err() == nil || child.Err() != nil {
				t.Errorf("got %v of a cancelled child, %v of another", ended.Err(), child.Err())
			}
			done := ctx.Done()
			cancel()
			cancel()
			testnet.Receive(t, "the function's call", called)
			for name, c := range map[string]context.Context{"the context": ctx, "a child": child, "one with a deadline": timed} {
				select {
				case <-c.Done():
				case <-time.After(testnet.HangTimeout):
					t.Errorf("%s is not done", name)
				}
				if c.Err() != context.Canceled || !errors.Is(context.Cause(c), context.Canceled) {
					t.Errorf("%s: got %v, cause %v", name, c.Err(), context.Cause(c))
				}
			}
			select {
			case <-done:
			default:
				t.Error("the channel from before is open")
			}
			if stop() {
				t.Error("stop reported that it stopped a function that was called")
			}
			if free.Err() != nil {
				t.Errorf("got %v without cancellation", free.Err())
			}
			cancelChild(errors.New("too late"))
			late := context.AfterFunc(ctx, func() { called <- true })
			testnet.Receive(t, "the late function's call", called)
			if late() {
				t.Error("stop reported that it stopped a function that was called at once")
			}
		})
	}
}

// Calls of all kinds at the same time, for the race detector, and to check that nothing misses the end.
func TestRequestContextRaces(t *testing.T) {
	for range 200 {
		c := &requestContext{parent: context.Background()}
		var calls, stops atomic.Int64
		var wg sync.WaitGroup
		const each = 4
		for range each {
			wg.Go(func() {
				wg.Add(1)
				stop := c.AfterFunc(func() {
					calls.Add(1)
					wg.Done()
				})
				if stop() {
					stops.Add(1)
					wg.Done()
				}
			})
			wg.Go(func() { <-c.Done() })
			wg.Go(c.cancel)
		}
		wg.Wait()
		if got := calls.Load() + stops.Load(); got != each || c.Err() != context.Canceled {
			t.Fatalf("got %d calls and %d stops of %d, %v", calls.Load(), stops.Load(), each, c.Err())
		}
	}
}
