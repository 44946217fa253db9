package reactor

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// onLoop returns what f finds out on the connection's loop.
func onLoop(c *Conn, f func() bool) bool {
	got := make(chan bool, 1)
	c.loop.engine.Submit(func() { got <- f() })
	return <-got
}

// Answers of a program's own goroutines and timers come after the peer's end, or a Shutdown, and before
// the connection's.
func TestHold(t *testing.T) {
	testnet.NoLeaks(t)
	for _, by := range []string{"goroutines", "timers"} {
		for _, end := range []string{"peer", "Shutdown"} {
			t.Run(by+", "+end, func(t *testing.T) {
				closed, ended := closes()
				held := make(chan *Conn, 1)
				gate := make(chan bool)
				s, dial := serve(t, &handler{close: closed, data: func(c *Conn, p []byte) int {
					for _, b := range p {
						c.Hold()
						answer := func() {
							c.Write([]byte{b})
							c.Release()
						}
						if by == "goroutines" {
							go func() {
								<-gate
								answer()
							}()
							continue
						}
						var poll func()
						poll = func() {
							select {
							case <-gate:
								answer()
							default:
								c.AfterFunc(time.Millisecond, poll)
							}
						}
						poll()
					}
					held <- c
					return len(p)
				}})
				client := dial()
				client.Write([]byte("aaaaa"))
				c := testnet.Receive(t, "the request", held)
				shut := make(chan error, 1)
				want := io.EOF
				if end == "peer" {
					client.(*net.TCPConn).CloseWrite()
				} else {
					want = ErrServerClosed
					go func() { shut <- s.Shutdown(context.Background()) }()
				}
				testnet.Eventually(t, "the end", func() bool { return c.asked.Load()&askEnd != 0 })
				if onLoop(c, func() bool { return c.hungUp || c.lingering }) {
					t.Error("the connection is closed, want it to be held")
				}
				close(gate)
				got, err := io.ReadAll(client)
				if string(got) != "aaaaa" || err != nil {
					t.Errorf("got %q, %v, want five answers", got, err)
				}
				client.Close()
				if err := testnet.Receive(t, "Close", ended); err != want {
					t.Errorf("Close: got %v, want %v", err, want)
				}
				if end == "Shutdown" {
					if err := testnet.Receive(t, "Shutdown", shut); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// IdleTimeout does not count while a connection is held, and counts again afterwards.
func TestHoldIsNotIdle(t *testing.T) {
	testnet.NoLeaks(t)
	var released atomic.Bool
	early := make(chan bool, 1)
	closed := make(chan error, 1)
	_, dial := serve(t, &handler{open: func(c *Conn) {
		c.Hold()
		c.AfterFunc(100*time.Millisecond, func() {
			released.Store(true)
			c.Release()
		})
	}, close: func(c *Conn, err error) {
		early <- !released.Load()
		closed <- err
	}}, Config{IdleTimeout: 10 * time.Millisecond})
	dial()
	if testnet.Receive(t, "Close", early) {
		t.Error("the connection was closed while it was held")
	}
	if err := <-closed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

// A Release too many panics. On a connection that has ended neither does harm.
func TestHoldMisuse(t *testing.T) {
	testnet.NoLeaks(t)
	closed, ended := closes()
	s, _ := serve(t, &handler{close: closed})
	c, _ := attach(t, s)
	c.Hold()
	c.Abort() // isn't held up
	if err := testnet.Receive(t, "Close", ended); err != nil {
		t.Error(err)
	}
	c.Release()
	defer func() {
		if recover() == nil {
			t.Error("Release without Hold: got no panic")
		}
	}()
	c.Release()
}
