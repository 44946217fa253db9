package semantics

import (
	"net/http"
	"testing"
	"time"
)

// TestDates: the text matches the second.
func TestDates(t *testing.T) {
	var d dates
	start := time.Date(2026, 11, 22, 23, 59, 58, 0, time.FixedZone("X", 3600))
	for i := range 8 {
		now := start.Add(time.Duration(i) * 500 * time.Millisecond)
		if got, want := d.text(now), now.UTC().Format(http.TimeFormat); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
