package loop

import (
	"fmt"
	"math"
	"math/bits"
)

// The wheel's constants. Together they give every time that an int64 of nanoseconds can hold a slot of its own
// level, so there is no clamping, no overflow list and no far-away timer that has to be looked at in between.
const (
	// wheelTickBits makes a tick 1<<20 ns ≈ 1.05 ms: what a deadline may be late by. Finer buys nothing, since the
	// runtime timer and the scheduler are as coarse under load; a power of two makes every step below a shift.
	wheelTickBits = 20
	wheelTick     = 1 << wheelTickBits

	// wheelSlotBits makes a level 64 slots, so that its occupancy is one word and the first occupied slot one
	// TrailingZeros64.
	wheelSlotBits = 6
	wheelSlots    = 1 << wheelSlotBits

	// wheelLevels is the fewest that hold the tick of math.MaxInt64: rounded up it is 1<<43, 44 bits, 8 × 6 ≥ 44.
	wheelLevels = 8

	// wheelDue is the list of timers that the advance under way is about to expire; it follows the slots' lists
	// and has the word after theirs in occupied, so linking and unlinking need not know it.
	wheelDue = wheelLevels * wheelSlots
)

// Fails to compile when the levels can't hold every tick.
const _ = uint(wheelLevels*wheelSlotBits - (64 - wheelTickBits))

// timer is one deadline's entry in a wheel, embedded in what it times, never copied. Zero value: not armed.
// While armed it is linked into the wheel, which keeps the struct around it reachable; afterwards nothing does.
type timer struct {
	next, prev *timer
	at         int64 // when it is due, nanoseconds on the caller's monotonic clock; meaningful while armed
	owner      *FD   // whose deadline this is; the wheel never looks at it
}

// armed reports whether t is in a wheel. It is false already when expire is called for t.
func (t *timer) armed() bool { return t.next != nil }

// wheel is a hierarchical timing wheel (Varghese and Lauck, 1987, scheme 7): a queue of timers with O(1) add and
// remove, exact to a tick. It is a data structure only: it has no clock, no goroutine and no lock (the caller
// serializes all calls) and never allocates. The zero value is an empty wheel that stands at time 0, before which
// the caller's clock must not go. It must not be copied once used. It takes 16.5 KiB.
//
// A tick number is written in base 64, one digit per level. A timer waits at the level of the highest digit in
// which its due tick differs from the cursor, in the slot of that digit:
//
//	level    one slot      the level     (64 slots each; level 7 uses 3 of them, then int64 ends)
//	  0       1.05 ms        67.1 ms     expires
//	  1      67.1 ms         4.29 s      cascades: when the cursor reaches a slot of level 1 or above, its timers
//	  2       4.29 s         4.58 min    agree with the cursor in this digit too, and so move to lower levels
//	  3       4.58 min       4.89 h
//	  4       4.89 h        13.0 days
//	  5      13.0 days       2.28 years
//	  6       2.28 years     146 years
//	  7     146 years        292 years
//
//	cursor   … 0  2  5 │ due  … 0  2 17  → level 0, slot 17
//	                   │ due  … 0  3  1  → level 1, slot 3
//	                   │ due  … 1  0  0  → level 2, slot 1
//	                   │ due  … 0  2  4  → overdue: waits in the cursor's own slot, level 0, slot 5
//
// A level is never entered twice around: its slots lie ahead of the cursor within the span of one slot of the level
// above. So the lowest occupied level holds the earliest timers, its first occupied slot the earliest of those, and
// the cursor can jump there over any stretch of time. Each cascade takes a timer at least one level down: a
// timer moves at most wheelLevels-1 times.
//
// Invariants (checked by [wheel.invariants]):
//   - a bit of occupied is set if and only if its list has a timer; the lists link up both ways
//   - a timer in a slot of level 1 or above is due within that slot's span, and the span begins after the cursor
//   - a timer in a slot of level 0 is due at that slot's tick, which isn't before the cursor; or it is
//     overdue and the slot is the cursor's
//   - a timer in the due list isn't due after the cursor
//   - count is the number of timers in all lists
type wheel struct {
	// cursor is the tick up to which the wheel has expired everything, that one included. It may lag far behind
	// the clock: a timer is then filed at a higher level than need be, which costs a cascade, never precision.
	cursor int64
	count  int

	occupied [wheelLevels + 1]uint64

	// lists has the head of each slot's list and of the due list. A list is circular through its head; a head is no
	// timer: its at is its own index, by which remove finds the bit to clear without knowing where a timer is.
	// It is set up whenever its list gets a first timer, so that the zero value works.
	lists [wheelDue + 1]timer
}

// len returns the number of armed timers.
func (w *wheel) len() int { return w.count }

// add arms t to expire at the given time, in nanoseconds on the clock that advance gets. Any value will do: a time
// that has passed expires at the next advance. The wheel need not have been advanced to the present before. It
// panics if t is armed: moving a timer is remove, then add. O(1).
func (w *wheel) add(t *timer, at int64) {
	if t.armed() {
		panic("loop: timer is already armed")
	}
	t.at = at
	w.count++
	w.link(t, w.slotFor(at))
}

// remove disarms t; it will not expire, not even in an advance under way. It does nothing if t isn't armed. A timer
// must be removed from the wheel it was added to. O(1).
func (w *wheel) remove(t *timer) {
	if !t.armed() {
		return
	}
	w.count--
	w.unlink(t)
}

// next returns the earliest time at which advance has something to do, be it to expire timers or only to cascade
// them: never later than the first timer's due tick, often earlier. An advance at that time or after makes progress:
// something expires or next moves on. ok is false if no timer is armed. The time may have passed. O(wheelLevels).
func (w *wheel) next() (at int64, ok bool) {
	if w.occupied[wheelLevels] != 0 { // an expire of the advance under way asks, or one panicked
		return timeOfTick(w.cursor), true
	}
	tick, _, ok := w.earliest()
	return timeOfTick(tick), ok
}

// advance disarms every timer whose time, rounded up to a tick, isn't after now and calls expire for each, in order
// of their ticks. A timer never expires before its time; it is late by less than a tick if advance is
// called when next says so. Nothing happens if now is before that of an earlier call.
//
// expire may add and remove any timer, its argument included, but must not call advance. What it removes does not
// expire, also if it was about to in this call; what it adds never expires before the next call, whatever its time,
// so that a timer which always re-arms itself in the past can't keep advance from returning.
//
// It takes O(1) per timer that expires or cascades, however long the time since the last call.
func (w *wheel) advance(now int64, expire func(*timer)) {
	target := tickOfNow(now)
	if target < w.cursor {
		return // a timer added since, due by the cursor, may yet be in the future of a clock that went back
	}
	// All that is due is collected first: once expire runs, the cursor stands at target and no add can reach the
	// due list any more. Expiring slot by slot instead would meet what expire adds between here and target.
	w.collect(target)
	for w.occupied[wheelLevels] != 0 {
		t := w.lists[wheelDue].next
		w.remove(t)
		expire(t)
	}
}

// collect moves the cursor to target, and the timers due by then to the due list, in order of their ticks.
func (w *wheel) collect(target int64) {
	for {
		tick, list, ok := w.earliest()
		if !ok || tick > target {
			w.cursor = target // passes no occupied slot, so every timer stays where it is
			return
		}
		w.cursor = tick // first: slotFor below files relative to it
		for head := &w.lists[list]; head.next != head; {
			t := head.next
			w.unlink(t)
			if list < wheelSlots {
				w.link(t, wheelDue)
			} else {
				w.link(t, w.slotFor(t.at)) // at a lower level, hence never back into this list
			}
		}
	}
}

// earliest returns the first occupied slot's list and the tick at which it begins. That tick is the cursor's own if
// there are overdue timers, else a later one.
func (w *wheel) earliest() (tick int64, list int, ok bool) {
	for level, occupied := range w.occupied[:wheelLevels] {
		if occupied != 0 {
			slot := bits.TrailingZeros64(occupied)
			return w.begin(level, slot), level*wheelSlots + slot, true
		}
	}
	return 0, 0, false
}

// begin returns the first tick of a slot: the cursor's digits above level, then slot, then zeros.
func (w *wheel) begin(level, slot int) int64 {
	shift := level * wheelSlotBits
	above := w.cursor >> (shift + wheelSlotBits)
	return (above<<wheelSlotBits | int64(slot)) << shift
}

// slotFor returns the list in which a timer due at the given time waits, seen from the cursor.
func (w *wheel) slotFor(at int64) int {
	tick := max(dueTick(at), w.cursor)
	level := (bits.Len64(uint64(tick^w.cursor)|1) - 1) / wheelSlotBits
	slot := int(tick>>(level*wheelSlotBits)) & (wheelSlots - 1)
	return level*wheelSlots + slot
}

// link appends t to a list.
func (w *wheel) link(t *timer, list int) {
	head := &w.lists[list]
	if bit := uint64(1) << (uint(list) % wheelSlots); w.occupied[uint(list)/wheelSlots]&bit == 0 {
		w.occupied[uint(list)/wheelSlots] |= bit
		head.next, head.prev, head.at = head, head, int64(list)
	}
	t.prev, t.next = head.prev, head
	t.prev.next, t.next.prev = t, t
}

// unlink takes t out of the list it is in.
func (w *wheel) unlink(t *timer) {
	if t.next == t.prev { // both are the head: t is alone
		list := uint(t.next.at)
		w.occupied[list/wheelSlots] &^= 1 << (list % wheelSlots)
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// dueTick returns the first tick that isn't before the time at: rounded up, so that no timer is early.
func dueTick(at int64) int64 {
	tick := at >> wheelTickBits
	if at&(wheelTick-1) != 0 {
		tick++
	}
	return tick
}

// tickOfNow returns the last tick that isn't after now. The end of time counts as the tick that would begin a
// nanosecond later, or else what is due in the last tick of int64, such as a timer for math.MaxInt64, never would be.
func tickOfNow(now int64) int64 {
	if now == math.MaxInt64 {
		return dueTick(now)
	}
	return now >> wheelTickBits
}

// timeOfTick returns when a tick begins. It is tickOfNow's inverse also at the end of time, where it must not wrap
// around to a time in the past at which the caller would wake up forever.
func timeOfTick(tick int64) int64 {
	if tick > math.MaxInt64>>wheelTickBits {
		return math.MaxInt64
	}
	return tick << wheelTickBits
}

// invariants returns an error that says which of the wheel's invariants is broken, or nil. For tests; it visits
// every timer. expire may call it.
func (w *wheel) invariants() error {
	count := 0
	for list := range w.lists {
		head := &w.lists[list]
		level, slot := list/wheelSlots, list%wheelSlots
		occupied := w.occupied[level]&(1<<slot) != 0
		if hasTimer := head.next != nil && head.next != head; occupied != hasTimer {
			return fmt.Errorf("level %d slot %d: occupancy bit is %t, has a timer: %t", level, slot, occupied, hasTimer)
		}
		if !occupied {
			continue
		}
		if head.at != int64(list) {
			return fmt.Errorf("level %d slot %d: index in list head is %d, want %d", level, slot, head.at, list)
		}
		for t := head; ; t = t.next {
			if t.next == nil || t.next.prev != t {
				return fmt.Errorf("level %d slot %d: broken link after %d timers", level, slot, count)
			}
			if t.next == head {
				break
			}
			if count++; count > w.count {
				return fmt.Errorf("level %d slot %d: more timers than the count of %d", level, slot, w.count)
			}
			if due := dueTick(t.next.at); !w.fits(due, level, slot) {
				return fmt.Errorf("level %d slot %d, cursor %d: has a timer due at tick %d", level, slot, w.cursor, due)
			}
		}
	}
	if count != w.count {
		return fmt.Errorf("%d timers are linked, count is %d", count, w.count)
	}
	return nil
}

// fits reports whether a timer due at the given tick may be in a slot. It restates the invariants rather than ask
// slotFor, so as to notice when that is wrong.
func (w *wheel) fits(due int64, level, slot int) bool {
	if level == wheelLevels {
		return due <= w.cursor
	}
	begin := w.begin(level, slot)
	end := begin + 1<<(level*wheelSlotBits)
	if level == 0 {
		return begin <= due && due < end && begin >= w.cursor || due < w.cursor && begin == w.cursor
	}
	return begin <= due && due < end && begin > w.cursor
}
