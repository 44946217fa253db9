package admission

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// peer returns one of some addresses.
func peer(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

// enter is what a server does with a request.
func (l *Limiter) enter(p netip.Addr, gone <-chan struct{}) bool { return l.Enter() || l.Wait(p, gone) }

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
		peak, _ := load(New(places, 1000, 30*time.Millisecond), places, 0.9)
		goodput, served := load(New(places, 1000, 30*time.Millisecond), places, 2)
		p99 := served[len(served)*99/100]
		t.Logf("%.0f requests per second at 0.9 of the capacity, %.0f at 2, p99 %v", peak, goodput, p99)
		if goodput < 0.95*places*100 {
			t.Errorf("got %.0f requests per second in time, want 95 %% of %d", goodput, places*100)
		}
		if p99 > 50*time.Millisecond {
			t.Errorf("got a p99 of %v, want 50 ms at most", p99)
		}
		late, _ := load(New(places, 1<<30, time.Hour), places, 2)
		if late > goodput/2 {
			t.Errorf("without a limit of the wait %.0f requests per second were served in time: the load is too low", late)
		}
	})
}

// TestFair: one peer's flood fills the queue, and the single requests of others are served in their
// turn.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 100, time.Hour)
		l.Enter()
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
		l := New(places, 50, 20*time.Millisecond)
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
		if most != places || got.Running != 0 || got.Waiting != 0 || got.Refused == 0 || got.Waited == 0 || len(l.queues) > 0 || l.turn != nil {
			t.Errorf("%d have run at a time, and %+v are left", most, got)
		}
	})
}

// BenchmarkEnter takes a place that is free, and gives it back.
func BenchmarkEnter(b *testing.B) {
	l := New(1<<20, 1, time.Second)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Enter()
			l.Leave()
		}
	})
}
