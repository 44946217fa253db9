package pool_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/pool"
)

// mustPanic calls f and fails the test unless it panics with a message that contains want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	if got := panicOf(f); !strings.Contains(got, want) {
		t.Errorf("panicked with %q, want a panic that contains %q", got, want)
	}
}

// panicOf returns f's panic value as text, and "" if it returns.
func panicOf(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil {
			message = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// eventually collects garbage until ok reports true. The generous limit only
// keeps a failure from lasting forever.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("no result: %s", what)
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

// withoutGC keeps the collector from running by itself until the test ends.
func withoutGC(t *testing.T) {
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
}

// getMany gets count buffers of n bytes.
func getMany(p *pool.Pool, count, n int) []*pool.Buffer {
	buffers := make([]*pool.Buffer, count)
	for i := range buffers {
		buffers[i] = p.Get(n)
	}
	return buffers
}

func releaseAll(buffers []*pool.Buffer) {
	for _, b := range buffers {
		b.Release()
	}
}

// checkIdle fails the test unless all that p handed out was released.
func checkIdle(t *testing.T, p *pool.Pool) {
	t.Helper()
	if s := p.Stats(); s.BuffersInUse != 0 || s.BytesInUse != 0 || s.Leaked != 0 {
		t.Errorf("got %+v, want nothing in use and nothing leaked", s)
	}
	if err := p.CheckLeaks(); err != nil {
		t.Error(err)
	}
}
