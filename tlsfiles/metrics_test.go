package tlsfiles

import (
	"runtime"
	"testing"
)

// The end of a certificate is shown while its Files is in use, and counts are also those of the process.
func TestMetrics(t *testing.T) {
	f := newFixture(t).open(nil)
	end, loaded := notAfter(f.Certificate()).Unix(), totals.loaded.Load()
	if got := firstEnd(); got == 0 || got > end {
		t.Errorf("got %d as the end of the first certificate, want %d or an earlier one", got, end)
	}
	f.report("certificate", nil)
	if got := f.Stats().Loaded; got != 1 || totals.loaded.Load() != loaded+1 {
		t.Errorf("got %d loads of the files and %d of the process, want 1 and %d", got, totals.loaded.Load(), loaded+1)
	}
	if n := len(metrics()); n != 5 {
		t.Errorf("got %d metrics, want 5", n)
	}
	runtime.KeepAlive(f)
}
