// Package monotime has points in time that fit an atomic word: nanoseconds on the
// monotonic clock. Every one is greater than 0, so that 0 and less are free to mean
// something else; math.MaxInt64 is the end of time.
package monotime

import (
	"math"
	"time"
)

// epoch is the zero of the clock: a second before the process started, so that now
// is never near it.
var epoch = time.Now().Add(-time.Second)

// Now reads the clock.
func Now() int64 { return int64(time.Since(epoch)) }

// After returns the time that is d from now.
func After(d time.Duration) int64 {
	n := Now()
	if int64(d) > math.MaxInt64-n {
		return math.MaxInt64
	}
	return max(n+int64(d), 1)
}

// Of translates t, as package net does: a time with a monotonic reading is compared
// by that, any other by the wall clock as it is now. What was before the clock began
// becomes its first nanosecond.
func Of(t time.Time) int64 {
	if t != t.Round(0) { // it has a monotonic reading, which Round(0) strips
		return max(int64(t.Sub(epoch)), 1)
	}
	return After(time.Until(t)) // which looks at the clock second: late, if the goroutine is held up, never early
}

// Time translates at back; the result has a monotonic reading unless it is too late
// for one.
func Time(at int64) time.Time { return epoch.Add(time.Duration(at)) }
