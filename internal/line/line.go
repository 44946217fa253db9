// Package line is for goroutines that look for work, find none, and are about to wait.
package line

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// Line is the place of one goroutine in the scheduler's run queue, its line of runnable goroutines.
// When all processors compute, the scheduler finds a new event up to 10 ms later, and the goroutine
// that it wakes begins at the end of the line. A goroutine that already stands in line gets its
// turn earlier, and looks then. While a processor is free, standing in line would only burn CPU
// time, so it is better to wait.
//
//	tries  meaning                                   leaves by
//	> 0    processors are, or were lately, crowded   Stand: 8, if others computed meanwhile; otherwise
//	                                                 one less
//	<= 0   they are not                              Yield: one less; every 8th one stands in line, to find
//	                                                 out: 8, or 0. Suspect: the next one does
//
// The zero value is not crowded. All methods are safe for concurrent use.
type Line struct {
	taken atomic.Bool // a goroutine stands in line

	tries atomic.Int32 // written by the goroutine that stands in line, or is about to, and by Suspect

	// the last mark of the goroutine that stands in line, or 0. The two may be of different calls, which
	// makes a turn longer or shorter by a moment
	since  atomic.Int64
	before atomic.Uint64
}

const (
	// triesMax is how many times in a row a goroutine must find that it need not wait before the
	// processors count as free: even a free processor may start to compute at any moment. It is
	// also how many calls of Yield there are for each that stands in line to find out. Standing in
	// line costs a microsecond or more, since another thread starts to look for work.
	triesMax = 8

	// longTurn is the shortest turn that counts as computing: a good part of the 10 ms that the
	// scheduler gives each goroutine.
	longTurn = 4 * time.Millisecond
)

// Crowded reports whether all processors were recently busy with goroutines that compute.
func (l *Line) Crowded() bool { return l.tries.Load() > 0 }

// Suspect makes the next Yield stand in line, to find out, if the turns since a time by monotime have
// been long: the caller's kind of work may have taken them, or goroutines that compute.
func (l *Line) Suspect(since int64) {
	if tries := l.tries.Load(); tries <= 0 && monotime.Now()-since >= int64(longTurn) {
		l.tries.CompareAndSwap(tries, 1-triesMax)
	}
}

// Yield stands in line if processors may be crowded and no other goroutine stands there. It reports
// whether the others' turn was long, so that there may be work now.
//
// served returns how much work of the caller's kind has been done so far. Goroutines that did such
// work don't count as computing, even if they kept the processors busy. The pending work already
// stands in line, and a goroutine that looked for more and served it would jump the queue. The count
// may be rough: one that has gone back counts as no work.
func (l *Line) Yield(served func() uint64) (long bool) {
	if !l.taken.CompareAndSwap(false, true) {
		return false
	}
	defer l.taken.Store(false)
	if tries := l.tries.Load() - 1; tries < 0 && tries > -triesMax {
		l.tries.Store(tries)
		return false
	}
	return l.Stand(served)
}

// Stand is like Yield, but always stands in line. Only one goroutine at a time may call it.
func (l *Line) Stand(served func() uint64) (long bool) {
	begin := mark{monotime.Now(), served()}
	l.before.Store(begin.served)
	l.since.Store(begin.at)
	runtime.Gosched()
	work := served()
	long = begin.isLong(work) || mark{l.since.Load(), l.before.Load()}.isLong(work)
	l.since.Store(0)
	if long {
		l.tries.Store(triesMax)
	} else {
		l.tries.Store(max(0, l.tries.Load()-1))
	}
	return long
}

// RanOut says that no work of the caller's kind is left. If a goroutine stands in line, what it waits
// for from then on is the others' turn, however much work was done before.
func (l *Line) RanOut(served func() uint64) {
	if since := l.since.Load(); since != 0 {
		l.before.Store(served())
		l.since.CompareAndSwap(since, monotime.Now()) // it may have had its turn meanwhile
	}
}

// mark is when a turn of others began, and how much work had been done by then.
type mark struct {
	at     int64
	served uint64
}

// isLong reports whether others have computed since, if so much work has been done by now.
func (m mark) isLong(served uint64) bool {
	turns := max(0, int64(served-m.served)) + 1
	return monotime.Now()-m.at >= int64(longTurn)*turns
}
