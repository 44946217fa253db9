package serving

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// clientOf is a connection of a client.
type clientOf struct {
	net.Conn
	number int
}

func (c clientOf) RemoteAddrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(c.number >> 8), byte(c.number)}), 1)
}

// shaking is what becomes of handshakes.
type shaking struct {
	s         *Handshakes
	under     sync.WaitGroup
	done, cut atomic.Int64
}

// begin begins handshakes of a client that answers after a time, or never if that is 0.
func (k *shaking) begin(conns, client int, answers time.Duration) (allDone <-chan bool) {
	var under sync.WaitGroup
	for range conns {
		k.under.Add(1)
		under.Add(1)
		closed := make(chan bool)
		k.s.Enter(clientOf{number: client}, &Handshake{
			Do: func(h *Handshake) {
				defer k.under.Done()
				defer under.Done()
				answer := make(<-chan time.Time)
				if answers > 0 {
					answer = time.After(answers)
				}
				h.Wait()
				select {
				case <-answer:
				case <-closed:
				}
				h.Resume()
				if h.Finish() {
					k.done.Add(1)
				}
			},
			Cut: func() {
				k.cut.Add(1)
				close(closed)
			},
		})
	}
	end := make(chan bool)
	go func() {
		under.Wait()
		close(end)
	}()
	return end
}

// TestStorm: when 10,000 clients of one address come back at once all of them get in, whether they
// answer soon or late. They wait, and none is cut off.
func TestStorm(t *testing.T) {
	for _, answers := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 10 * time.Second} {
		t.Run(answers.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &shaking{s: NewDefaultHandshakes()}
				<-k.begin(10_000, 1, answers)
				if done, cut := k.done.Load(), k.cut.Load(); done != 10_000 || cut != 0 {
					t.Errorf("%d were done and %d cut off, want 10000 and none", done, cut)
				}
			})
		})
	}
}

// TestFlood: clients whose handshakes never go on, of one address or many, keep no other client from its
// handshake for long, and cut none off that takes long.
func TestFlood(t *testing.T) {
	const most, young, conns = 1024, 64, 2000
	for _, c := range []struct {
		name  string
		peers int
		waits time.Duration // of an honest client, at most
	}{
		{"one address", 1, 2 * sweepTime},
		{"many addresses", 200, youngTime + 2*sweepTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &shaking{s: NewHandshakes(most, young)}
				for peer := range c.peers {
					k.begin(conns/c.peers, 1+peer, 0)
				}
				for _, answers := range []time.Duration{time.Millisecond, 2 * time.Second} {
					time.Sleep(time.Minute) // so that all places are full
					before := k.done.Load()
					begun := time.Now()
					<-k.begin(1, 1000, answers)
					if took := time.Since(begun) - answers; k.done.Load() != before+1 || took > c.waits {
						t.Errorf("an honest client's handshake took %v more than its %v; done: %t; want at most %v, and done",
							took, answers, k.done.Load() == before+1, c.waits)
					}
				}
				k.s.Close()
				k.under.Wait()
			})
		})
	}
}

// TestYoungTime: the more handshakes wait, the sooner those under way give their places up.
func TestYoungTime(t *testing.T) {
	for waiting, want := range map[int]time.Duration{0: time.Second, 8: time.Second / 2, 24: time.Second / 4, 1000: time.Second / 4} {
		s := NewHandshakes(100, 8)
		s.waiting = waiting
		if got := s.youngTimeLocked(); got != want {
			t.Errorf("%d wait for 8 places: got %v, want %v", waiting, got, want)
		}
	}
}

// TestBlockedHandshake: functions of the program's that wait, as GetCertificate may, keep no other
// handshake from its own, and none of theirs is given up.
func TestBlockedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHandshakes(8, 4)
		s.permits = 2
		goOn := make(chan bool)
		var under sync.WaitGroup
		for range 4 {
			under.Add(1)
			s.Enter(clientOf{number: 1}, &Handshake{Do: func(h *Handshake) {
				defer under.Done()
				<-goOn
				if !h.Finish() {
					t.Error("a handshake that waits for the program was given up")
				}
			}})
		}
		for client := range 8 {
			k := &shaking{s: s}
			<-k.begin(1, 2+client, time.Millisecond)
		}
		close(goOn)
		under.Wait()
	})
}

// TestTurns: where handshakes wait for permits those that have begun go first, and then peers take
// turns: the one that has come last, and the one that has waited for longest.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHandshakes(8, 8)
		s.permits = 1
		var order []int
		enter := func(client int, do func(h *Handshake)) {
			s.Enter(clientOf{number: client}, &Handshake{Do: func(h *Handshake) {
				order = append(order, client)
				do(h)
			}})
		}
		compute := func(*Handshake) { time.Sleep(permitTime / 2) }
		enter(1, func(h *Handshake) {
			h.Wait()
			time.Sleep(permitTime / 4) // until all others have come
			h.Resume()
			order = append(order, 10)
		})
		synctest.Wait()
		for range 3 {
			enter(2, compute)
		}
		enter(3, compute)
		enter(3, compute)
		enter(4, compute)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []int{1, 2, 10, 4, 2, 3, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("got %d, want %d", order, want)
		}
	})
}

// TestShares: a peer has its share of the places for young handshakes, and others have the rest. Where
// all places are taken by handshakes that stop as many are given up as wait: those of the peer that has
// the most, and the oldest first.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHandshakes(8, 4)
		var cut []int
		enter := func(client, name int) {
			end := make(chan bool)
			s.Enter(clientOf{number: client}, &Handshake{
				Do: func(h *Handshake) { h.Wait(); <-end; h.Resume() },
				Cut: func() {
					cut = append(cut, name)
					close(end)
				},
			})
		}
		wantRunning := func(want int) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.running) != want {
				t.Errorf("%d are under way, want %d", len(s.running), want)
			}
		}
		for i := range 6 {
			enter(1, i)
		}
		wantRunning(2)
		time.Sleep(youngTime + sweepTime)
		wantRunning(4)
		for i := range 4 {
			enter(2, 10+i)
		}
		wantRunning(6)
		time.Sleep(2 * (youngTime + sweepTime))
		wantRunning(8)
		synctest.Wait()
		if want := []int{0, 1}; !slices.Equal(slices.Sorted(slices.Values(cut)), want) {
			t.Errorf("given up: got %d, want %d", cut, want)
		}
		s.Close()
		wantRunning(0)
	})
}

// TestRandom has handshakes come and go at random. No permit and no place is free that a waiting one may
// have, no peer has more than its share, each peer's begin in their order, and all of them end.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			young := 1 + r.IntN(9)
			s := NewHandshakes(young+r.IntN(9), young)
			s.permits = 1 + r.IntN(3)
			var mu sync.Mutex
			entered, begun := make(map[int][]int), make(map[int][]int)
			const all = 200
			for i := range all {
				client := r.IntN(4)
				var pauses []time.Duration
				for range r.IntN(4) {
					pauses = append(pauses, time.Duration(r.Int64N(int64(2*permitTime))), time.Duration(r.Int64N(int64(2*permitTime))))
				}
				entered[client] = append(entered[client], i)
				s.Enter(clientOf{number: client}, &Handshake{
					Cut: func() { t.Error("a handshake was given up") },
					Do: func(h *Handshake) {
						mu.Lock()
						begun[client] = append(begun[client], i)
						mu.Unlock()
						for i, pause := range pauses {
							if time.Sleep(pause); i%2 == 0 {
								h.Wait()
							} else {
								h.Resume()
							}
						}
					},
				})
				s.check(t)
				time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			}
			for s.check(t) > 0 {
				time.Sleep(time.Millisecond)
			}
			if len(s.running)+len(s.peers)+len(s.fresh)+len(s.queue)+len(s.resuming)+s.computing+s.young > 0 {
				t.Errorf("something is left: %+v", s)
			}
			if !maps.EqualFunc(entered, begun, slices.Equal) {
				t.Errorf("begun: got %d, want %d", begun, entered)
			}
		})
	}
}

// check fails if the state makes no sense. It returns how many handshakes there are.
func (s *Handshakes) check(t *testing.T) int {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	computing, waiting, young := 0, 0, 0
	running, youngOf := make(map[*shakingPeer]int), make(map[*shakingPeer]int)
	for h := range s.all {
		if h.permit != nil {
			computing++
		}
		if s.running[h] {
			running[s.peers[h.peer]]++
		}
		if h.young {
			youngOf[s.peers[h.peer]]++
			young++
		}
	}
	for _, peer := range s.peers {
		waiting += len(peer.waiting)
		wanted := len(peer.waiting) > 0 && peer.young < s.share
		if wanted != peer.queued || peer.queued != (slices.Contains(s.queue, peer) || slices.Contains(s.fresh, peer)) {
			t.Fatalf("a peer wants a place %t, and is in a queue %t: %+v", wanted, !wanted, peer)
		}
		if running[peer] != peer.running || youngOf[peer] != peer.young || peer.young > s.share {
			t.Fatalf("a peer has %d places, %d of them young: %+v", running[peer], youngOf[peer], peer)
		}
	}
	if computing != s.computing || computing > s.permits || len(s.running) > s.max || young != s.young || young > s.youngMax || waiting != s.waiting {
		t.Fatalf("%d compute and %d wait: %+v", computing, waiting, s)
	}
	if computing < s.permits && (len(s.resuming) > 0 || len(s.fresh)+len(s.queue) > 0 && young < s.youngMax && len(s.running) < s.max) {
		t.Fatalf("a permit is free, and a handshake waits: %+v", s)
	}
	return len(s.all)
}

// TestSilentHandshakes: a client that sends nothing takes no place, and leaves with
// its deadline, or with the server.
func TestSilentHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	if !isOnLoops(t) {
		t.Skip("each connection has a goroutine without the engine: run it on Linux without the tag percore_net")
	}
	s := NewHandshakes(1, 1)
	lost := make(chan error, 2)
	begin := func() (server net.Conn, client net.Conn, did <-chan bool) {
		server, client = testnet.Pair(t, percore.Listen, testnet.TCP4)
		done := make(chan bool, 1)
		s.Begin(server, &Handshake{
			Do: func(h *Handshake) {
				server := h.Conn(server)
				var b [1]byte
				_, err := server.Read(b[:])
				done <- err == nil && h.Finish()
			},
			Cut:  func() { server.Close() },
			Lost: func(err error) { lost <- err },
		})
		return server, client, done
	}
	silent, _, _ := begin()
	begin() // until Close
	s.mu.Lock()
	if len(s.peers) > 0 {
		t.Error("silent clients have places")
	}
	s.mu.Unlock()
	_, client, did := begin()
	client.Write([]byte("!"))
	if !testnet.Receive(t, "the handshake of a client that sends", did) {
		t.Error("it failed")
	}
	silent.SetReadDeadline(time.Now())
	if err := testnet.Receive(t, "the end of a silent one", lost); err == nil {
		t.Error("got no error")
	}
	s.Close()
	testnet.Receive(t, "the end of the other", lost)
	begin()
	if err := testnet.Receive(t, "the end of a late one", lost); err != net.ErrClosed {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}

// TestMethods lists all methods of the connection that a handshake gets.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*Conn](t, testnet.MethodTable{
		Own: "Done NetConn Read Write",
		Promoted: map[string]string{
			"nothing is held back": "Close LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline",
		},
	})
}

// isOnLoops reports whether connections are on loops here.
func isOnLoops(t *testing.T) bool {
	server, _ := testnet.Pair(t, percore.Listen, testnet.TCP4)
	pc, ok := server.(*percore.Conn)
	return ok && pc.Loop() != nil
}
