package reactor

import (
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// hours is by how much times are set back.
const hours = int64(2 * time.Hour)

// onItsLoop runs f on a connection's loop, and waits.
func onItsLoop(t *testing.T, c *Conn, f func()) {
	t.Helper()
	done := make(chan bool)
	c.loop.engine.Submit(func() { f(); close(done) })
	testnet.Receive(t, "a function on the loop", done)
}

// Each timeout counts what it says, whatever else happens: times are set back as if hours had passed.
func TestTimeoutsCount(t *testing.T) {
	testnet.NoLeaks(t)
	const d = time.Hour
	read := func(c *Conn) { c.more.times.readAt.Store(monotime.Now()) }
	wrote := func(c *Conn) { c.more.times.wroteAt.Store(monotime.Now()) }
	nothing := func(c *Conn) {}
	pause := func(c *Conn) { c.Pause() }
	room := func(c *Conn) { c.asked.Or(askRoom) }
	hold := func(c *Conn) { c.Hold() }
	half := func(c *Conn) { c.offered, c.more.times.keptSince = true, monotime.Now()-hours } // of a message has come
	for _, tt := range []struct {
		name    string
		timeout Timeout
		since   func(c *Conn) // what has happened in the hours
		ends    bool
	}{
		{"idle", IdleTimeout(d), nothing, true},
		{"idle, but for reading", IdleTimeout(d), read, false},
		{"idle, but for writing", IdleTimeout(d), wrote, false},
		{"idle, paused", IdleTimeout(d), pause, false},
		{"idle, not read since much waits", IdleTimeout(d), room, true},
		{"idle, held", IdleTimeout(d), hold, false},
		{"read idle", ReadIdleTimeout(d), nothing, true},
		{"read idle, reading", ReadIdleTimeout(d), read, false},
		{"read idle, writing", ReadIdleTimeout(d), wrote, true},
		{"read idle, paused", ReadIdleTimeout(d), pause, false},
		{"read idle, not read since much waits", ReadIdleTimeout(d), room, false},
		{"read idle, held", ReadIdleTimeout(d), hold, false},
		{"write idle", WriteIdleTimeout(d), nothing, true},
		{"write idle, reading", WriteIdleTimeout(d), read, true},
		{"write idle, writing", WriteIdleTimeout(d), wrote, false},
		{"write idle, held", WriteIdleTimeout(d), hold, false},
		{"half a message", ReadTimeout(d), half, true},
		{"half a message, paused", ReadTimeout(d), func(c *Conn) { half(c); pause(c) }, false},
		{"half a message, not read since much waits", ReadTimeout(d), func(c *Conn) { half(c); room(c) }, false},
		{"write", WriteTimeout(d), nothing, false},
	} {
		for _, own := range []bool{false, true} {
			end, ended := closes()
			var config Config
			if !own {
				config = configOf(tt.timeout)
			}
			s, _ := serve(t, &handler{close: end}, config)
			c, _ := attach(t, s)
			onItsLoop(t, c, func() {})
			if own {
				c.SetTimeout(tt.timeout)
				testnet.Eventually(t, "the timeout is set", func() bool { return c.asked.Load()&askRetime == 0 })
			}
			var closes bool
			onItsLoop(t, c, func() {
				at := &c.more.times
				at.readAt.Add(-hours)
				at.wroteAt.Add(-hours)
				at.heldAt -= hours
				at.readHeldAt -= hours
				tt.since(c)
				(*clock)(c).check()
				closes = c.asked.Load()&askClose != 0
				c.asked.And(^askRoom)
			})
			if closes != tt.ends {
				t.Errorf("%s (own %t): closed %t, want %t", tt.name, own, closes, tt.ends)
			}
			if closes {
				err := testnet.Receive(t, "Close", ended)
				var op *net.OpError
				if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) || !op.Timeout() {
					t.Errorf("%s: got %v, want a timeout", tt.name, err)
				}
			}
		}
	}
}

// attachFull gives a server a connection whose socket takes no byte before the peer has read. The first
// bytes of a backlog are sent.
func attachFull(t *testing.T, s *Server) (c *Conn, peer net.Conn) {
	t.Helper()
	if onGoroutines {
		t.Skip("off Linux and with the tag percore_net a goroutine's write counts when it is done: run it on Linux without")
	}
	pc, peer := testnet.Pair(t, percore.Listen, testnet.Unix) // where nothing is on its way
	pc.(*percore.Conn).SetWriteBuffer(4 * socketBytes)
	c = attachConn(t, s, pc)
	onItsLoop(t, c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		(*output)(c).backlogLocked().append(make([]byte, 4<<20))
		(*output)(c).flushLocked()
	})
	return c, peer
}

// The longest Duration means never: the timer isn't set to a time that has passed.
func TestLongestTimeouts(t *testing.T) {
	testnet.NoLeaks(t)
	for _, make := range []func(time.Duration) Timeout{IdleTimeout, ReadIdleTimeout, WriteIdleTimeout, ReadTimeout, WriteTimeout} {
		never := make(math.MaxInt64)
		for _, own := range []bool{false, true} {
			var config Config
			if !own {
				config = configOf(never)
			}
			s, _ := serve(t, &handler{data: func(c *Conn, p []byte) int { return len(p) / 2 }}, config)
			c, peer := attach(t, s)
			onItsLoop(t, c, func() {
				if own {
					c.SetTimeout(never)
				}
			})
			peer.Write([]byte("xx"))
			testnet.Eventually(t, "Data has left a byte", func() bool {
				return onLoop(c, func() bool { return c.unused != nil })
			})
			onItsLoop(t, c, func() {
				if due := c.more.times.due; due != 0 && due < monotime.Now() {
					t.Errorf("timeout %d (own %t): the timer is due at %d, which has passed", never.kind, own, due)
				}
			})
		}
	}
}

// configOf returns a configuration with one timeout.
func configOf(t Timeout) Config {
	return [timeoutKinds]Config{
		onIdle: {IdleTimeout: t.d}, onReadIdle: {ReadIdleTimeout: t.d}, onWriteIdle: {WriteIdleTimeout: t.d},
		onMessage: {ReadTimeout: t.d}, onUnsent: {WriteTimeout: t.d},
	}[t.kind]
}

// A peer that reads steadily, but too little for an event, is not closed as one that takes nothing. Once
// it stops it is.
func TestTricklingReader(t *testing.T) {
	testnet.NoLeaks(t)
	for name, timeout := range map[string]Timeout{"idle": IdleTimeout(time.Hour), "write idle": WriteIdleTimeout(time.Hour)} {
		end, ended := closes()
		s, _ := serve(t, &handler{close: end}, configOf(timeout))
		c, peer := attachFull(t, s)
		later := func() (closes, blocked bool) {
			onItsLoop(t, c, func() {
				blocked = c.blocked
				at := &c.more.times
				at.readAt.Add(-hours)
				at.wroteAt.Add(-hours)
				at.heldAt -= hours
				(*clock)(c).check()
				closes = c.asked.Load()&askClose != 0
			})
			return closes, blocked
		}
		unsent := c.Unsent()
		for range 3 {
			if _, err := io.ReadFull(peer, make([]byte, socketBytes)); err != nil {
				t.Fatal(err)
			}
			if closes, blocked := later(); closes || !blocked {
				t.Fatalf("%s: with a peer that reads: closed %t, blocked before %t, want false and true", name, closes, blocked)
			}
			if c.Unsent() >= unsent {
				t.Errorf("%s: %d bytes wait, as before", name, c.Unsent())
			}
			unsent = c.Unsent()
		}
		if closes, _ := later(); !closes {
			t.Errorf("%s: a peer that takes nothing isn't closed", name)
		}
		if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %v, want %v", name, err, os.ErrDeadlineExceeded)
		}
	}
}

// The kernel of a peer that reads all the time acknowledges a whole buffer, and then nothing for longer
// than the timeout, as with 1 KB/s and a minute. The peer is not closed before it has stopped.
func TestSteadyReader(t *testing.T) {
	testnet.NoLeaks(t)
	if testing.Short() {
		t.Skip("it takes seconds: run it without -short")
	}
	if onGoroutines {
		t.Skip("off Linux and with the tag percore_net a goroutine's write counts when it is done: run it on Linux without")
	}
	const timeout = 600 * time.Millisecond
	defer func(d time.Duration) { endingTime = d }(endingTime)
	endingTime = timeout
	var all sync.WaitGroup
	defer all.Wait()
	for name, config := range map[string]Config{"idle": {IdleTimeout: timeout}, "write idle": {WriteIdleTimeout: timeout}, "closed": {}} {
		end, ended := closes()
		config.WriteHighWaterMark = 16 << 20
		s, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
			c.Write(make([]byte, 8<<20)) // more than the socket's buffer takes
			if name == "closed" {
				c.Close()
			}
			return len(p)
		}}, config)
		peer := dial()
		all.Add(1)
		go func() {
			defer all.Done()
			defer s.Close()
			defer peer.Close()
			peer.Write([]byte("x"))
			const perSecond = 100 << 10
			begun := time.Now()
			for got := 0; got < 3*perSecond; {
				time.Sleep(10 * time.Millisecond)
				due := int(time.Since(begun) * perSecond / time.Second)
				n, err := io.ReadFull(peer, make([]byte, due-got))
				got += n
				if err == nil && len(ended) > 0 {
					err = <-ended
				}
				if err != nil {
					t.Errorf("%s: after %d bytes: %v", name, got, err)
					return
				}
			}
			if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: got %v, want %v", name, err, os.ErrDeadlineExceeded)
			}
		}()
	}
}

// A connection that is held, or has functions of Go, waits for its peer no longer than others once it is
// closed.
func TestEndingHeldConnection(t *testing.T) {
	testnet.NoLeaks(t)
	for name, busy := range map[string]func(c *Conn, gate chan bool){
		"Hold": func(c *Conn, _ chan bool) { c.Hold() },
		"Go":   func(c *Conn, gate chan bool) { c.Go(func() { <-gate }) },
	} {
		gate := make(chan bool)
		end, ended := closes()
		s, _ := serve(t, &handler{close: end})
		c, _ := attachFull(t, s)
		busy(c, gate)
		c.Close()
		testnet.Eventually(t, "it is ending", func() bool {
			return onLoop(c, func() bool { return c.asked.Load()&askTimed != 0 && c.asked.Load()&askRetime == 0 })
		})
		onItsLoop(t, c, func() {
			at := &c.more.times
			at.wroteAt.Add(-hours)
			at.heldAt -= hours
			(*clock)(c).check()
			if c.asked.Load()&askClose == 0 {
				t.Errorf("%s: the connection waits on for its peer", name)
				c.Abort()
			}
		})
		close(gate)
		if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %v, want %v", name, err, os.ErrDeadlineExceeded)
		}
	}
}

// A peer that takes too little is closed although it takes something all the time, and one that takes in
// time what waited when the time began is not, although something always waits.
func TestWriteTimeout(t *testing.T) {
	testnet.NoLeaks(t)
	for _, tt := range []struct {
		name string
		left int // bytes of those that waited when the time began
		ends bool
	}{{"a little", 1 << 20, true}, {"all but a byte", 1, true}, {"all", 0, false}} {
		end, ended := closes()
		s, _ := serve(t, &handler{close: end}, Config{WriteTimeout: time.Hour})
		c, _ := attachFull(t, s)
		var closes bool
		onItsLoop(t, c, func() {
			(*clock)(c).check() // the time begins
			c.more.times.markAt -= hours
			c.mu.Lock()
			taken := c.unsent.bytes - tt.left
			c.unsent.append(make([]byte, 100_000)) // which waits for a shorter time
			c.unsent.drop(taken)
			(*clock)(c).tookLocked(taken)
			c.mu.Unlock()
			(*clock)(c).check()
			closes = c.asked.Load()&askClose != 0
			c.Abort()
		})
		if closes != tt.ends {
			t.Errorf("%s: closed %t, want %t", tt.name, closes, tt.ends)
		}
		err := testnet.Receive(t, "Close", ended)
		var op *net.OpError
		if errors.Is(err, os.ErrDeadlineExceeded) != tt.ends || tt.ends && (!errors.As(err, &op) || op.Op != "write") {
			t.Errorf("%s: Close: got %v", tt.name, err)
		}
	}
}

// SetTimeout replaces the server's timeout, before Open, too, also by none.
func TestSetTimeout(t *testing.T) {
	testnet.NoLeaks(t)
	end, ended := closes()
	s, dial := serve(t, &handler{close: end, open: func(c *Conn) {
		c.SetTimeout(IdleTimeout(0))
		c.SetTimeout(ReadIdleTimeout(20 * time.Millisecond))
	}}, Config{IdleTimeout: time.Hour})
	c := dial()
	if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
	c.Close()
	a, _ := attach(t, s)
	a.SetTimeout(ReadIdleTimeout(20 * time.Millisecond)) // Open may come after it
	if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
	a.SetTimeout(IdleTimeout(time.Hour)) // on a closed connection it does nothing
}
