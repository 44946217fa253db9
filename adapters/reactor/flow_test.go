package reactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// Close comes after the last function of Go, whichever way the connection ends.
func TestCloseAfterGo(t *testing.T) {
	testnet.NoLeaks(t)
	for _, how := range []string{"end", "reset", "Abort"} {
		var ran atomic.Int64
		end, ended := closes()
		called, release := make(chan bool, 1), make(chan bool)
		_, dial := serve(t, &handler{close: func(c *Conn, err error) {
			if n := ran.Load(); n != 3 {
				t.Errorf("%s: Close is called when %d functions have run, want 3", how, n)
			}
			if err := c.Go(func() {}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: Go in Close: got %v, want %v", how, err, net.ErrClosed)
			}
			end(c, err)
		}, data: func(c *Conn, p []byte) int {
			for range 3 {
				c.Go(func() {
					<-release
					ran.Add(1)
					c.Write([]byte("answer"))
				})
			}
			if how == "Abort" {
				c.Abort()
			}
			called <- true
			return len(p)
		}})
		c := dial().(*net.TCPConn)
		c.Write([]byte("x"))
		want := ""
		switch how {
		case "end":
			c.CloseWrite()
			want = "answeransweranswer"
		case "reset":
			testnet.Receive(t, "Data", called)
			c.SetLinger(0)
			c.Close()
		case "Abort":
			testnet.Receive(t, "Data", called) // a function that runs before Close could answer
		}
		close(release)
		if got, _ := io.ReadAll(c); string(got) != want {
			t.Errorf("%s: got %q, want %q", how, got, want)
		}
		testnet.Receive(t, "Close", ended)
	}
}

func TestTimeouts(t *testing.T) {
	testnet.NoLeaks(t)
	const short = 30 * time.Millisecond
	line := func(c *Conn, p []byte) int {
		i := bytes.IndexByte(p, '\n')
		c.Write(p[:i+1])
		return i + 1
	}
	for _, tt := range []struct {
		name   string
		config Config
		send   string
		ends   bool
	}{
		{"nothing is written", Config{WriteIdleTimeout: short}, "", true},
		{"idle after a message", Config{IdleTimeout: short}, "a\n", true},
		{"half a message", Config{ReadTimeout: short}, "a", true},
		{"a message and a half", Config{ReadTimeout: short}, "a\nb", true},
		{"a message", Config{ReadTimeout: short}, "a\n", false},
		{"both", Config{ReadTimeout: short, IdleTimeout: time.Hour}, "a", true},
		{"both, idle", Config{ReadTimeout: time.Hour, IdleTimeout: short}, "a", true},
	} {
		end, ended := closes()
		_, dial := serve(t, &handler{data: line, close: end}, tt.config)
		start := time.Now() // before Open
		c := dial()
		io.WriteString(c, tt.send)
		if !tt.ends {
			time.Sleep(3 * short)
			io.WriteString(c, "b\n")
			if _, err := io.ReadFull(c, make([]byte, len(tt.send)+2)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			c.Close()
			continue
		}
		err := testnet.Receive(t, tt.name, ended)
		var op *net.OpError
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &op) || !op.Timeout() {
			t.Errorf("%s: got %v, want a timeout", tt.name, err)
		}
		if took := time.Since(start); took < short {
			t.Errorf("%s: got the timeout after %v, want %v at least", tt.name, took, short)
		}
		io.Copy(io.Discard, c)
	}
}

// A message that has begun before Attach has to be complete in time, too.
func TestReadTimeoutOfAttachedBytes(t *testing.T) {
	testnet.NoLeaks(t)
	for _, config := range []Config{
		{ReadTimeout: 20 * time.Millisecond},
		{ReadTimeout: 20 * time.Millisecond, IdleTimeout: time.Hour},
	} {
		end, ended := closes()
		s, _ := serve(t, &handler{close: end, data: func(*Conn, []byte) int { return 0 }}, config)
		pc, _ := testnet.Pair(t, percore.Listen, testnet.TCP4)
		if _, err := s.Attach(pc, []byte("half"), nil); err != nil {
			t.Fatal(err)
		}
		if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want a timeout", err)
		}
	}
}

// After calls once, on the loop, unless it is stopped or the connection is closed.
func TestAfter(t *testing.T) {
	testnet.NoLeaks(t)
	ended := make(chan error, 1)
	closed := false // owned by the loop
	h := &handler{close: func(_ *Conn, err error) { closed = true; ended <- err }, open: func(c *Conn) {
		if !c.AfterFunc(0, func() { t.Error("a stopped timer fired") }).Stop() {
			t.Error("Stop: got false for a timer that waits")
		}
		if (*Timer)(nil).Stop() {
			t.Error("Stop: got true for a nil Timer")
		}
		c.AfterFunc(time.Millisecond, func() {
			c.Write([]byte("tick"))
			c.AfterFunc(time.Millisecond, func() {
				c.Write([]byte("tock"))
				// Sending may take longer than a millisecond: this one fires before Close or never.
				c.AfterFunc(time.Millisecond, func() {
					if closed {
						t.Error("a timer of a closed connection fired")
					}
				})
				c.Close()
			})
		})
	}}
	_, dial := serve(t, h)
	if got, err := io.ReadAll(dial()); string(got) != "ticktock" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	testnet.Receive(t, "Close", ended)
	time.Sleep(5 * time.Millisecond)
}

// Shutdown lets everything that was begun end, and closes the rest.
func TestShutdown(t *testing.T) {
	testnet.NoLeaks(t)
	end, ended := closes()
	started, release := make(chan bool, 1), make(chan bool)
	s, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
		c.Write(bytes.Repeat([]byte("x"), 8<<20))
		c.Go(func() {
			started <- true
			<-release
			c.Write([]byte("last"))
		})
		return len(p)
	}})
	idle, busy := dial(), dial()
	busy.Write([]byte("x"))
	testnet.Receive(t, "the function", started)
	testnet.Eventually(t, "both are accepted", func() bool { return s.Stats().Conns == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, ctx.Err()) || err == nil {
		t.Errorf("Shutdown with a short time: got %v, want %v", err, ctx.Err())
	}
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: got %v, want the end", err)
	}
	close(release)
	read := make(chan string, 1)
	go func() {
		got, err := io.ReadAll(busy)
		read <- fmt.Sprint(len(got), strings.HasSuffix(string(got), "last"), err)
	}()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got, want := testnet.Receive(t, "the answer", read), fmt.Sprint(8<<20+4, true, nil); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 2 {
		if err := testnet.Receive(t, "Close", ended); err != ErrServerClosed {
			t.Errorf("Close: got %v, want %v", err, ErrServerClosed)
		}
	}
}

func countOpen(l *Loop) int {
	n := make(chan int, 1)
	l.engine.Submit(func() { n <- len(l.conns) })
	return <-n
}

// The rest of a long message does not hold the memory of all of it.
func TestShortRest(t *testing.T) {
	testnet.NoLeaks(t)
	const long = 512 << 10
	used := make(chan int, 100)
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		switch {
		case len(p) > long:
			used <- len(p)
			return long
		case len(p) == 2:
			c.Write(p)
			return 2
		}
		return 0
	}})
	c := dial()
	c.Write(bytes.Repeat([]byte("a"), long+1))
	if n := testnet.Receive(t, "the message", used); n != long+1 {
		t.Fatalf("got %d bytes, want %d", n, long+1)
	}
	testnet.Eventually(t, "a small buffer for the rest", func() bool { return percore.ReadStats().Pool.BytesInUse <= keptSlack })
	c.Write([]byte("b"))
	rest := make([]byte, 2)
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != "ab" {
		t.Errorf("got %q, %v, want the rest and the byte behind it", rest, err)
	}
}

// A client that goes on sending gets all that was written before Close, and then the end.
func TestLinger(t *testing.T) {
	testnet.NoLeaks(t)
	lingerLong(t)
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		end, ended := closes()
		_, dial := serveOn(t, kind, &handler{close: end, data: func(c *Conn, p []byte) int {
			c.Write(long)
			c.Close()
			return 1
		}}, Config{IdleTimeout: time.Hour})
		c := dial()
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			for range 100 { // less than is read and dropped
				if _, err := c.Write(make([]byte, 5000)); err != nil {
					t.Errorf("%s: Write: %v", kind, err)
					return
				}
			}
		}()
		got, err := io.ReadAll(c)
		if !bytes.Equal(got, long) || err != nil {
			t.Errorf("%s: got %d bytes, %v, want %d and the end", kind, len(got), err, len(long))
		}
		testnet.Receive(t, "the writes", stopped)
		c.Close()
		if err := testnet.Receive(t, "Close", ended); err != nil {
			t.Errorf("%s: got %v, want nil", kind, err)
		}
	}
}

// lingerLong makes connections linger until the client has done its part, however slow it is.
func lingerLong(t *testing.T) {
	old := lingerTime
	lingerTime = 2 * testnet.HangTimeout
	t.Cleanup(func() { lingerTime = old })
}

// A client that neither ends its stream nor stops sending doesn't keep a connection open.
func TestLingerEnds(t *testing.T) {
	testnet.NoLeaks(t)
	for _, sends := range []bool{false, true} {
		end, ended := closes()
		_, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
			c.Close()
			return len(p)
		}})
		c := dial()
		c.Write([]byte("x"))
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			for sends {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		if err := testnet.Receive(t, "Close", ended); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		testnet.Receive(t, "the writes", stopped)
	}
}

// A connection that lingers is closed at once by Abort, or by the server's Close.
func TestCloseWhileLingering(t *testing.T) {
	testnet.NoLeaks(t)
	lingerLong(t)
	for _, byServer := range []bool{false, true} {
		end, ended := closes()
		conns := make(chan *Conn, 1)
		s, dial := serve(t, &handler{close: end, open: func(c *Conn) {
			c.Close()
			conns <- c
		}})
		c := dial()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %v, want the end", err)
		}
		var want error
		if byServer {
			want = ErrServerClosed
			s.Close()
		} else if err := testnet.Receive(t, "Open", conns).Abort(); err != nil {
			t.Errorf("Abort: %v", err)
		}
		if err := testnet.Receive(t, "Close", ended); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// Each calls its function once per connection, whichever connections that hijacks.
func TestEachHijacksAnother(t *testing.T) {
	testnet.NoLeaks(t)
	s, dial := serve(t, &handler{})
	const clients = 16
	for range clients {
		dial()
	}
	opened := func() (n int) {
		for _, l := range s.loops() {
			n += countOpen(l)
		}
		return n
	}
	testnet.Eventually(t, "all are open", func() bool { return opened() == clients })
	calls := make(chan *Conn, 2*clients)
	s.Each(func(c *Conn) {
		calls <- c
		if first := c.loop.conns[0]; first != c {
			conn, _, err := first.Hijack()
			if err != nil {
				t.Error(err)
			}
			conn.Close()
		}
	})
	awaitWalks(t, s) // which may take several turns
	close(calls)
	seen := make(map[*Conn]bool)
	for c := range calls {
		if seen[c] {
			t.Fatal("the function is called twice for a connection")
		}
		seen[c] = true
	}
}

// awaitWalks waits until all calls of Each and Broadcast that were made are done.
func awaitWalks(t *testing.T, s *Server) {
	t.Helper()
	for _, l := range s.loops() {
		done := make(chan bool, 1)
		l.submitJob(job{func(*Conn) {}, func() { done <- true }}, false)
		testnet.Receive(t, "the end of the walks", done)
	}
}
