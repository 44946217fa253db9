package h2

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet/frames"
)

// pingTimes makes a server end a connection with its second PING.
type pingTimes struct {
	HandlerFunc
	times chan time.Time
}

func (p pingTimes) Ping(c *Conn, _ bool) {
	if p.times <- time.Now(); len(p.times) == 2 {
		c.Abort(EnhanceYourCalm, "too_many_pings")
	}
}

// TestClientGoneAway: a connection of a client knows what the server's GOAWAY says, and can be made to
// send fewer PINGs, or more.
func TestClientGoneAway(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			times := make(chan time.Time, 2)
			closed := make(chan struct{})
			c, theirs := pipeClient(t, ClientConfig{PingAfter: 10 * time.Second, PingIdle: true, State: func(_ *Conn, s ConnState) {
				if s == Closed {
					close(closed)
				}
			}}, asItIs)
			server := New(pingTimes{hello, times}, Config{})
			defer server.Close()
			if _, err := server.Attach(theirs, nil, nil); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, _, _, err := call(c, Message{}); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := c.GoneAway(); ok {
				t.Error("the server has gone away before its GOAWAY")
			}
			c.SetPingAfter(after)
			<-closed
			first, want := (<-times).Sub(begin), after
			if after == 0 {
				want = 10 * time.Second
			}
			if second := (<-times).Sub(begin); first != want || second != 2*want {
				t.Errorf("got PINGs after %v and %v, want the first after %v", first, second, want)
			}
			if gone, last, ok := c.GoneAway(); !ok || gone != last || gone != (GoAway{1, EnhanceYourCalm, "too_many_pings"}) {
				t.Errorf("got the GOAWAY %+v, %t", gone, ok)
			}
		})
	}
}

// TestClientDrainsItself: a connection that a client drains ends with its last stream, also if the
// server never closes it.
func TestClientDrainsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := pipeClient(t, ClientConfig{}, asItIs)
		defer theirs.Close()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write([]byte{0, 0, 0, frames.Settings, 0, 0, 0, 0, 0})
		s := open(t, c, Message{End: true})
		c.GoAway()
		_, _ = theirs.Write([]byte{0, 0, 1, frames.Headers, frames.EndHeaders | frames.End, 0, 0, 0, 1, 0x88})
		if a, err := s.Answer(); a.Status != 200 || err != nil {
			t.Fatalf("got %+v and %v", a, err)
		}
		time.Sleep(lingerTime) // a pipe has no CloseWrite
		synctest.Wait()
		if n := clientOf(c).Stats().Conns; n != 0 {
			t.Errorf("got %d connections, want none", n)
		}
	})
}
