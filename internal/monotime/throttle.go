package monotime

import (
	"sync/atomic"
	"time"
)

// Throttle limits something that peers can cause, such as a line in the log, to once per period. The
// zero Throttle is ready to use. It is safe for concurrent use.
type Throttle struct{ last atomic.Int64 } // when Allow last reported true; 0: never

// Allow reports whether a period has passed since it last reported true. The first call reports true.
func (t *Throttle) Allow(period time.Duration) bool {
	last, now := t.last.Load(), Now()
	return (last == 0 || now-last >= int64(period)) && t.last.CompareAndSwap(last, now)
}
