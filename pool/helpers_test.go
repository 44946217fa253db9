package pool_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/pool"
)

// mustPanic calls f and fails the test unless it panics with a message that
// contains want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	if got := panicOf(f); !strings.Contains(got, want) {
		t.Errorf("panicked with %q, want a panic that contains %q", got, want)
	}
}

// panicOf returns what f panics with as text, and "" if it returns.
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
// keeps a failure from lasting for ever.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

// checkBalanced fails the test unless everything handed out by p was released.
func checkBalanced(t *testing.T, p *pool.Pool) {
	t.Helper()
	s := p.Stats()
	if s.Gets != s.Releases || s.BuffersInUse != 0 || s.BytesInUse != 0 || s.Leaked != 0 {
		t.Errorf("counters don't balance: %+v", s)
	}
	if err := p.CheckLeaks(); err != nil {
		t.Errorf("CheckLeaks: %v", err)
	}
	if s.BytesKept > s.BytesKeptMax {
		t.Errorf("kept %d bytes, want at most %d", s.BytesKept, s.BytesKeptMax)
	}
}

// pattern returns n bytes that differ from those of another seed.
func pattern(seed, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(seed*31 + i*7 + i>>8)
	}
	return p
}

func checkBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		t.Errorf("%s: got %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
			return
		}
	}
}
