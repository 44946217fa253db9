package admission

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// peer returns one of some addresses.
func peer(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

// enter is what a server does with a request.
func (l *Limiter) enter(p netip.Addr, gone <-chan struct{}) bool {
	return l.TryEnter() || l.Enter(p, gone)
}

// load sends requests to a Limiter whose handlers take 10 ms, at a rate that is a multiple of what they
// can serve, for ten seconds. It returns how many were served in time, per second, and the latencies of
// those.
func load(l *Limiter, places int, multiple float64) (goodput float64, served []time.Duration) {
	const work, target, seconds = 10 * time.Millisecond, 50 * time.Millisecond, 10
	capacity := float64(places) / work.Seconds()
	n := int(capacity * multiple * seconds)
	var mu sync.Mutex
	var wg sync.WaitGroup
	good := 0
	for i := range n {
		time.Sleep(time.Duration(rand.ExpFloat64() * float64(time.Second) / (capacity * multiple)))
		wg.Go(func() {
			begin := time.Now()
			if !l.enter(peer(i%50), nil) {
				return
			}
			time.Sleep(work)
			l.Leave()
			took := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			served = append(served, took)
			if took <= target {
				good++
			}
		})
	}
	wg.Wait()
	slices.Sort(served)
	return float64(good) / seconds, served
}

// TestOverload: at twice the load that handlers can serve, as many requests are served in time as can
// be, and the 99th percentile of those served is within the target. Without a limit of the wait, none
// would be. Time is the bubble's.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 8
		peak, _ := load(New(Limits{Handlers: places, Wait: 30 * time.Millisecond}), places, 0.9)
		goodput, served := load(New(Limits{Handlers: places, Wait: 30 * time.Millisecond}), places, 2)
		p99 := served[len(served)*99/100]
		t.Logf("%.0f requests per second at 0.9 of the capacity, %.0f at 2, p99 %v", peak, goodput, p99)
		if goodput < 0.95*places*100 {
			t.Errorf("got %.0f requests per second in time, want 95 %% of %d", goodput, places*100)
		}
		if p99 > 50*time.Millisecond {
			t.Errorf("got a p99 of %v, want 50 ms at most", p99)
		}
		late, _ := load(New(Limits{Handlers: places, Queue: 1 << 30, Wait: time.Hour}), places, 2)
		if late > goodput/2 {
			t.Errorf("without a limit of the wait %.0f requests per second were served in time: the load is too low", late)
		}
	})
}

// TestFair: one peer's flood fills the queue, and the single requests of others are served in their
// turn.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Handlers: 1, Queue: 100, Wait: time.Hour})
		l.TryEnter()
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if l.enter(peer(0), nil) {
					time.Sleep(time.Second)
					l.Leave()
				}
			})
		}
		synctest.Wait()
		if got := (Stats{Running: 1, Waiting: 100, Refused: 200}); l.Stats() != got {
			t.Errorf("got %+v of the flood, want %+v", l.Stats(), got)
		}
		begin := time.Now()
		for i := range 20 {
			wg.Go(func() {
				if !l.enter(peer(1+i), nil) {
					t.Errorf("peer %d is refused", 1+i)
					return
				}
				if waited := time.Since(begin); waited > 21*time.Second {
					t.Errorf("peer %d has waited for %v", 1+i, waited)
				}
				time.Sleep(time.Second)
				l.Leave()
			})
		}
		synctest.Wait()
		if got := l.Stats(); got.Waiting != 100 || got.Refused != 220 {
			t.Errorf("got %+v, want the flood's youngest to have made room", got)
		}
		l.Leave()
		wg.Wait()
		if got := (Stats{Waited: 100, Refused: 220}); l.Stats() != got {
			t.Errorf("got %+v at the end, want %+v", l.Stats(), got)
		}
	})
}

// TestGone: a request whose client goes, or that waits for too long, leaves the queue, also at the
// moment when a place is free. No place is lost.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 3
		l := New(Limits{Handlers: places, Queue: 50, Wait: 20 * time.Millisecond})
		var wg sync.WaitGroup
		var running, most int
		var mu sync.Mutex
		for i := range 5000 {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			wg.Go(func() {
				gone := make(chan struct{})
				timer := time.AfterFunc(time.Duration(rand.IntN(30))*time.Millisecond, func() { close(gone) })
				defer timer.Stop()
				if !l.enter(peer(i%7), gone) {
					return
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
				l.Leave()
			})
		}
		wg.Wait()
		got := l.Stats()
		if most != places || got.Running != 0 || got.Waiting != 0 || got.Refused == 0 || got.Waited == 0 || len(l.queues) > 0 || l.longest > 0 || len(l.turns) > 0 {
			t.Errorf("%d have run at a time, and %+v are left", most, got)
		}
	})
}

// TestLongest: whatever comes and goes, the length of the longest queue is known, and all have a turn.
func TestLongest(t *testing.T) {
	l := New(Limits{Handlers: 1, Queue: 60})
	l.TryEnter()
	for range 20_000 {
		p := accepting.Peer(peer(rand.IntN(1 + rand.IntN(40))))
		if q := l.queues[p]; rand.IntN(10) == 0 {
			l.Leave()
			if l.running() == 0 {
				l.TryEnter()
			}
		} else if q != nil && rand.IntN(5) == 0 {
			l.giveUp(p, q.waiters[rand.IntN(len(q.waiters))], true)
		} else {
			l.join(p)
		}
		longest, n := 0, 0
		for _, q := range l.queues {
			longest, n = max(longest, len(q.waiters)), n+len(q.waiters)
		}
		if len(l.turns) != len(l.queues) || n != l.waiting() || n > 60 || l.longest != longest {
			t.Fatalf("%d wait in %d queues and %d turns, want %d; the longest has %d, and should have %d",
				n, len(l.queues), len(l.turns), l.waiting(), longest, l.longest)
		}
	}
}

// BenchmarkEnter takes a place that is free, and gives it back.
func BenchmarkEnter(b *testing.B) {
	l := New(Limits{Handlers: 1 << 20})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.TryEnter()
			l.Leave()
		}
	})
}

// TestArguments: limits that can't be meant, and a Leave too many, are refused.
func TestArguments(t *testing.T) {
	l := New(Limits{Handlers: 1})
	if got, want := l.Limits(), (Limits{Handlers: 1, Wait: time.Second, Queue: 1000}); got != want {
		t.Errorf("got the limits %+v, want %+v", got, want)
	}
	l = New(Limits{Handlers: 1, Wait: time.Millisecond})
	testnet.CheckArguments(t, map[string]testnet.Call{
		"New":           {Func: New},
		"Limiter.Enter": {Func: l.Enter, Nils: "gone"},
	})
	for _, f := range []func(){
		func() { New(Limits{}) },
		func() { New(Limits{Handlers: -1}) },
		func() { New(Limits{Handlers: 1, Queue: -1}) },
		func() { New(Limits{Handlers: 1, Wait: -1}) },
		func() { New(Limits{Handlers: 1}).Leave() },
	} {
		func() {
			defer func() {
				if reason, _ := recover().(string); !strings.HasPrefix(reason, "admission: ") {
					t.Errorf("got the panic %q, want one of this package's", reason)
				}
			}()
			f()
		}()
	}
}

// TestMetrics: the process has the sums over its Limiters.
func TestMetrics(t *testing.T) {
	read := func(name string) (v float64) {
		for _, a := range percore.ReadStats().Adapters {
			for _, m := range a.Metrics {
				if a.Adapter == "admission" && m.Name == name {
					v = m.Value
				}
			}
		}
		return v
	}
	running, refused := read("running_handlers"), read("refused_requests_total")
	l, gone := New(Limits{Handlers: 1, Wait: time.Nanosecond}), New(Limits{Handlers: 1})
	l.TryEnter()
	gone.TryEnter()
	l.Enter(peer(0), nil)
	if r, n := read("running_handlers")-running, read("refused_requests_total")-refused; r != 2 || n != 1 {
		t.Errorf("got %v running handlers and %v refused requests more, want 2 and 1", r, n)
	}
	l.Leave()
	gone.Leave()
	if r := read("running_handlers") - running; r != 0 {
		t.Errorf("got %v running handlers more at the end, want 0", r)
	}
}

// BenchmarkRefuse refuses requests while as many wait as may, of as many clients.
func BenchmarkRefuse(b *testing.B) {
	l := New(Limits{Handlers: 1, Wait: time.Hour})
	l.TryEnter()
	gone := make(chan struct{})
	var wg sync.WaitGroup
	for i := range l.Limits().Queue {
		wg.Go(func() { l.Enter(peer(i), gone) })
	}
	testnet.Eventually(b, "the queue is full", func() bool { return l.Stats().Waiting == l.Limits().Queue })
	for i := 0; b.Loop(); i++ {
		l.Enter(peer(2000+i%1000), gone)
	}
	close(gone)
	wg.Wait()
}
