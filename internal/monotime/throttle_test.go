package monotime_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/percore/percore/internal/monotime"
)

// TestThrottle: of many at a time one is allowed, and none before the period has passed.
func TestThrottle(t *testing.T) {
	var throttle Throttle
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if throttle.Allow(time.Hour) {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if got := allowed.Load(); got != 1 {
		t.Errorf("got %d of 100 allowed, want 1", got)
	}
	if throttle.Allow(time.Hour) {
		t.Error("before the period has passed: got true")
	}
	if !throttle.Allow(0) {
		t.Error("after the period: got false")
	}
}
