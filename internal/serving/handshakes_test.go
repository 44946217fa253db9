package serving

import (
	"net"
	"net/netip"
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
	const most, aside, conns = 64, 960, 2000
	for _, c := range []struct {
		name  string
		peers int
		waits time.Duration // of an honest client, at most
	}{
		{"one address", 1, 0},
		{"many addresses", 200, 2 * sweepTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &shaking{s: NewHandshakes(most, aside)}
				for peer := range c.peers {
					k.begin(conns/c.peers, 1+peer, 0)
				}
				for _, answers := range []time.Duration{time.Millisecond, 2 * time.Second} {
					time.Sleep(10 * time.Second) // so that all places are full
					before := k.done.Load()
					begun := time.Now()
					<-k.begin(1, 1000, answers)
					if took := time.Since(begun) - answers; k.done.Load() != before+1 || took > c.waits {
						t.Errorf("an honest client's handshake took %v more than its %v; done: %t; want at most %v, and done",
							took, answers, k.done.Load() == before+1, c.waits)
					}
				}
				p := &k.s.places
				p.mu.Lock()
				if len(p.running) > p.max || len(p.aside) > p.asideMax {
					t.Errorf("%d have places and %d have lost them, want %d and %d at most", len(p.running), len(p.aside), p.max, p.asideMax)
				}
				p.mu.Unlock()
				k.s.Close()
				k.under.Wait()
			})
		})
	}
}

// TestBlockedHandshake: a function of the program's that waits, as GetCertificate may, keeps no other
// handshake from its own.
func TestBlockedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewHandshakes(4, 4)
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

// TestSilentHandshakes: a client that sends nothing takes no place, and leaves with
// its deadline, or with the server.
func TestSilentHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	if !isOnLoops(t) {
		t.Skip("each connection has a goroutine without the engine: run it on Linux without the tag percore_net")
	}
	s := NewHandshakes(1, 0)
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
	s.places.mu.Lock()
	if len(s.places.peers) > 0 {
		t.Error("silent clients have places")
	}
	s.places.mu.Unlock()
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
