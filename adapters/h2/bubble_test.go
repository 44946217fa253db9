package h2

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet/frames"
)

// TestBubble: in a bubble of testing/synctest, the times of a connection in memory are the bubble's.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := pipePeer(t, New(HandlerFunc(hello), Config{PingAfter: time.Hour, IdleTimeout: 100 * time.Minute}))
		begin := time.Now()
		wantAt := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(begin); got != want {
				t.Errorf("got %s after %v, want it after %v", what, got, want)
			}
		}
		p.Request(1, true).Flush().Want(helloTo(1)...)
		wantAt("an answer", 0)
		p.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR") // it answers the PINGs between them
		wantAt("GOAWAY", 100*time.Minute)
		p.Want("end")
	})
}

// TestBubbleDrain: the answer to a PING that was sent before Drain doesn't say that the client knows of
// it: a stream behind that answer is served.
func TestBubbleDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(HandlerFunc(hello), Config{PingAfter: time.Minute, PingTimeout: time.Hour})
		c, p := pipePeer(t, server)
		p.Request(1, true).Flush().Want(helloTo(1)...)
		time.Sleep(70 * time.Second) // the PING is on its way, and the client has not read it
		c.GoAway()
		p.Frame(frames.Ping, frames.Ack, 0, alivePing[:]).Request(3, true).Flush()
		p.Want("goaway 2147483647 NO_ERROR").Want(helloTo(3)...).Want("goaway 3 NO_ERROR", "end")
	})
}

// TestBubbleDrainTime: a client that doesn't answer the PING behind the first GOAWAY gets the second one
// after DrainTime. A stream that it opens before is served.
func TestBubbleDrainTime(t *testing.T) {
	for _, test := range []struct{ config, want time.Duration }{{0, time.Second}, {5 * time.Second, 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			server := New(HandlerFunc(hello), Config{DrainTime: test.config})
			c, p := pipePeer(t, server)
			p.Request(1, true).Flush().Want(helloTo(1)...)
			begin := time.Now()
			c.GoAway()
			p.Want("goaway 2147483647 NO_ERROR")
			if _, err := io.ReadFull(p.Conn, make([]byte, 9+8)); err != nil { // the PING
				t.Fatal(err)
			}
			time.Sleep(test.want / 2)
			p.Request(3, true).Flush().Want(append(helloTo(3), "goaway 3 NO_ERROR")...)
			if got := time.Since(begin); got != test.want {
				t.Errorf("got the second GOAWAY after %v, want it after %v", got, test.want)
			}
		})
	}
}

// TestBubbleAgeGrace: a connection whose streams go on after its grace ends. A client that reads within
// a second more is told so first.
func TestBubbleAgeGrace(t *testing.T) {
	const age = 100 * time.Millisecond // give or take a tenth
	for _, test := range []struct {
		name     string
		grace    time.Duration
		answered bool          // the client answers the PING behind the first GOAWAY
		waits    time.Duration // before it reads on
		want     []string
	}{
		{"no grace to speak of", time.Nanosecond, false, 0, []string{"goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", "end"}},
		{"a client that reads late", time.Nanosecond, false, 2*age + lingerTime/2, []string{"goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", "end"}},
		{"a client that doesn't read", time.Nanosecond, false, 2*age + 2*lingerTime, []string{"end"}},
		{"the client has answered", 2 * drainTime, true, 0, []string{"end"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				server := New(HandlerFunc(func(s *Stream, _ *Request) {
					_, err := s.Read(make([]byte, 1))
					ended <- err
				}), Config{MaxAge: age, AgeGrace: test.grace})
				_, p := pipePeer(t, server)
				p.Request(1, false).Flush()
				if test.answered {
					p.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
				}
				time.Sleep(test.waits)
				p.Want(test.want...)
				want := "h2: the connection has ended: the connection has become too old"
				if err := <-ended; err == nil || err.Error() != want {
					t.Errorf("got %v, want %q", err, want)
				}
			})
		})
	}
}

// TestBubbleLoops: a server in a bubble serves connections of loops, which are outside.
func TestBubbleLoops(t *testing.T) {
	serve(t, HandlerFunc(hello), Config{}).peer().Request(1, true).Flush().
		Want("headers 1 :status=200 content-type=text/plain") // starts the loops
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, HandlerFunc(hello), Config{IdleTimeout: -1})
		p := f.peer()
		for id := uint32(1); id < 20; id += 2 {
			p.Request(id, true).Flush().Want(helloTo(id)...)
		}
	})
}

// TestFlushReturns: a handler that flushes sends for the other streams, too, but not for as long as
// they have something.
func TestFlushReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushed := make(chan error, 1)
		server := New(HandlerFunc(func(s *Stream, r *Request) {
			switch s.ID() {
			case 1:
				hello(s, r)
			case 3:
				_ = s.Send(Message{Status: 200, Body: []byte("event"), End: true, Hold: true})
				flushed <- s.Flush()
			default:
				err := s.Send(Message{Status: 200})
				for p := make([]byte, 1<<20); err == nil; {
					_, err = s.Write(p)
				}
			}
		}), Config{})
		const window = 1 << 30
		_, p := pipePeer(t, server, 4, window)
		p.Window(0, window).Request(1, true).Flush().Want(helloTo(1)...)
		for _, id := range []uint32{3, 5} { // the first one sends, and the other fills the output behind it
			synctest.Wait()
			p.Request(id, true).Flush()
		}
		synctest.Wait()
		p.Want("headers 3 :status=200", `data 3 "event" end`)
		for range 100 { // several times what the output holds
			p.Next()
		}
		synctest.Wait()
		select {
		case err := <-flushed:
			if err != nil {
				t.Errorf("Flush: %v", err)
			}
		default:
			t.Error("Flush still sends what another stream writes")
		}
	})
}

// TestBubbleEarlyAnswer: a stream whose answer is complete before its request is reset partTime later,
// or not at all if the client ends it. Bytes that come by then give credit of the connection back.
func TestBubbleEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		explicit := HandlerFunc(func(s *Stream, r *Request) {
			hello(s, r)
			if s.ID() == 3 {
				s.Reset(NoError)
			}
		})
		server := New(explicit, Config{ConnWindow: 64 << 10})
		c, p := pipePeer(t, server)
		want := func(lines ...string) {
			t.Helper()
			for _, want := range lines {
				line := p.Next()
				for strings.HasPrefix(line, "window 0 ") || strings.HasPrefix(line, "settings") {
					line = p.Next()
				}
				if line != want {
					t.Fatalf("got the frame %q, want %q", line, want)
				}
			}
		}
		for _, id := range []uint32{1, 3} {
			begin := time.Now()
			p.Request(id, false).Flush()
			want(helloTo(id)...)
			p.Data(id, string(make([]byte, 16<<10)), false).Flush()
			synctest.Wait()
			if got := c.Streams(); got != 1 {
				t.Errorf("got %d streams, want 1", got)
			}
			want(fmt.Sprintf("reset %d NO_ERROR", id))
			if got := time.Since(begin); got != partTime {
				t.Errorf("got the reset after %v, want it after %v", got, partTime)
			}
		}
		p.Request(5, false).Flush()
		want(helloTo(5)...)
		p.Data(5, "", true).Request(7, false).Flush()
		want(helloTo(7)...)
		p.Reset(7, Cancel).Flush()
		time.Sleep(2 * partTime)
		p.Request(9, true).Flush()
		want(helloTo(9)...)
		if got := server.Stats().ResetsByServer; got != 0 {
			t.Errorf("got %d resets of the server's, want none that counts", got)
		}
	})
}

// TestBubbleExpect: a client that waits for 100 Continue, and gets an answer, learns at once that its
// body is not wanted. One that got 100, or didn't wait, may have a body under way.
func TestBubbleExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(HandlerFunc(func(s *Stream, r *Request) {
			switch s.ID() {
			case 3:
				_ = s.Send(Message{Status: 100})
			case 5:
				_, _ = s.Read(make([]byte, 1))
			}
			_ = s.Send(Message{Status: 401, End: true})
		}), Config{})
		_, p := pipePeer(t, server)
		for _, test := range []struct {
			id   uint32
			late time.Duration
		}{{1, 0}, {3, partTime}, {5, partTime}, {7, 0}} {
			begin := time.Now()
			p.Request(test.id, false, "expect", "100-Continue").Flush()
			if test.id == 5 {
				p.Data(5, "body", false).Flush()
			}
			for want := fmt.Sprintf("reset %d NO_ERROR", test.id); ; {
				if line := p.Next(); line == want {
					break
				} else if strings.HasPrefix(line, "reset") || line == "end" {
					t.Fatalf("got the frame %q, want %q", line, want)
				}
			}
			if got := time.Since(begin); got != test.late {
				t.Errorf("stream %d: got the reset after %v, want it after %v", test.id, got, test.late)
			}
		}
	})
}

// TestBubbleEarlyAnswers: no more than partMost streams wait for their resets, and a connection that
// drains ends behind them.
func TestBubbleEarlyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(HandlerFunc(func(s *Stream, _ *Request) { _ = s.Send(Message{Status: 200, End: true}) }), Config{})
		c, p := pipePeer(t, server)
		begin := time.Now()
		for id := uint32(1); id < 2*partMost+2; id += 2 {
			p.Request(id, false).Flush().Want(fmt.Sprintf("headers %d :status=200 end", id))
			if got := time.Since(begin); got != 0 {
				t.Fatalf("got answer %d after %v", id, got)
			}
		}
		line := p.Next() // of the stream whose handler has returned last
		if got := time.Since(begin); got != 0 || !strings.HasPrefix(line, "reset ") {
			t.Errorf("got the frame %q after %v, want a reset at once", line, got)
		}
		c.GoAway()
		resets := 0
		for line = p.Next(); line != "end"; line = p.Next() {
			if strings.HasPrefix(line, "reset ") {
				resets++
			}
		}
		if got := time.Since(begin); resets != partMost || got != partTime+lingerTime { // a pipe has no CloseWrite
			t.Errorf("got %d resets, and the end after %v, want %d after %v", resets, got, partMost, partTime+lingerTime)
		}
	})
}
