//go:build !linux

package monotime

import "time"

// nowInBubble is Now for a goroutine in a bubble. It reads the bubble's own clock: there is no engine
// here, which would use the kernel's.
func nowInBubble() int64 {
	return max(int64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))), 1)
}
