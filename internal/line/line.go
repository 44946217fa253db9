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
//	> 0    processors are, or were lately, crowded   Stand: 8, if others computed meanwhile; otherwise
//	                                                 one less
//	<= 0   they are not                              Yield: one less; every 8th one stands in line, to find
//	                                                 out, and so does the next if others computed:
//	                                                 8, if they do again; otherwise 0
//
// One long turn is no proof: the kernel may have given the thread's processor to another process.
//
// The zero value is not crowded. All methods are safe for concurrent use.
type Line struct {
	taken atomic.Bool // a goroutine stands there

	tries atomic.Int32 // written by the goroutine that has set taken
	long  bool         // the turn of the others was long, the last time; its own, too
}

const (
	// triesMax is how many times in a row a goroutine finds that it need not wait before the processors
	// are taken for free: one that is may get to compute at any moment. It is also how many calls
	// pass for each that finds out: standing in line costs a microsecond or more, since another
	// thread starts to look for work.
	triesMax = 8

	// longTurn is how long the turn of each goroutine takes at least, if it is one that computes: a good
	// part of the 10 ms that the scheduler gives it.
	longTurn = 4 * time.Millisecond
)

// Crowded reports whether all processors were busy with goroutines that compute, lately.
func (l *Line) Crowded() bool { return l.tries.Load() > 0 }

// Yield stands in line, if processors may be crowded and no other goroutine does. It reports whether
// the turn of the others was long, so that there may be work now.
//
// served returns how much work of the caller's kind has been done until now. Goroutines that did some
// of that don't compute, even if they have kept the processors busy: what is to be done is in
// line already, and a goroutine that looks for more, and serves it, would go before it.
func (l *Line) Yield(served func() uint64) (long bool) {
	if !l.taken.CompareAndSwap(false, true) {
		return false
	}
	defer l.taken.Store(false)
	if tries := l.tries.Load() - 1; tries < 0 && tries > -triesMax && !l.long {
		l.tries.Store(tries)
		return false
	}
	return l.Stand(served)
}

// Stand is Yield that stands in line in any case. One goroutine at a time may call it.
func (l *Line) Stand(served func() uint64) (long bool) {
	begin, before := monotime.Now(), served()
	runtime.Gosched()
	turns := served() - before + 1
	again := l.long || l.Crowded()
	long = uint64(monotime.Now()-begin) >= uint64(longTurn)*turns
	l.long = long
	if long && again {
		l.tries.Store(triesMax)
	} else {
		l.tries.Store(max(0, l.tries.Load()-1))
	}
	return long
}
