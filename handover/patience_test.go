package handover

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestBusyPatience: a giver waits for busy connections for its patience, and longer while others move.
func TestBusyPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		g := giver{patience: time.Second}
		ctx, progress := g.patient(t.Context())
		for range 3 {
			time.Sleep(g.patience * 9 / 10)
			progress()
		}
		<-ctx.Done()
		if got, want := time.Since(begin), g.patience*37/10; got != want {
			t.Errorf("the wait has ended after %v, want %v", got, want)
		}
	})
}

// TestRestartAgain: a signal to restart that comes during a restart isn't forgotten if that fails, and
// one that comes after it leaves a line.
func TestRestartAgain(t *testing.T) {
	log := new(testnet.Log)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	r := run{Service: new(Service), restart: make(chan os.Signal, 1), parents: parentage{pid: 1}}
	stop := background(func(ctx context.Context) { r.wait(ctx) })
	r.restart <- syscall.SIGHUP
	r.restart <- syscall.SIGHUP // while the first fails, or after it
	testnet.Eventually(t, "two failures", func() bool { return log.Count("restarting failed") == 2 })
	stop()
	stop = background(r.logRestarts)
	r.restart <- syscall.SIGHUP
	testnet.Eventually(t, "a line", func() bool { return log.Has("has a successor") })
	stop()
}
