//go:build !percore_net

package systemd

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// The watchdog hears nothing while a loop doesn't turn, whichever group it is of. The log has a line.
func TestWatchdogLoops(t *testing.T) {
	for stuckGroup := range 2 {
		var groups []*loop.Group
		for range 2 {
			g, err := loop.NewGroup(loop.Config{Loops: 2})
			if err != nil {
				t.Fatal(err)
			}
			lc := percore.ListenConfig{Group: g}
			l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // starts the loops
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				l.Close()
				g.Close()
			})
			groups = append(groups, g)
		}
		sent, log := messagesOf(t)
		n := &Notifier{watchdog: 10 * time.Millisecond}
		n.Ready()
		stuck, release := make(chan struct{}), make(chan struct{})
		groups[stuckGroup].Loop(1).Submit(func() {
			close(stuck)
			<-release
		})
		testnet.Receive(t, "the loop", stuck)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.Watch(ctx, append(groups, nil)...) })
		testnet.Eventually(t, "a line in the log", func() bool { return log.Has("does not turn") })
		if got := sent.count(); got != 1 {
			t.Errorf("got %d messages while a loop does not turn, want READY=1 alone", got)
		}
		close(release)
		testnet.Eventually(t, "messages for the watchdog", func() bool { return sent.count() >= 4 })
		end()
		running.Wait()
	}
}

// Loops that have ended don't hold the watchdog up.
func TestWatchdogEnded(t *testing.T) {
	g, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	testnet.Receive(t, "the end of the group", g.Stopped())
	sent, _ := messagesOf(t)
	n := &Notifier{watchdog: 2 * time.Millisecond}
	n.Ready()
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Watch(ctx, g) })
	testnet.Eventually(t, "a message for the watchdog", func() bool { return sent.count() >= 2 })
	end()
	running.Wait()
}
