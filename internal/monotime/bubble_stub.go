//go:build !linux

package monotime

import "time"

// nowInBubble is Now for a goroutine in a bubble: the bubble's own clock, since there is no
// engine here that would go by another.
func nowInBubble() int64 {
	return max(int64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))), 1)
}
