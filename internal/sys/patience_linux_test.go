package sys

import (
	"math"
	"testing"
	"time"
)

// TestPaid: what was acknowledged gives a second per KiB, and four times the timeout at most.
func TestPaid(t *testing.T) {
	const second = int64(time.Second)
	for _, test := range []struct {
		acked      uint64
		since, now int64
		timeout    time.Duration
		want       int64
	}{
		{0, 10 * second, 20 * second, time.Minute, 20 * second},
		{0, 30 * second, 20 * second, time.Minute, 30 * second},
		{1 << 10, 10 * second, 20 * second, time.Minute, 21 * second},
		{1 << 10, 30 * second, 20 * second, time.Minute, 31 * second},
		{200 << 10, 30 * second, 20 * second, time.Minute, 230 * second},
		{400 << 10, 30 * second, 20 * second, time.Minute, 260 * second},
		{math.MaxInt64, 30 * second, 20 * second, time.Minute, 260 * second},
		{math.MaxInt64, 0, 20 * second, math.MaxInt64, (20 + 4*3600) * second},
	} {
		got := (Sent{acked: test.acked}).Paid(Sent{}, test.since, test.now, test.timeout)
		if d := test.want - got; d < 0 || d > second/1000 {
			t.Errorf("%+v: got %v", test, time.Duration(got))
		}
	}
}
