package httpadapter

import (
	"cmp"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/testnet"
)

// newSweptQueue makes a queue that has no acceptor, and whose sweeper never sweeps by itself.
func newSweptQueue() *connQueue {
	q := &connQueue{call: &serveCall{way: probe.Once}, server: Wrap(new(http.Server))}
	q.counts = q.server.counts
	q.sweeper = newSweeper(never, func() {})
	return q
}

// lendWaiting adds n connections that net/http has had in the given state.
func (q *connQueue) lendWaiting(n int, s leaseState) {
	for range n {
		c := &conn{queue: q, index: -1}
		c.packed.Store(uint32(s))
		q.mu.leased.add(c)
	}
}

func TestOverdue(t *testing.T) {
	const (
		waits       = waiting | parkable
		waitsAgain  = waits | recentlyUsed
		parkTicksIn = parkTicks / 4 // in a crowd of four times crowdMin
	)
	type group struct {
		n     int
		what  leaseState
		since uint32 // ticks ago
	}
	for _, tt := range []struct {
		name      string
		groups    []group
		due       int
		wantLimit uint32
		gap       uint32 // since the last sweep; 0: sweepTicks
	}{
		{"nobody", nil, 0, parkTicks, 0},
		{"not yet", []group{{1, waits, parkTicks - 1}}, 0, parkTicks, 0},
		{"just now", []group{{1, waits, parkTicks}}, 1, parkTicks, 0},
		{"long ago", []group{{1, waits, tickMask}}, 1, parkTicks, 0},
		{"crowd", []group{{crowdMin, waits, parkTicks - 1}}, 0, parkTicks, 0},
		{"twice the crowd", []group{{crowdMin, waits, parkTicks/2 - 1}, {crowdMin, waits, parkTicks / 2}}, crowdMin, parkTicks / 2, 0},
		{"many times the crowd", []group{{99 * crowdMin, waits, parkTicksMin - 1}, {crowdMin, waits, parkTicksMin}}, crowdMin, parkTicksMin, 0},
		{"recently used, not yet", []group{{1, waitsAgain, parkTicksRecent - 1}}, 0, parkTicks, 0},
		{"recently used", []group{{9 * crowdMin, waitsAgain, parkTicksRecent - 1}, {1, waitsAgain, parkTicksRecent}}, 1, parkTicks, 0},
		{"recently used among many", []group{{4 * crowdMin, waits, parkTicksIn}, {1, waitsAgain, parkTicksRecent - 1}}, 4 * crowdMin, parkTicksIn, 0},
		{"busy ones", []group{{9 * crowdMin, sniffed, parkTicks}}, 0, parkTicks, 0},
		{"ones with a part of a request", []group{{9 * crowdMin, waiting, parkTicks}}, 0, parkTicks, 0},
		{"expired ones", []group{{9 * crowdMin, waits | expired, parkTicks}}, 0, parkTicks, 0},
		{"after a sweep that came late", []group{{1, waits, 200}, {1, waitsAgain, 200}}, 0, parkTicks, 200},
		{"before a sweep that came late", []group{{1, waits, 201}, {1, waitsAgain, 201}}, 2, parkTicks, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, tick := range []uint32{0, 1, parkTicks, tickMask} { // ticks go round
				f := newSweptQueue()
				for _, g := range tt.groups {
					f.lendWaiting(g.n, g.what.to(phaseIdle).at((tick-g.since)&tickMask))
				}
				due := make(map[*conn]bool)
				limit := f.parkOverdue(tick, cmp.Or(tt.gap, sweepTicks), func(c *conn, seen leaseState) {
					due[c] = true
					if !seen.mayPark() {
						t.Errorf("at tick %d: got %v overdue", tick, seen)
					}
				})
				if len(due) != tt.due || limit != tt.wantLimit {
					t.Errorf("at tick %d: got %d overdue, limit %d, want %d, %d", tick, len(due), limit, tt.due, tt.wantLimit)
				}
			}
		})
	}
}

// traffic is the requests of some connections over a time counted in ticks. Each connection waits,
// sends its next request, and waits again. They have no sockets; the queue, the states and the
// sweeper are the real ones.
type traffic struct {
	*connQueue
	conns []trafficConn
	tick  uint32
	parks int
}

type trafficConn struct {
	*conn
	next uint32 // when its next request comes
}

func newTraffic(n int) *traffic {
	tr := &traffic{connQueue: newSweptQueue()}
	tr.lendWaiting(1, leaseState(leased(phaseBusy))) // so that the clock is never read
	for range n {
		c := &conn{queue: tr.connQueue, index: -1}
		c.packed.Store(uint32(in(stateQueued)))
		tr.conns = append(tr.conns, trafficConn{conn: c})
	}
	return tr
}

// request is a request and its answer.
func (c *trafficConn) request() {
	c.change(connState.enqueue)
	if c.state() == stateQueued {
		c.leaseOut()
		c.beginWait(probe.ReadBytes)
	}
	_, _ = c.endWait([]byte("GET / "), probe.ReadBytes, nil)
	c.changeLease(leaseState.readMore)
	_ = c.SetWriteDeadline(time.Time{})
	c.changeLease(leaseState.finish)
	_ = c.SetReadDeadline(time.Time{})
	c.beginWait(probe.ReadBytes)
}

// park gives the connection back, as expireRead, net/http and leaseClosed do.
func (tr *traffic) park(c *conn, seen leaseState) {
	c.expireRead(seen)
	if _, err := c.endWait(nil, probe.ReadBytes, os.ErrDeadlineExceeded); err != io.EOF {
		return
	}
	c.endLease()
	c.keepLocked()
	tr.parks++
}

// run lets some time pass, with sweeps and requests. pause returns how long each connection waits
// before its next request. run returns how many requests there were.
func (tr *traffic) run(ticks uint32, pause func() uint32) (requests int) {
	for end := tr.tick + ticks; tr.tick != end; tr.tick++ {
		if tr.tick%sweepTicks == 0 {
			gap := tr.tick - tr.sweeper.ticks.Load()
			tr.sweeper.ticks.Store(tr.tick)
			tr.parkOverdue(tr.tick, gap, tr.park)
		}
		for i := range tr.conns {
			if c := &tr.conns[i]; c.next == tr.tick && pause != nil {
				c.request()
				c.next += pause()
				requests++
			}
		}
	}
	return requests
}

// TestSparseTraffic: connections that send a request now and then are parked once, however many
// they are. They may send less often than it takes to park. All are parked soon after they have
// gone quiet, within a second by default.
func TestSparseTraffic(t *testing.T) {
	const (
		conns  = 600 // many times crowdMin
		second = uint32(ticksToPark * time.Second / DefaultParkAfter)
	)
	rng := rand.New(rand.NewPCG(1, 0))
	between := func(least, most uint32) func() uint32 {
		return func() uint32 { return least + rng.Uint32N(most-least+1) }
	}
	for _, tt := range []struct {
		name        string
		least, most uint32 // between two requests
		once        bool   // each is parked after its first request, and not again
	}{
		{"0.2 to 0.6 s", second / 5, second * 3 / 5, true},
		{"0.02 to 0.06 s", second / 50, second * 3 / 50, true},
		{"5 s", 5 * second, 5 * second, false}, // rare enough to be worth its memory
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTraffic(conns)
			for i := range tr.conns {
				tr.conns[i].next = rng.Uint32N(tt.most)
			}
			requests := tr.run(5*tt.most, between(tt.least, tt.most))
			t.Logf("%d connections, %d requests, %d parks", conns, requests, tr.parks)
			if tt.once && tr.parks > conns {
				t.Errorf("got %d parks of %d connections in steady use", tr.parks, conns)
			}
			if !tt.once && tr.parks < requests-conns {
				t.Errorf("got %d parks in %d requests, want one after each", tr.parks, requests)
			}
			tr.run(second, nil)
			for i := range tr.conns {
				if got := tr.conns[i].state(); got != stateParked {
					t.Fatalf("connection %d is in state %d a second after its last request, want %d, parked", i, got, stateParked)
				}
			}
		})
	}
}

// TestSweepHoldsNobodyUp: however many connections there are, a sweep examines and parks them
// without holding the queue's lock.
func TestSweepHoldsNobodyUp(t *testing.T) {
	const n = 10 * connsPerChunk
	f := newSweptQueue()
	f.lendWaiting(n, (waiting | parkable).to(phaseIdle))
	parked := 0
	f.parkOverdue(parkTicksRecent, 1, func(c *conn, _ leaseState) {
		if !f.mu.TryLock() {
			t.Fatal("the queue's lock is held")
		}
		f.mu.leased.remove(c)
		f.mu.Unlock()
		parked++
	})
	if parked != n || f.mu.leased.len != 0 {
		t.Errorf("got %d parked, %d left, want %d and none", parked, f.mu.leased.len, n)
	}
	var part [connsPerChunk]*conn
	f.lendWaiting(n, 0)
	for left, end := n, n+1; end > 0; {
		var got int
		if got, end = f.mu.leased.slice(&part, end); got > connsPerChunk || got < min(left, connsPerChunk) {
			t.Fatalf("got a slice of %d of %d connections, want %d at most", got, left, connsPerChunk)
		}
		left -= connsPerChunk
	}
}

// TestHurriedSweepsKeepApart: however often a crowd joins, sweeps of many connections leave CPU
// time to others.
func TestHurriedSweepsKeepApart(t *testing.T) {
	const n = 100 * crowdMin
	f := newSweptQueue()
	var sweeps atomic.Int64
	f.sweeper = newSweeper(time.Nanosecond, func() { sweeps.Add(1); f.sweep() })
	f.lendWaiting(n, leaseState(leased(phaseBusy)))
	begin := time.Now()
	for time.Since(begin) < 20*n*pausePerConn {
		f.mu.Lock()
		f.sweeper.joinedLocked(n)
		f.mu.Unlock()
		time.Sleep(10 * time.Microsecond)
	}
	f.mu.Lock()
	f.sweeper.timer.Stop()
	f.mu.Unlock()
	if got, most := sweeps.Load(), int64(time.Since(begin)/(n*pausePerConn))+1; got > most {
		t.Errorf("got %d sweeps, want %d at most", got, most)
	}
}

// TestConnSet compares a connSet with a map.
func TestConnSet(t *testing.T) {
	var s, other connSet
	rng := rand.New(rand.NewPCG(1, 0))
	conns := make([]conn, 5*connsPerChunk)
	for i := range conns {
		conns[i].index = -1
	}
	in := make(map[*conn]bool)
	for step := range 200 * len(conns) {
		c := &conns[rng.IntN(len(conns))]
		// The number goes up and down, from 0 to all and back.
		if grows := step/(10*len(conns))%2 == 0; grows && !in[c] {
			s.add(c)
			in[c] = true
		} else if !grows || rng.IntN(4) == 0 {
			if got := s.remove(c); got != in[c] {
				t.Fatalf("step %d: remove reports %t, want %t", step, got, in[c])
			}
			delete(in, c)
		}
		if s.len != len(in) || other.remove(c) {
			t.Fatalf("step %d: got %d connections, want %d", step, s.len, len(in))
		}
		if spare := len(s.chunks) - (s.len+connsPerChunk-1)/connsPerChunk; spare < 0 || spare > 1 {
			t.Fatalf("step %d: got %d chunks for %d connections", step, len(s.chunks), s.len)
		}
		if step%connsPerChunk != 0 {
			continue
		}
		for i := range len(s.chunks) * connsPerChunk {
			if c := *s.at(i); (i < s.len) != in[c] || c != nil && int(c.index) != i {
				t.Fatalf("step %d: wrong connection at %d of %d", step, i, s.len)
			}
		}
	}
}

// TestConnSetSlices: while connections join and leave, the ones that stay are seen.
func TestConnSetSlices(t *testing.T) {
	var part [connsPerChunk]*conn
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var s connSet
		conns := make([]conn, 1+rng.IntN(5*connsPerChunk))
		stays := make(map[*conn]bool)
		for i := range conns {
			s.add(&conns[i])
			stays[&conns[i]] = true
		}
		seen := make(map[*conn]bool)
		for n, end := 0, math.MaxInt; ; {
			n, end = s.slice(&part, end)
			for _, c := range part[:n] {
				seen[c] = true
			}
			if end == 0 {
				break
			}
			for range rng.IntN(2 * connsPerChunk) {
				c := &conns[rng.IntN(len(conns))]
				if s.remove(c) {
					delete(stays, c)
				} else {
					s.add(c)
				}
			}
		}
		for c := range stays {
			if !seen[c] {
				t.Fatalf("seed %d: connection %d was not seen", seed, c.index)
			}
		}
	}
}

// startNoting is like start, with a channel for the connections.
func startNoting(t *testing.T, opts ...Option) (*fixture, <-chan *conn) {
	conns := make(chan *conn, 1)
	f := start(t, echoPath, func(f *fixture) {
		f.srv.ConnState = func(nc net.Conn, state http.ConnState) {
			f.connState(nc, state)
			if state == http.StateNew {
				conns <- nc.(*conn)
			}
		}
	}, opts...)
	return f, conns
}

// expireNow ends the wait of c, if it is waiting. To park it may take more than one call: the
// engine may wake it again needlessly.
func (c *conn) expireNow() {
	if w := c.lease(); w.mayPark() {
		c.expireRead(w)
	}
}

// never is a time to park so long that no sweep comes during a test.
const never = 1000 * time.Hour

// TestRecentlyUsed: a connection that was parked needlessly waits longer the next time, and only
// then.
func TestRecentlyUsed(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t, ParkAfter(never))
	client := f.dial()
	c := testnet.Receive(t, "the connection", conns)
	for _, tt := range []struct {
		away uint32 // ticks for which it is idle
		want bool
	}{{1, true}, {parkTicksRecent - 1, true}, {parkTicksRecent, false}, {3, true}, {tickMask, false}} {
		client.get("/")
		testnet.Eventually(t, "the connection being parked", func() bool {
			c.expireNow()
			c.mu.Lock()
			defer c.mu.Unlock()
			w := c.load()
			return w.state() == stateParked && c.swap(w, at(w, (c.queue.sweeper.read()-tt.away)&tickMask))
		})
		client.get("/")
		if got := c.lease().has(recentlyUsed); got != tt.want {
			t.Errorf("back after %d ticks: got recently used %t, want %t", tt.away, got, tt.want)
		}
	}
}

// TestExpireOutdated: what the sweeper has seen counts only while the same wait continues.
func TestExpireOutdated(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t, ParkAfter(never))
	f.dial().get("/")
	c := testnet.Receive(t, "the connection", conns)
	testnet.Eventually(t, "net/http waiting", func() bool { return c.lease().mayPark() })
	seen := c.lease()
	c.swapLease(seen, seen.at((1-seen.since(0))&tickMask))
	c.expireRead(seen)
	if w := c.lease(); w.has(expired) || w == seen {
		t.Error("a wait was ended that began after the sweep")
	}
	testnet.Eventually(t, "the connection being parked", func() bool {
		c.expireNow()
		return f.server.Stats().Parked == 1
	})
}

// TestSweeperRests: nothing ticks while net/http has no connections.
func TestSweeperRests(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t)
	f.dial().get("/")
	queue := testnet.Receive(t, "the connection", conns).queue
	f.awaitParked(1)
	queue.mu.Lock()
	defer queue.mu.Unlock()
	if queue.sweeper.timer.Stop() || queue.mu.leased.len > 0 {
		t.Errorf("got a running timer, or %d connections lent, want neither", queue.mu.leased.len)
	}
}

// TestSweeperHurries: a crowd brings the next sweep forward once, and again after a pause without
// connections.
func TestSweeperHurries(t *testing.T) {
	s := newSweeper(never, func() {})
	defer s.timer.Stop()
	for range 2 {
		for n := 1; n <= 2*crowdMin; n++ {
			s.joinedLocked(n)
			if want := n >= crowdMin; s.hurried != want {
				t.Fatalf("%d connections: got hurried %t, want %t", n, s.hurried, want)
			}
		}
		s.leftLocked(0)
		if s.timer.Stop() {
			t.Error("the timer runs without connections")
		}
	}
}
