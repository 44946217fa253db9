package h2

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet/frames"
)

// TestBubble: in a bubble of testing/synctest, the times of a connection in memory are the bubble's.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := New(HandlerFunc(hello), Config{PingAfter: time.Hour, IdleTimeout: 100 * time.Minute})
		ours, theirs := net.Pipe()
		if _, err := server.Attach(ours, nil, nil); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		wantAt := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(begin); got != want {
				t.Errorf("got %s after %v, want it after %v", what, got, want)
			}
		}
		p := frames.NewPeer(t, theirs)
		p.Request(1, true).Flush().Want("headers 1 :status=200 content-type=text/plain", `data 1 "Hello, World!" end`)
		wantAt("an answer", 0)
		p.Want("goaway 1 NO_ERROR") // it answers the PING before that
		wantAt("GOAWAY", 100*time.Minute)
		p.Want("end")
		_ = server.Close()
	})
}

// TestBubbleLoops: a server in a bubble serves connections of loops, which are outside.
func TestBubbleLoops(t *testing.T) {
	serve(t, HandlerFunc(hello), Config{}).peer().Request(1, true).Flush().
		Want("headers 1 :status=200 content-type=text/plain") // starts the loops
	synctest.Test(t, func(t *testing.T) {
		f := serve(t, HandlerFunc(hello), Config{IdleTimeout: -1})
		p := f.peer()
		for id := uint32(1); id < 20; id += 2 {
			p.Request(id, true).Flush().Want(fmt.Sprintf("headers %d :status=200 content-type=text/plain", id), fmt.Sprintf(`data %d "Hello, World!" end`, id))
		}
	})
}
