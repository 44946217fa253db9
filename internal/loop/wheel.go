package loop

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
)

// Together these give every time that an int64 of nanoseconds can hold a slot
// of its own: nothing is clamped, and there is no overflow list.
const (
	// wheelTickBits makes a tick 1<<20 ns ≈ 1.05 ms, and a deadline may be late by a tick. A finer tick
	// gains little, since waking a goroutine takes as long on a busy machine; a power of two makes every
	// conversion below a shift.
	wheelTickBits = 20
	wheelTick     = 1 << wheelTickBits

	// wheelSlotBits makes a level 64 slots: its occupancy is one word, and the
	// first occupied slot one TrailingZeros64.
	wheelSlotBits = 6
	wheelSlots    = 1 << wheelSlotBits

	// wheelLevels is the fewest that do: math.MaxInt64 rounds up to tick 1<<43,
	// which has 44 bits, and 8 × 6 ≥ 44.
	wheelLevels = 8

	// wheelDue is the list of the timers that the advance under way is about to expire. It
	// follows the lists of the slots and has the word after theirs in occupied, so that
	// linking and unlinking need not know of it.
	wheelDue = wheelLevels * wheelSlots
)

// Fails to compile if the levels can't hold every tick.
const _ = uint(wheelLevels*wheelSlotBits - (64 - wheelTickBits))

// timer is a deadline's entry in a wheel. It is never copied. The zero value isn't armed. While a
// timer is armed, the wheel keeps it and the struct around it reachable.
type timer struct {
	next, prev *timer
	at         atomic.Int64 // when it is due, nanoseconds on the caller's monotonic clock; only add writes it here
	owner      *FD          // the owner of the deadline, nil for a Timer's; the wheel never looks at it
}

// armed reports whether t is in a wheel. When expire gets t, it is no longer in one.
func (t *timer) armed() bool { return t.next != nil }

// wheel is a hierarchical timing wheel (Varghese and Lauck, 1987, scheme 7): a queue of timers with
// add and remove in O(1), exact to a tick. The caller serializes all calls. No call allocates. The zero
// value is an empty wheel at time 0, before which the caller's clock must not go. It takes 16 KiB.
//
// Think of a tick's number in base 64, a digit per level. A timer waits at the level of the highest
// digit in which its due tick differs from the cursor, in that digit's slot:
//
//	level   one slot     64 slots     when the cursor reaches a slot
//	  0      1.05 ms      67.1 ms     its timers expire
//	  1     67.1  ms      4.29 s      its timers cascade: they agree with the
//	  2     4.29  s       4.58 min    cursor in this digit too now and move
//	  3     4.58  min     4.89 h      to lower levels
//	  4     4.89  h       13.0 days
//	  5     13.0  days    2.28 years
//	  6     2.28  years    146 years
//	  7      146  years    292 years  (int64 ends in the third slot)
//
//	cursor  … 0  2  5      due  … 0  2 17   level 0, slot 17
//	                            … 0  3  1   level 1, slot 3
//	                            … 1  0  0   level 2, slot 1
//	                            … 0  2  4   overdue: level 0, slot 5, the cursor's
//
// So the slots of a level lie between the cursor and the next slot of the level above. The lowest
// occupied level has the earliest timers, its first occupied slot the earliest of those, and the
// cursor can jump there over any stretch of time. A cascade takes a timer down a level or more, so
// it goes through at most seven.
//
// Invariants, checked by [wheel.invariants]:
//   - a bit of occupied is set if and only if its list has a timer
//   - lists are linked consistently both ways; count is the timers in all lists
//   - a timer at level 1 or above is due within its slot's span, which begins
//     after the cursor
//   - a timer at level 0 is due at its slot's tick, which isn't before the
//     cursor; or it is overdue, and its slot is the cursor's
//   - a timer in the due list isn't due after the cursor
type wheel struct {
	// cursor is the tick up to and including which all timers have expired. It
	// may lag behind the clock while there is nothing to do. Timers are filed
	// at a higher level then, which costs a cascade but no precision.
	cursor int64
	count  int

	occupied [wheelLevels + 1]uint64

	// lists has a circular list per slot, and the due list. Its elements are the heads: links only,
	// and in at the head's own index, by which unlink finds the bit to clear without knowing where
	// a timer is. A head is set up when its list gets a first timer, so that the zero value works.
	lists [wheelDue + 1]timer
}

func (w *wheel) len() int { return w.count }

// add arms t to expire at the given time on the clock that advance gets. Any value will do. A time
// that has passed is rounded up to a tick like any other: it expires at the next advance, or at the
// end of the present tick if it is within that. The wheel need not have been advanced to the
// present. It panics if t is armed; to move a timer, remove it first. O(1).
func (w *wheel) add(t *timer, at int64) {
	if t.armed() {
		panic("loop: timer is already armed")
	}
	t.at.Store(at)
	w.count++
	w.link(t, w.listFor(at))
}

// remove disarms t, also in an advance under way. It does nothing if t isn't armed. O(1).
func (w *wheel) remove(t *timer) {
	if !t.armed() {
		return
	}
	w.count--
	w.unlink(t)
}

// next returns the earliest time at which advance has something to do, which may be to cascade timers
// only: never later than the first timer's due tick, often earlier, possibly in the past. An advance
// then or later makes progress: a timer expires, or next moves on. ok is false if no timer is armed.
func (w *wheel) next() (at int64, ok bool) {
	if w.occupied[wheelLevels] != 0 { // expire asks, or it panicked before
		return timeOfTick(w.cursor), true
	}
	tick, _, ok := w.earliest()
	return timeOfTick(tick), ok
}

// advance disarms every timer whose time, rounded up to a tick, isn't after now and calls expire
// for each, in order of their ticks. No timer expires before its time; if advance is called when
// next says, it is late by less than a tick. A call with a now in an earlier tick than a previous
// one's does nothing.
//
// expire may add and remove any timers, its own included, but must not call advance. A timer that
// it removes does not expire, even if it was about to. A timer that it adds doesn't expire before
// the next call, early or late: a timer that always re-arms itself in the past doesn't keep advance
// from returning.
//
// A call takes O(1) per timer that expires or cascades, however long ago the last one was.
func (w *wheel) advance(now int64, expire func(*timer)) {
	target := tickOfNow(now)
	if target < w.cursor {
		return // the cursor can't go back: timers are filed as seen from it
	}
	// First collect all that is due, then expire it: with the cursor at target,
	// nothing that expire adds can get into the due list. A wheel that expired
	// slot by slot would come across it on the way.
	w.collect(target)
	for w.occupied[wheelLevels] != 0 {
		t := w.lists[wheelDue].next
		w.remove(t)
		expire(t)
	}
	checkWheel(w)
}

// collect moves the cursor to target, and the timers due by then to the due list.
func (w *wheel) collect(target int64) {
	for {
		tick, list, ok := w.earliest()
		if !ok || tick > target {
			w.cursor = target // passes no occupied slot: all timers may stay
			return
		}
		w.cursor = tick // before listFor, which uses it
		for head := &w.lists[list]; head.next != head; {
			t := head.next
			w.unlink(t)
			if list < wheelSlots {
				w.link(t, wheelDue)
			} else {
				w.link(t, w.listFor(t.at.Load())) // at a lower level, so the loop ends
			}
		}
	}
}

// earliest returns the first occupied slot's list and the tick it begins at,
// which is the cursor's if there are overdue timers and a later one otherwise.
func (w *wheel) earliest() (tick int64, list int, ok bool) {
	for level, occupied := range w.occupied[:wheelLevels] {
		if occupied != 0 {
			slot := bits.TrailingZeros64(occupied)
			return w.begin(level, slot), level*wheelSlots + slot, true
		}
	}
	return 0, 0, false
}

// begin returns a slot's first tick: the cursor's digits above level, the slot, zeros.
func (w *wheel) begin(level, slot int) int64 {
	shift := level * wheelSlotBits
	above := w.cursor >> (shift + wheelSlotBits)
	return (above<<wheelSlotBits | int64(slot)) << shift
}

// listFor returns the list in which a timer due at the given time waits.
func (w *wheel) listFor(at int64) int {
	tick := max(dueTick(at), w.cursor)
	level := (bits.Len64(uint64(tick^w.cursor)|1) - 1) / wheelSlotBits
	slot := int(tick>>(level*wheelSlotBits)) & (wheelSlots - 1)
	return level*wheelSlots + slot
}

func (w *wheel) link(t *timer, list int) {
	head := &w.lists[list]
	if bit := uint64(1) << (uint(list) % wheelSlots); w.occupied[uint(list)/wheelSlots]&bit == 0 {
		w.occupied[uint(list)/wheelSlots] |= bit
		head.next, head.prev = head, head
		head.at.Store(int64(list))
	}
	t.prev, t.next = head.prev, head
	t.prev.next, t.next.prev = t, t
}

func (w *wheel) unlink(t *timer) {
	if t.next == t.prev { // alone: both are the head
		list := uint(t.next.at.Load())
		w.occupied[list/wheelSlots] &^= 1 << (list % wheelSlots)
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// dueTick returns the first tick that doesn't begin before the given time:
// rounded up, so that no timer is early.
func dueTick(at int64) int64 {
	tick := at >> wheelTickBits
	if at&(wheelTick-1) != 0 {
		tick++
	}
	return tick
}

// tickOfNow returns the last tick that doesn't begin after now. At the end of time
// it is the one that would begin a nanosecond later: the timers due after the last
// tick's beginning, such as a timer for math.MaxInt64, would never expire.
func tickOfNow(now int64) int64 {
	if now == math.MaxInt64 {
		return dueTick(now)
	}
	return now >> wheelTickBits
}

// timeOfTick returns when a tick begins. At the end of time it stops: wrapping
// around to a time in the past would make the caller wake up forever.
func timeOfTick(tick int64) int64 {
	if tick > math.MaxInt64>>wheelTickBits {
		return math.MaxInt64
	}
	return tick << wheelTickBits
}

// invariants returns an error that says which invariant is broken, or nil. It
// visits every timer; it is for tests. expire may call it.
func (w *wheel) invariants() error {
	count := 0
	for list := range w.lists {
		head := &w.lists[list]
		level, slot := list/wheelSlots, list%wheelSlots
		bit := w.occupied[level]&(1<<slot) != 0
		if filled := head.next != nil && head.next != head; bit != filled {
			return fmt.Errorf("level %d slot %d: bit %t, has a timer %t", level, slot, bit, filled)
		}
		if !bit {
			continue
		}
		if got := head.at.Load(); got != int64(list) {
			return fmt.Errorf("level %d slot %d: index in head is %d, want %d", level, slot, got, list)
		}
		for t := head; ; t = t.next {
			if t.next == nil || t.next.prev != t {
				return fmt.Errorf("level %d slot %d: broken link", level, slot)
			}
			if t.next == head {
				break
			}
			if count++; count > w.count {
				return fmt.Errorf("level %d slot %d: timers beyond the count of %d", level, slot, w.count)
			}
			if due := dueTick(t.next.at.Load()); !w.fits(due, level, slot) {
				return fmt.Errorf("level %d slot %d: has a timer due at tick %d, cursor is %d", level, slot, due, w.cursor)
			}
		}
	}
	if count != w.count {
		return fmt.Errorf("%d timers are linked, count is %d", count, w.count)
	}
	return nil
}

// fits reports whether a timer due at the given tick may be in a slot. It uses
// the invariants, not listFor, so as to notice when that is wrong.
func (w *wheel) fits(due int64, level, slot int) bool {
	if level == wheelLevels {
		return due <= w.cursor
	}
	begin := w.begin(level, slot)
	within := begin <= due && due < begin+1<<(level*wheelSlotBits)
	if level > 0 {
		return within && begin > w.cursor
	}
	return within && begin >= w.cursor || due < w.cursor && begin == w.cursor
}
