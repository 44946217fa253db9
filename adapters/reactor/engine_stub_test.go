//go:build !linux || percore_net

package reactor

import (
	"bytes"
	"io"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A deferred function runs also if there is always another function to run.
func TestDeferUnderLoad(t *testing.T) {
	var s serial
	done, ended := false, make(chan int, 1)
	runs := 0
	var again func()
	again = func() {
		if runs++; done || runs > 1000 {
			ended <- runs
			return
		}
		s.Submit(again)
	}
	s.Submit(func() { s.Defer(func() { done = true }) })
	s.Submit(again)
	if n := testnet.Receive(t, "the functions", ended); n > 1000 {
		t.Error("the deferred function waits until no other is left")
	}
}

// A connection with a layer is closed while a goroutine of the program's begins to write to it: the peer
// gets what is being written, and nothing that would follow a gap.
func TestAbortUnderLayeredWrite(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	l := new(plainLayer)
	c, peer := attachLayer(t, s, l)
	l.ending = func() {
		poll(func() bool {
			c.sock.ahead.mu.Lock()
			defer c.sock.ahead.mu.Unlock()
			return c.sock.done
		})
	}
	text := bytes.Repeat([]byte("text"), 100)
	testnet.Eventually(t, "the loop has opened it, and waits", func() bool {
		opened := countOpen(c.loop) == 1
		c.loop.mu.Lock()
		defer c.loop.mu.Unlock()
		return opened && !c.loop.mu.dispatching
	})
	c.sock.ahead.mu.Lock()
	testnet.GoBlocked(t, "a write", func() { c.Write(text) })
	c.Abort()
	c.sock.ahead.mu.Unlock()
	if got, _ := io.ReadAll(peer); !bytes.Equal(got, text) {
		t.Errorf("got %d bytes, want the %d that were being written", len(got), len(text))
	}
}
