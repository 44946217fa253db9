// Package line is for goroutines that look for work, find none, and are about to wait.
package line

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// Line is the place of one goroutine in the scheduler's line of runnable goroutines. When all
// processors compute, an event that comes now is found by the scheduler up to 10 ms later, and the
// goroutine that it wakes begins at the end of the line. One that stands in line already has its turn
// earlier, and looks then. With a free processor it would only burn it, and is better off waiting.
//
//	tries  meaning                                   leaves by
//	> 0    processors are, or were lately, crowded   Yield, which stands in line: 8, if the others ran
//	                                                 for long meanwhile; otherwise one less
//	<= 0   they are not                              Yield: one less; every 8th one stands in line, to find
//	                                                 out: 8, or 0
//
// The zero value is not crowded. All methods are safe for concurrent use.
type Line struct {
	taken atomic.Bool // a goroutine stands there

	tries int // owned by the goroutine that has set taken
}

const (
	// triesMax is how many times in a row a goroutine finds that it need not wait before the processors
	// are taken for free: one that is may get to compute at any moment. It is also how many calls
	// pass for each that finds out: standing in line costs a microsecond or more, since another
	// thread starts to look for work.
	triesMax = 8

	// longTurn is how long the others run at least, if processors are crowded: a tenth of what the
	// scheduler gives a goroutine that computes.
	longTurn = time.Millisecond
)

// Yield stands in line, if processors may be crowded and no other goroutine does. It reports whether
// it has had to wait for its turn, so that there may be work now.
func (l *Line) Yield() (waited bool) {
	if !l.taken.CompareAndSwap(false, true) {
		return false
	}
	defer l.taken.Store(false)
	if l.tries--; l.tries < 0 && l.tries > -triesMax {
		return false
	}
	begin := monotime.Now()
	runtime.Gosched()
	waited = monotime.Now()-begin >= int64(longTurn)
	switch {
	case waited:
		l.tries = triesMax
	case l.tries < 0:
		l.tries = 0
	}
	return waited
}
