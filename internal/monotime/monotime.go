// Package monotime represents points in time as nanoseconds on the monotonic clock, which fit into
// an atomic word. All are greater than 0, so 0 and negative numbers can mean something else.
// math.MaxInt64 is the end of time.
package monotime

import (
	"math"
	"time"
)

// epoch is the zero of the clock: a second before the process started, so that now is never near it.
var epoch = time.Now().Add(-time.Second)

// Now reads the clock. In a bubble of testing/synctest, where package time has a clock of its own, it
// still reads the real one, which the kernel and the rest of the program use.
func Now() int64 {
	if n := int64(time.Since(epoch)); n > 0 {
		return n
	}
	return nowInBubble()
}

// InBubble reports whether the calling goroutine is in a bubble of testing/synctest: the bubble's clock
// begins in the year 2000, before epoch.
func InBubble() bool { return time.Since(epoch) <= 0 }

// bubbleEpoch is the zero of Local's clock in a bubble, a second before bubbles begin.
var bubbleEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)

// Local is Now, except in a bubble: there it reads the bubble's own clock. It is for deadlines of
// connections that belong to no loop, such as those in memory. Times of one clock mean nothing to
// the other.
func Local() int64 {
	if n := int64(time.Since(epoch)); n > 0 {
		return n
	}
	return int64(time.Since(bubbleEpoch))
}

// LocalTime translates a time of Local back, where Local was called.
func LocalTime(at int64) time.Time {
	if InBubble() {
		return bubbleEpoch.Add(time.Duration(at))
	}
	return Time(at)
}

// After returns the time that is d from now.
func After(d time.Duration) int64 {
	n := Now()
	if int64(d) > math.MaxInt64-n {
		return math.MaxInt64
	}
	return max(n+int64(d), 1)
}

// Of translates t, as package net does: a time with a monotonic reading is compared by
// that, any other by the wall clock as it is now. A time before the clock began
// becomes its first nanosecond. In a bubble the distance to t is measured on the bubble's clock.
// passed reports whether t is not after the present.
func Of(t time.Time) (at int64, passed bool) {
	if t != t.Round(0) { // it has a monotonic reading, which Round(0) strips
		if n := int64(time.Since(epoch)); n > 0 {
			at = max(int64(t.Sub(epoch)), 1)
			return at, at <= n
		}
	}
	d := time.Until(t) // before After reads the clock: late, if the goroutine is held up, never early
	return After(d), d <= 0
}

// Time translates at back; the result has a monotonic reading unless it is too late for one.
func Time(at int64) time.Time { return epoch.Add(time.Duration(at)) }

// LongAgo is a deadline that has passed by every clock, inside and outside of bubbles.
var LongAgo = time.Unix(1, 0)
