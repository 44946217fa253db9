package reactor

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

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
		{"write", WriteTimeout(d), nothing, false},
	} {
		for _, own := range []bool{false, true} {
			end, ended := closes()
			var options []Option
			if !own {
				options = append(options, tt.timeout)
			}
			s, _ := serve(t, &handler{close: end}, options...)
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
				c.checkTimeouts()
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

// A peer that takes too little is closed although it takes something all the time, and one that takes in
// time what waited when the time began is not, although something always waits.
func TestWriteTimeout(t *testing.T) {
	if onGoroutines {
		t.Skip("off Linux and with the tag percore_net a goroutine's write counts when it is done: run it on Linux without")
	}
	testnet.NoLeaks(t)
	for _, tt := range []struct {
		name  string
		taken int // bytes before the time passes
		ends  bool
	}{{"nothing", 0, true}, {"a little", 1000, true}, {"all but a byte", 99_999, true}, {"all", 100_000, false}} {
		end, ended := closes()
		s, _ := serve(t, &handler{close: end}, WriteTimeout(time.Hour))
		c, _ := attach(t, s)
		var closes bool
		onItsLoop(t, c, func() {
			c.mu.Lock()
			c.backlogLocked().append(make([]byte, 100_000))
			c.blocked = true // as if the socket were full
			c.mu.Unlock()
			c.checkTimeouts() // the time begins
			c.more.times.markAt -= hours
			c.mu.Lock()
			c.unsent.append(make([]byte, 100_000)) // which waits for a shorter time
			c.unsent.drop(tt.taken)
			c.tookLocked(tt.taken)
			c.mu.Unlock()
			c.checkTimeouts()
			closes = c.asked.Load()&askClose != 0
			c.Abort()
		})
		if closes != tt.ends {
			t.Errorf("%s: closed %t, want %t", tt.name, closes, tt.ends)
		}
		if err := testnet.Receive(t, "Close", ended); errors.Is(err, os.ErrDeadlineExceeded) != tt.ends {
			t.Errorf("%s: Close: got %v", tt.name, err)
		}
	}
}

// A peer that takes nothing is closed by WriteTimeout, though the server reads from it all the time.
func TestWriteTimeoutOfSilentPeer(t *testing.T) {
	testnet.NoLeaks(t)
	end, ended := closes()
	h := &told{handler: handler{open: smallBuffer, close: end, data: func(c *Conn, p []byte) int {
		if c.Unsent() == 0 {
			c.Write(make([]byte, 8<<20))
		}
		return len(p)
	}}}
	_, dial := serve(t, h, WriteTimeout(20*time.Millisecond), WriteHighWaterMark(16<<20))
	peer := dial()
	peer.(*net.TCPConn).SetReadBuffer(socketBytes)
	stop := make(chan bool)
	go func() {
		defer close(stop)
		for {
			if _, err := io.WriteString(peer, "x"); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := testnet.Receive(t, "Close", ended)
	var op *net.OpError
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) || op.Op != "write" {
		t.Errorf("got %v, want a timeout of a write", err)
	}
	peer.Close()
	testnet.Receive(t, "the peer's end", stop)
}

// SetTimeout replaces the server's timeout, before Open, too, also by none.
func TestSetTimeout(t *testing.T) {
	testnet.NoLeaks(t)
	end, ended := closes()
	s, dial := serve(t, &handler{close: end, open: func(c *Conn) {
		c.SetTimeout(IdleTimeout(0))
		c.SetTimeout(ReadIdleTimeout(20 * time.Millisecond))
	}}, IdleTimeout(time.Hour))
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
