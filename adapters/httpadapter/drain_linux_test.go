//go:build !percore_net

package httpadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// Clients of HTTP/2 are told at once, those of later connections, too: streams that they open before
// they know are served, and then the connections end.
func TestDrainHTTP2(t *testing.T) {
	eachLeaving(t, func(t *testing.T, f *leavingServer) {
		idle, busy := f.dial(), f.dial()
		idle.Request(1, true).Flush()
		f.wantAnswer(idle)
		busy.Headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/wait", ":authority", "a").Flush()
		testnet.Receive(t, "the handler's begin", f.begun)
		done := make(chan error, 1)
		go func() { done <- f.ours.Drain(t.Context()) }()
		testnet.Eventually(t, "Drain", func() bool { return f.ours.HTTP2Stats().Draining == 2 })
		late := f.dial()
		late.Request(1, true).Flush()
		f.wantAnswer(late)
		f.wantEnd(late)
		silent := f.dial()
		silent.Flush().Want("goaway 2147483647 NO_ERROR", "goaway 0 NO_ERROR", "end").Conn.Close()
		idle.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", "end").Conn.Close()
		busy.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		select {
		case err := <-done:
			t.Errorf("Drain has returned %v while a stream is open", err)
		default:
		}
		f.end <- true
		f.wantAnswer(busy)
		busy.Want("end").Conn.Close()
		if err := testnet.Receive(t, "Drain", done); err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
}
