package monotime

import (
	"time"

	"github.com/percore/percore/internal/sys"
)

// ahead is by how much Now is ahead of the kernel's clock. The kernel's is read first: a
// goroutine that is held up in between makes times in a bubble late, never early.
var ahead = func() int64 {
	kernel := sys.ClockMonotonic()
	return int64(time.Since(epoch)) - kernel
}()

// nowInBubble is Now for a goroutine in a bubble.
func nowInBubble() int64 { return sys.ClockMonotonic() + ahead }
