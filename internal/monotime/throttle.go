package monotime

import (
	"sync/atomic"
	"time"
)

// Throttle lets something happen once per period, such as a line in the log that peers can cause. The
// zero Throttle lets the first happen. It is safe for concurrent use.
type Throttle struct{ last atomic.Int64 } // when Allow last reported true; 0: never

// Allow reports whether it may happen: it last did a period ago, or longer, or never.
func (t *Throttle) Allow(period time.Duration) bool {
	last, now := t.last.Load(), Now()
	return (last == 0 || now-last >= int64(period)) && t.last.CompareAndSwap(last, now)
}
