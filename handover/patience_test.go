package handover

import (
	"log/slog"
	"os"
	"strings"
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

// TestRestartAgain: a signal to restart that comes during a restart leaves a line, and isn't forgotten.
func TestRestartAgain(t *testing.T) {
	log := new(testnet.Log)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	r := run{restart: make(chan os.Signal, 1)}
	if last := r.logRestarts("none")(); last != nil || log.String() != "" {
		t.Errorf("without a signal: got %v, and the line %q", last, log)
	}
	stop := r.logRestarts("one more")
	r.restart <- syscall.SIGHUP
	testnet.Eventually(t, "a line", func() bool { return strings.Contains(log.String(), "one more") })
	if last := stop(); last != syscall.SIGHUP {
		t.Errorf("got %v, want the signal", last)
	}
}
