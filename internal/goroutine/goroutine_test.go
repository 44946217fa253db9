package goroutine

import (
	"bytes"
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestReset: after Reset nothing is left of what the program's code has changed, or it says so.
func TestReset(t *testing.T) {
	locks := 0
	for _, step := range []struct {
		name     string
		do       func()
		reusable bool
	}{
		{"nothing", func() {}, true},
		{"labels", func() {
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("user", "alice")))
		}, true},
		{"SetPanicOnFault", func() { debug.SetPanicOnFault(true) }, true},
		{"LockOSThread", func() { runtime.LockOSThread(); locks++ }, false},
		{"LockOSThread again", func() { runtime.LockOSThread(); locks++ }, false},
		{"one UnlockOSThread", func() { runtime.UnlockOSThread(); locks-- }, false},
		{"all UnlockOSThread", func() { runtime.UnlockOSThread(); locks-- }, true},
	} {
		step.do()
		if got := Reset(); got != step.reusable {
			t.Errorf("after %s: got reusable=%v, want %v", step.name, got, step.reusable)
		}
		if got := lockedByStack(); got == step.reusable {
			t.Errorf("after %s: the stack says locked=%v, want %v", step.name, got, !step.reusable)
		}
		if labels := ownLabels(t); labels != "" {
			t.Errorf("after %s: the goroutine has the labels %s", step.name, labels)
		}
		if debug.SetPanicOnFault(false) {
			t.Errorf("after %s: SetPanicOnFault is set", step.name)
		}
	}
	if locks != 0 {
		t.Fatalf("the steps leave %d locks", locks)
	}
}

// ownLabels returns the labels of this goroutine in profiles.
func ownLabels(t *testing.T) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	for g := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(g, "goroutine.ownLabels") {
			continue
		}
		for line := range strings.SplitSeq(g, "\n") {
			if labels, ok := strings.CutPrefix(line, "# labels: "); ok {
				return labels
			}
		}
	}
	return ""
}

func BenchmarkReset(b *testing.B) {
	for b.Loop() {
		Reset()
	}
}
