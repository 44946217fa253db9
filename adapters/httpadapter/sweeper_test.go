package httpadapter

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// newSweptFeed makes a feed that nobody accepts from, and whose sweeper never sweeps
// by itself.
func newSweptFeed() *feed {
	f := &feed{server: new(Server)}
	f.sweeper = newSweeper(never, func() {})
	return f
}

// lendWaiting adds n connections that net/http has had in the state that word says.
func (f *feed) lendWaiting(n int, w word) {
	for range n {
		c := &conn{feed: f, index: -1}
		c.packed.Store(uint32(w))
		f.mu.lent.add(c)
	}
}

func TestOverdue(t *testing.T) {
	const waits = waiting | parkable
	type group struct {
		n     int
		what  word
		since uint32 // ticks ago
	}
	for _, tt := range []struct {
		name      string
		groups    []group
		due       int
		wantLimit uint32
		gap       uint32 // since the last sweep; 0: sweepTicks
	}{
		{"nobody", nil, 0, patience, 0},
		{"not yet", []group{{1, waits, patience - 1}}, 0, patience, 0},
		{"just now", []group{{1, waits, patience}}, 1, patience, 0},
		{"long ago", []group{{1, waits, tickMask}}, 1, patience, 0},
		{"crowd", []group{{crowd, waits, patience - 1}}, 0, patience, 0},
		{"twice the crowd", []group{{crowd, waits, patience/2 - 1}, {crowd, waits, patience / 2}}, crowd, patience / 2, 0},
		{"many times the crowd", []group{{99 * crowd, waits, patienceMin - 1}, {crowd, waits, patienceMin}}, crowd, patienceMin, 0},
		{"lively ones", []group{{9 * crowd, waits | lively, patience - 1}, {1, waits | lively, patience}}, 1, patience, 0},
		{"lively ones among many", []group{{4 * crowd, waits, patience / 4}, {1, waits | lively, patience - 1}}, 4 * crowd, patience / 4, 0},
		{"busy ones", []group{{9 * crowd, sniffed, patience}}, 0, patience, 0},
		{"ones with a part of a request", []group{{9 * crowd, waiting, patience}}, 0, patience, 0},
		{"severed ones", []group{{9 * crowd, waits | severed, patience}}, 0, patience, 0},
		{"after a sweep that came late", []group{{1, waits, patience + 5}, {1, waits | lively, patience + 5}}, 0, patience, patience + 5},
		{"before a sweep that came late", []group{{1, waits, patience + 6}, {1, waits | lively, patience + 6}}, 2, patience, patience + 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, tick := range []uint32{0, 1, patience, tickMask} { // ticks go round
				f := newSweptFeed()
				for _, g := range tt.groups {
					f.lendWaiting(g.n, g.what.to(stateIdle).at((tick-g.since)&tickMask))
				}
				due, limit := f.overdueLocked(tick, cmp.Or(tt.gap, sweepTicks))
				if len(due) != tt.due || limit != tt.wantLimit {
					t.Errorf("at tick %d: got %d overdue, limit %d, want %d, %d", tick, len(due), limit, tt.due, tt.wantLimit)
				}
				for _, o := range due {
					if !o.seen.mayPark() {
						t.Errorf("at tick %d: got %v overdue", tick, o.seen)
					}
				}
			}
		})
	}
}

// TestHurriedSweepsKeepApart: however often a crowd joins, sweeps of many connections
// leave the processor to others.
func TestHurriedSweepsKeepApart(t *testing.T) {
	const n = 100 * crowd
	f := newSweptFeed()
	var sweeps atomic.Int64
	f.sweeper = newSweeper(time.Nanosecond, func() { sweeps.Add(1); f.sweep() })
	f.lendWaiting(n, word(0).to(stateBusy))
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

// TestWord checks that no part of a word gets into another one's way.
func TestWord(t *testing.T) {
	for _, full := range []word{0, ^word(0)} {
		for _, flag := range []word{began, dated, waiting, parkable, severed, lively, sniffed, heading} {
			w := full.to(stateIdle).at(tickMask - 1).withMethod(methodPOST)
			before := fmt.Sprint(w.state(), w.since(0), w.method())
			for range 2 {
				w = w.set(flag)
				if !w.has(flag) || w&^flag != w.clear(flag) || w.clear(flag).has(flag) {
					t.Errorf("flag %b of %b", flag, w)
				}
				if got := fmt.Sprint(w.state(), w.since(0), w.method()); got != before {
					t.Errorf("with flag %b: got %s, want %s", flag, got, before)
				}
				w = w.clear(flag)
			}
		}
		w := full.at(5).to(stateClosed).withMethod(methodOther)
		if w.since(7) != 2 || w.since(4) != tickMask || w.state() != stateClosed || w.method() != methodOther {
			t.Errorf("got state %d, method %d, %d and %d ticks", w.state(), w.method(), w.since(7), w.since(4))
		}
	}
}

// TestRoster compares a roster with a map.
func TestRoster(t *testing.T) {
	var r, other roster
	conns := make([]conn, 5)
	for i := range conns {
		conns[i].index = -1
	}
	for program := range 1 << 10 { // each bit says whether a connection joins or leaves
		in := make(map[*conn]bool)
		for step := range 10 {
			c := &conns[step%len(conns)]
			if program>>step&1 == 1 && !in[c] {
				r.add(c)
				in[c] = true
			} else if got := r.remove(c); got != in[c] {
				t.Fatalf("program %b, step %d: remove reports %t, want %t", program, step, got, in[c])
			} else {
				delete(in, c)
			}
			if len(r) != len(in) {
				t.Fatalf("program %b, step %d: got %d connections, want %d", program, step, len(r), len(in))
			}
			for i, c := range r {
				if !in[c] || int(c.index) != i || other.remove(c) {
					t.Fatalf("program %b, step %d: wrong connection at %d", program, step, i)
				}
			}
		}
		for c := range in {
			r.remove(c)
		}
	}
}

// startNoting is start with a channel for the connections.
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

// severNow ends the wait of c, if it waits. One end may not be enough for it to be
// parked: the engine may wake it again for nothing.
func (c *conn) severNow() {
	if w := c.load(); w.mayPark() {
		c.sever(w)
	}
}

// never is a time to park after which no sweep comes during a test.
const never = 1000 * time.Hour

// TestLively: a connection that was parked in vain has all the patience next time,
// and only then.
func TestLively(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t, ParkAfter(never))
	client := f.dial()
	c := testnet.Receive(t, "the connection", conns)
	for _, tt := range []struct {
		away uint32 // ticks for which it is idle
		want bool
	}{{1, true}, {patience - 1, true}, {patience, false}, {3, true}, {tickMask, false}} {
		client.get("/")
		testnet.Eventually(t, "the connection being parked", func() bool {
			c.severNow()
			c.mu.Lock()
			defer c.mu.Unlock()
			w := c.load()
			return w.state() == stateParked && c.swap(w, w.at((c.feed.sweeper.read()-tt.away)&tickMask))
		})
		client.get("/")
		if got := c.load().has(lively); got != tt.want {
			t.Errorf("back after %d ticks: got lively %t, want %t", tt.away, got, tt.want)
		}
	}
}

// TestSeverOutdated: what the sweeper saw counts only while the same wait goes on.
func TestSeverOutdated(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t, ParkAfter(never))
	f.dial().get("/")
	c := testnet.Receive(t, "the connection", conns)
	testnet.Eventually(t, "net/http waiting", func() bool { return c.load().mayPark() })
	seen := c.load()
	c.swap(seen, seen.at((1-seen.since(0))&tickMask))
	c.sever(seen)
	if w := c.load(); w.has(severed) || w == seen {
		t.Error("a wait was ended that began after the sweep")
	}
	testnet.Eventually(t, "the connection being parked", func() bool {
		c.severNow()
		return f.server.Stats().Parked == 1
	})
}

// TestSweeperRests: nothing ticks while net/http has no connection.
func TestSweeperRests(t *testing.T) {
	needParking(t)
	f, conns := startNoting(t)
	f.dial().get("/")
	feed := testnet.Receive(t, "the connection", conns).feed
	f.awaitParked(1)
	feed.mu.Lock()
	defer feed.mu.Unlock()
	if feed.sweeper.timer.Stop() || len(feed.mu.lent) > 0 {
		t.Errorf("got a running timer, or %d connections lent, want neither", len(feed.mu.lent))
	}
}

// TestSweeperHurries: the next sweep is brought forward once, by a crowd, and anew
// after a pause without connections.
func TestSweeperHurries(t *testing.T) {
	s := newSweeper(never, func() {})
	defer s.timer.Stop()
	for range 2 {
		for n := 1; n <= 2*crowd; n++ {
			s.joinedLocked(n)
			if want := n >= crowd; s.hurried != want {
				t.Fatalf("%d connections: got hurried %t, want %t", n, s.hurried, want)
			}
		}
		s.leftLocked(0)
		if s.timer.Stop() {
			t.Error("the timer runs without connections")
		}
	}
}
