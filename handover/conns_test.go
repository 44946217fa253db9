package handover

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// Shutdown tells the connections to end over the first half of the time, and waits for them.
func TestConnsSpread(t *testing.T) {
	const count = 100
	synctest.Test(t, func(t *testing.T) {
		var conns Conns
		var told atomic.Int64
		for range count {
			var remove func()
			remove = conns.Add(func() {
				told.Add(1)
				remove()
				remove() // more than once is no mistake
			})
		}
		var ended atomic.Int64
		gone := conns.Add(func() { ended.Add(1) })
		gone()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- conns.Shutdown(ctx) }()
		for second := range 10 {
			time.Sleep(time.Millisecond) // behind a tick, if there is one at this time
			synctest.Wait()
			if got, want := told.Load(), int64(second*count/10+1); got != want {
				t.Errorf("after %d s: %d connections were told to end, want %d", second, got, want)
			}
			time.Sleep(time.Second - time.Millisecond)
		}
		if err := <-result; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if got := told.Load(); got != count || conns.Len() != 0 || ended.Load() != 0 {
			t.Errorf("%d connections were told to end, %d are left, %d were told that had ended; want %d, 0, 0", got, conns.Len(), ended.Load(), count)
		}
	})
}

// Connections that come late are told at once, and Shutdown can be called again to wait for them.
func TestConnsLate(t *testing.T) {
	var conns Conns
	if err := conns.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown of nothing: %v", err)
	}
	told := make(chan struct{}, 2)
	remove := conns.Add(func() { told <- struct{}{} })
	testnet.Receive(t, "being told", told)
	result := make(chan error, 1)
	go func() { result <- conns.Shutdown(t.Context()) }()
	remove()
	if err := testnet.Receive(t, "Shutdown", result); err != nil || len(told) > 0 {
		t.Errorf("got %v, told again %d times", err, len(told))
	}
}

// Shutdown of nothing has no error, though its time is over.
func TestConnsNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // two things that are due may be looked at in either order
		if err := new(Conns).Shutdown(ctx); err != nil {
			t.Fatalf("got %v, want none", err)
		}
	}
}

// Connections that stay are not told, and Shutdown waits for them or for the end of its time.
func TestConnsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := Conns{Spread: -1}
		remove := conns.Add(func() { t.Error("a connection was told to end") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := conns.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the time", err)
		}
		defer conns.Add(func() { t.Error("a late connection was told to end") })()
		go func() {
			time.Sleep(time.Hour)
			remove()
		}()
		begin := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := conns.Shutdown(short); err == nil || time.Since(begin) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Hour)
		if n := conns.Len(); n != 1 {
			t.Errorf("%d connections are left, want 1", n)
		}
	})
}
