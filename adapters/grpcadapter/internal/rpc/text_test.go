package rpc

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimeoutText: a time is sent as one that is not shorter, nor much longer.
func TestTimeoutText(t *testing.T) {
	all := []time.Duration{1, 99_999_999, 100_000_000, math.MaxInt64, math.MaxInt64 - 1}
	for range 10_000 {
		all = append(all, time.Duration(rand.Int64()>>rand.IntN(63))+1)
	}
	for _, d := range all {
		text := encodeTimeout(d)
		got, err := decodeTimeout(text)
		if err != nil || got < d || float64(got) > float64(d)*1.0001+1 {
			t.Fatalf("%d ns: got %q, which is %d ns and %v", d, text, got, err)
		}
	}
}
