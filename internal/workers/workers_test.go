package workers

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/line"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMax: no more than Max calls of Work run at a time, and each value is worked on, whether or not
// calls end their goroutines.
func TestMax(t *testing.T) {
	testnet.NoLeaks(t)
	const values = 20 * TurnsMax
	for most := 1; most <= 4; most++ {
		for name, leave := range map[string]func(n int){
			"all return": func(int) {},
			"some end":   func(n int) { endSome(n, 7, 10) },
			"all end":    func(n int) { endSome(n, 1, 2) },
		} {
			var running, sum atomic.Int64
			var done sync.WaitGroup
			p := Pool[int]{Max: most, Work: func(n int) {
				defer done.Done()
				if got := running.Add(1); got > int64(most) {
					t.Errorf("%s: got %d calls of Work at a time, want %d at most", name, got, most)
				}
				defer running.Add(-1)
				sum.Add(int64(n))
				runtime.Gosched()
				leave(n)
			}}
			for n := range values {
				done.Add(1)
				p.Serve(n + 1)
			}
			testnet.Within(t, "the work", done.Wait)
			p.Close()
			if got, want := sum.Load(), int64(values*(values+1)/2); got != want {
				t.Errorf("%d at a time, %s: the values' sum is %d, want %d", most, name, got, want)
			}
		}
	}
}

// endSome ends the goroutine if a divides n, and locks it to its thread if b does.
func endSome(n, a, b int) {
	if n%b == 0 {
		runtime.LockOSThread()
	} else if n%a == 0 {
		runtime.Goexit()
	}
}

// TestPassesNothing: the goroutine that calls Work has none of the state that an earlier Work left
// behind.
func TestPassesNothing(t *testing.T) {
	testnet.NoLeaks(t)
	const n = 200
	found := make(chan string)
	p := Pool[int]{Work: func(i int) {
		found <- state()
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("user", "alice")))
		debug.SetPanicOnFault(true)
		if i%2 == 0 {
			runtime.LockOSThread()
		}
	}}
	for i := range n {
		p.Serve(i + 1)
		if got := testnet.Receive(t, "the work", found); got != "" {
			t.Fatalf("work %d found %s", i+1, got)
		}
	}
	p.Close()
}

// state describes how the state of the goroutine differs from that of a new one.
func state() (s string) {
	var stack [128]byte
	line, _, _ := strings.Cut(string(stack[:runtime.Stack(stack[:], false)]), "\n")
	if strings.Contains(line, "locked to thread") {
		s += " a locked thread"
	}
	if debug.SetPanicOnFault(false) {
		s += " SetPanicOnFault"
	}
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for g := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(g, "workers.state") && strings.Contains(g, "# labels: ") {
			s += " labels"
		}
	}
	return s
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

// TestLook: a worker that has nothing to do calls Look with the connection that it served last, and
// serves what it finds itself.
func TestLook(t *testing.T) {
	testnet.NoLeaks(t)
	const last = 100
	var p Pool[int]
	var served, looked []int
	done := make(chan bool)
	p.Work = func(n int) { served = append(served, n) }
	p.Look = func(n int, linger bool) {
		if linger {
			return // processors are crowded
		}
		looked = append(looked, n)
		switch {
		case n < last:
			p.Serve(n + 1)
		case looked[len(looked)-1] == last && len(looked) == last:
			close(done)
		}
	}
	p.Serve(1)
	testnet.Receive(t, "the last look", done)
	n := 0
	testnet.Eventually(t, "the worker being idle", func() bool { n = p.idleWorkers(); return n > 0 }) // later it ends
	if n != 1 {
		t.Errorf("got %d workers, want 1", n)
	}
	p.Close()
	for i := range last {
		if served[i] != i+1 || looked[i] != i+1 {
			t.Fatalf("served %v, looked with %v, want 1 to %d each", served, looked, last)
		}
	}
}

// TestLookMany: each of several connections that Look finds is served once, and so is each
// connection that arrives at the same time, whether or not Work ends its goroutine.
func TestLookMany(t *testing.T) {
	testnet.NoLeaks(t)
	const rounds, values = 50, 20
	var sum, calls, found atomic.Int64
	var done sync.WaitGroup
	var p Pool[int]
	p.Work = func(n int) {
		defer done.Done()
		sum.Add(int64(n))
		runtime.Gosched()
		if calls.Add(1)%7 == 0 {
			runtime.Goexit()
		}
	}
	p.Look = func(int, bool) {
		for range 3 {
			if n := found.Add(-1); n >= 0 {
				p.Serve(1)
			}
		}
	}
	for range rounds {
		done.Add(2 * values)
		found.Store(values)
		for range values {
			p.Serve(1)
		}
		testnet.Eventually(t, "all being found", func() bool {
			if found.Load() <= 0 {
				return true
			}
			done.Add(1)
			sum.Add(-2)
			p.Serve(2)
			return false
		})
	}
	testnet.Within(t, "the work", done.Wait)
	p.Close()
	if got, want := sum.Load(), int64(rounds*2*values); got != want {
		t.Errorf("the values' sum: got %d, want %d", got, want)
	}
}

// socket is a Socket whose event EndDirect finds.
type socket struct {
	begin bool
	wait  func() bool
	end   func()
}

func (s socket) BeginDirect() bool  { return s.begin }
func (s socket) WaitDirectly() bool { return s.wait() }
func (s socket) EndDirect()         { s.end() }

// TestDirect: a worker that waits directly serves itself what it finds. Meanwhile others serve what
// comes in another way.
func TestDirect(t *testing.T) {
	testnet.NoLeaks(t)
	const last = 100
	var p Pool[int]
	served := make(chan int, 1)
	waits, goOn := make(chan int), make(chan bool)
	p.Work = func(n int) { served <- n }
	p.Look = func(int, bool) {}
	p.Socket = func(n int) Socket {
		if n < 0 {
			return nil
		}
		return socket{
			n != last,
			func() bool {
				waits <- n
				return <-goOn
			},
			func() { p.Serve(n + 1) },
		}
	}
	p.Serve(1)
	for n := 1; ; n++ {
		if got := testnet.Receive(t, "a turn", served); got != n {
			t.Fatalf("served %d, want %d", got, n)
		}
		if n == last {
			break
		}
		testnet.Receive(t, "a direct wait", waits)
		if n%10 == 0 {
			p.Serve(-n)
			if got := testnet.Receive(t, "another's turn", served); got != -n {
				t.Fatalf("served %d, want %d", got, -n)
			}
		}
		goOn <- n%3 != 0 // without an event another worker serves what comes
	}
	testnet.Eventually(t, "the workers being idle", func() bool { return p.idleWorkers() > 0 })
	p.Close()
}

// TestLinger: while processors are crowded, a worker that finds nothing waits for a moment.
func TestLinger(t *testing.T) {
	testnet.NoLeaks(t)
	var p Pool[int]
	served := make(chan int, 2)
	p.Work = func(n int) { served <- n }
	lingered := false
	p.Look = func(n int, linger bool) {
		if linger && !lingered {
			lingered = true
			p.Serve(2)
		}
	}
	crowd(&p.line)
	p.Serve(1)
	for want := 1; want <= 2; want++ {
		if got := testnet.Receive(t, "a turn", served); got != want {
			t.Errorf("served: got %d, want %d", got, want)
		}
	}
	p.Close()
}

// crowd makes l find that processors are crowded.
func crowd(l *line.Line) {
	testnet.BesideComputing(func() {
		for !l.Crowded() {
			l.Stand(func() uint64 { return 0 })
		}
	})
}
