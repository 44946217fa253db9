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
	c, peer := attachTLS(t, s)
	text := bytes.Repeat([]byte("text"), 100)
	testnet.Eventually(t, "the loop has opened it, and waits", func() bool {
		opened := countOpen(c.loop) == 1
		c.loop.mu.Lock()
		defer c.loop.mu.Unlock()
		return opened && !c.loop.mu.dispatching
	})
	c.sock.ahead.mu.Lock()
	testnet.GoBlocked(t, "a write", func() { c.Write(text) })
	testnet.GoBlocked(t, "what comes between the write and the end", func() {
		c.more.layered.writing.Lock()
		defer c.more.layered.writing.Unlock()
		poll(func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sock.ahead.mu.Lock()
			defer c.sock.ahead.mu.Unlock()
			return c.sock.done || c.finished // if the loop got the lock first
		})
	})
	c.Abort()
	c.sock.ahead.mu.Unlock()
	got, _ := io.ReadAll(peer.NetConn())
	var in framing
	if in.pass(got[:min(len(got), len(text))]); len(got) < len(text) || in.need != len(got)-len(text) {
		t.Errorf("got %d bytes, want one record of the %d bytes that were being written", len(got), len(text))
	}
}
