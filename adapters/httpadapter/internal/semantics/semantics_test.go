package semantics

import (
	"net/http"
	"testing"
	"time"
)

// TestDate: the text matches the second.
func TestDate(t *testing.T) {
	var d Date
	start := time.Date(2026, 11, 22, 23, 59, 58, 0, time.FixedZone("X", 3600))
	for i := range 8 {
		now := start.Add(time.Duration(i) * 500 * time.Millisecond)
		if got, want := string(d.Append([]byte("x"), now)), "x"+now.UTC().Format(http.TimeFormat); got != want {
			t.Errorf("Append: got %q, want %q", got, want)
		}
	}
}
