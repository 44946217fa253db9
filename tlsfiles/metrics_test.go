package tlsfiles

import (
	"runtime"
	"testing"
)

// The end of a certificate is shown while its Files is in use.
func TestMetrics(t *testing.T) {
	f := newFixture(t).open(nil)
	end := notAfter(f.Certificate()).Unix()
	if got := firstEnd(); got == 0 || got > end {
		t.Errorf("got %d as the end of the first certificate, want %d or an earlier one", got, end)
	}
	if n := len(metrics()); n != 5 {
		t.Errorf("got %d metrics, want 5", n)
	}
	runtime.KeepAlive(f)
}
