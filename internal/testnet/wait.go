package testnet

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// HangTimeout is when a test stops waiting for something that must happen. It is far longer than
// anything takes on a busy machine under the race detector: reaching it means a hang, never slowness.
const HangTimeout = 30 * time.Second

// outerTimeout bounds f in Within. It leaves Receive and Eventually in f time to report first,
// since they know better what is missing.
const outerTimeout = HangTimeout + 10*time.Second

// Within runs f and fails the test, with the stacks of all goroutines, if f has not returned a
// while after HangTimeout. The goroutine of f is then abandoned. f runs outside the test's
// goroutine, so it must not call t.Fatal or t.FailNow.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(outerTimeout):
		t.Fatalf("%s: still not done after %v\n%s", what, outerTimeout, allStacks())
	}
}

// Receive returns the next value from ch and fails the test if none comes.
func Receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(HangTimeout):
		t.Fatalf("%s: nothing after %v\n%s", what, HangTimeout, allStacks())
		panic("unreachable")
	}
}

// Eventually waits until condition holds, checking every few milliseconds, and fails the test if it
// never does.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(HangTimeout)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not so after %v\n%s", what, HangTimeout, allStacks())
		}
		time.Sleep(pause)
	}
}

// GoBlocked runs f in a new goroutine and returns once f has returned, or is stuck in input or
// output, on a lock or on a channel. A fixed pause would some day be too short. If GoBlocked can't
// tell for a long while, it returns, too: f is then as good as stuck.
func GoBlocked(t testing.TB, what string, f func()) {
	t.Helper()
	name, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		var buf [64]byte
		header := string(buf[:runtime.Stack(buf[:], false)]) // "goroutine 7 [running]:..."
		name <- header[:strings.IndexByte(header, '[')+1]
		f()
	}()
	goroutine := Receive(t, what, name)
	looks := 0 // looks in a row that found a wait that may be over soon
	for begin := time.Now(); time.Since(begin) < blockTimeMax && looks < briefLooks; {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
		_, state, _ := strings.Cut("\n"+allStacks(), "\n"+goroutine)
		switch {
		case hasPrefixOf(state, "IO wait", "chan ", "select", "sync."):
			return
		case hasPrefixOf(state, "syscall", "semacquire", "sleep"): // the last two also as a GC begins
			looks++
		default: // it runs, or soon will: it waits for the garbage collector, say
			looks = 0
		}
	}
}

// BesideComputing calls f while another goroutine computes on the only processor.
func BesideComputing(f func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
		}
	}()
	f()
}

func hasPrefixOf(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(s, prefix) })
}

const (
	blockTimeMax = 5 * time.Second // how long GoBlocked keeps looking

	// briefLooks is how often in a row, a millisecond apart, GoBlocked must see a wait that may be
	// over soon before it counts as blocked. A busy machine may hold a thread up for a tenth of a
	// second in any system call.
	briefLooks = 200
)

func allStacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
