package workers

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestPool: each value that is served is worked on once, whether or not Work ends its goroutine.
func TestPool(t *testing.T) {
	testnet.NoLeaks(t)
	const rounds, values = 20, 50
	var sum atomic.Int64
	var done sync.WaitGroup
	p := Pool[int]{Work: func(n int) {
		defer done.Done()
		sum.Add(int64(n))
		runtime.Gosched()
		if n%10 == 0 {
			runtime.Goexit()
		}
	}}
	for range rounds {
		for n := range values {
			done.Add(1)
			p.Serve(n + 1)
		}
		testnet.Within(t, "the work", done.Wait)
	}
	p.Close()
	if got, want := sum.Load(), int64(rounds*values*(values+1)/2); got != want {
		t.Errorf("the values' sum: got %d, want %d", got, want)
	}
}

// TestTrim: workers that are not needed end by themselves.
func TestTrim(t *testing.T) {
	testnet.NoLeaks(t)
	const blocked = 10
	release, done := make(chan bool), make(chan bool)
	p := Pool[int]{Work: func(int) {
		<-release
		done <- true
	}}
	for n := range blocked {
		p.Serve(n + 1)
	}
	close(release)
	for range blocked {
		testnet.Receive(t, "a worker", done)
	}
	testnet.Eventually(t, "the workers ending", func() bool { return p.idleWorkers() == 0 })
}

// TestClose: no worker is left after Close, and values are still served.
func TestClose(t *testing.T) {
	testnet.NoLeaks(t)
	done := make(chan bool)
	p := Pool[int]{Work: func(int) { done <- true }}
	p.Serve(1)
	testnet.Receive(t, "the worker", done)
	p.Close()
	p.Serve(2)
	testnet.Receive(t, "the worker after Close", done)
	testnet.Eventually(t, "no worker being idle", func() bool { return p.idleWorkers() == 0 })
}

func (p *Pool[T]) idleWorkers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

func TestRing(t *testing.T) {
	var r ring[*int]
	var want []*int
	for i := range 5000 {
		// Longer and longer, and empty again at the end.
		for range 1 + i%3 {
			c := &i
			r.push(c)
			want = append(want, c)
		}
		if got := r.pop(); got != want[0] {
			t.Fatalf("got connection %d, want %d", *got, *want[0])
		}
		want = slices.Delete(want, 0, 1)
		if r.len != len(want) {
			t.Fatalf("got the length %d, want %d", r.len, len(want))
		}
	}
	for _, c := range want {
		if got := r.pop(); got != c {
			t.Fatalf("got connection %d, want %d", *got, *c)
		}
	}
	if r.len != 0 || len(r.array) > ringKept {
		t.Errorf("got %d connections and an array of %d, want none and %d at most", r.len, len(r.array), ringKept)
	}
}
