package loop

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The model: a wheel's duties, done slowly with a sorted slice.

// modelTimer is an armed timer. tick is the first one at which it may expire:
// its own, or the wheel's position when it was armed in the past.
type modelTimer struct {
	id   int
	at   int64
	tick int64
}

type wheelModel struct {
	tick  int64        // of the latest advance
	armed []modelTimer // sorted by tick
	due   []modelTimer // sorted by tick; expiring in the advance under way
}

// modelDueTick divides, rounding up, where the wheel shifts.
func modelDueTick(at int64) int64 {
	tick := at / wheelTick
	if at%wheelTick > 0 {
		tick++
	}
	return tick
}

// modelTick divides, rounding down. No later time than math.MaxInt64 can come,
// so all that is due then is due now.
func modelTick(now int64) int64 {
	if now == math.MaxInt64 {
		return now/wheelTick + 1
	}
	return now / wheelTick
}

// later returns the index of the first armed timer that is due after tick.
func (m *wheelModel) later(tick int64) int {
	i := slices.IndexFunc(m.armed, func(e modelTimer) bool { return e.tick > tick })
	if i < 0 {
		return len(m.armed)
	}
	return i
}

func (m *wheelModel) add(id int, at int64) {
	tick := max(modelDueTick(at), m.tick)
	m.armed = slices.Insert(m.armed, m.later(tick), modelTimer{id: id, at: at, tick: tick})
}

// remove reports whether the timer was armed, be it about to expire.
func (m *wheelModel) remove(id int) bool {
	is := func(e modelTimer) bool { return e.id == id }
	before := len(m.armed) + len(m.due)
	m.armed = slices.DeleteFunc(m.armed, is)
	m.due = slices.DeleteFunc(m.due, is)
	return len(m.armed)+len(m.due) < before
}

// advance moves the timers due at now to m.due.
func (m *wheelModel) advance(now int64) {
	m.tick = max(m.tick, modelTick(now))
	if modelTick(now) == m.tick {
		n := m.later(m.tick)
		m.due = append(m.due, m.armed[:n]...)
		m.armed = slices.Delete(m.armed, 0, n)
	}
}

// wheelPairTimers is few, so that random operations often meet the same timer.
const wheelPairTimers = 24

// wheelPair plays each operation on a wheel and on the model and compares them.
type wheelPair struct {
	t        *testing.T
	step     string // the program being played, for failures
	wheel    wheel
	model    wheelModel
	timers   [wheelPairTimers]timer
	onExpire [wheelPairTimers]func() // a timer's action when it expires
	clock    int64                   // the present; the wheel may not have been advanced to it
	advanced int64                   // the latest time it was advanced to

	added       [wheelPairTimers]bool // since the latest advance began: these may be as overdue as they like
	expiring    int64                 // the now of the advance under way
	expired     int                   // by the advance under way or the last one
	expiredTick int64                 // the latest tick that expired in the advance under way
}

func (p *wheelPair) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: clock %d, advanced to %d: %s", p.step, p.clock, p.advanced, fmt.Sprintf(format, args...))
}

func (p *wheelPair) id(tm *timer) int {
	for id := range p.timers {
		if &p.timers[id] == tm {
			return id
		}
	}
	p.fatalf("got a timer that isn't one of ours: %p", tm)
	return 0
}

// set arms the timer, which need not be disarmed.
func (p *wheelPair) set(id int, at int64) {
	p.unset(id)
	p.wheel.add(&p.timers[id], at)
	p.model.add(id, at)
	p.added[id] = true
}

func (p *wheelPair) unset(id int) {
	p.t.Helper()
	if got, want := p.timers[id].armed(), p.model.remove(id); got != want {
		p.fatalf("timer %d is armed: got %t, want %t", id, got, want)
	}
	p.wheel.remove(&p.timers[id])
}

// advance advances both, checks the expired timers and afterwards everything else,
// and returns how many expired.
func (p *wheelPair) advance(now int64) int {
	p.t.Helper()
	p.expiring, p.expired, p.expiredTick = now, 0, 0
	back := modelTick(now) < p.model.tick
	if !back {
		p.advanced = max(p.advanced, now)
	}
	p.clock = max(p.clock, now)
	p.model.advance(now)
	clear(p.added[:])
	p.wheel.advance(now, func(tm *timer) { p.expire(p.id(tm)) })
	if len(p.model.due) > 0 {
		p.fatalf("advance(%d) did not expire %+v", now, p.model.due)
	}
	for id := range p.timers {
		if tm := &p.timers[id]; !back && tm.armed() && !p.added[id] && tm.at.Load() <= now-wheelTick {
			p.fatalf("advance(%d): timer %d, due at %d, is late by a tick or more", now, id, tm.at.Load())
		}
	}
	p.check()
	return p.expired
}

// expire is the wheel's callback.
func (p *wheelPair) expire(id int) {
	p.t.Helper()
	tm := &p.timers[id]
	if tm.armed() {
		p.fatalf("timer %d is still armed when it expires", id)
	}
	if tm.at.Load() > p.expiring {
		p.fatalf("advance(%d) expires timer %d, due at %d, early by %d ns", p.expiring, id, tm.at.Load(), tm.at.Load()-p.expiring)
	}
	i := slices.IndexFunc(p.model.due, func(e modelTimer) bool { return e.id == id })
	if i < 0 {
		p.fatalf("advance(%d) expires timer %d, due at %d; want only %+v", p.expiring, id, tm.at.Load(), p.model.due)
	}
	tick := p.model.due[i].tick
	if tick < p.expiredTick {
		p.fatalf("timer %d of tick %d expires after one of tick %d", id, tick, p.expiredTick)
	}
	p.expiredTick = tick
	p.expired++
	p.model.remove(id)
	if action := p.onExpire[id]; action != nil {
		action()
	}
	p.checkInvariants()
}

// check compares the visible state of the wheel between two calls.
func (p *wheelPair) check() {
	p.t.Helper()
	p.checkInvariants()
	if got, want := p.wheel.len(), len(p.model.armed); got != want {
		p.fatalf("len: got %d, want %d", got, want)
	}
	at, ok := p.wheel.next()
	if want := len(p.model.armed) > 0; ok != want {
		p.fatalf("next: got ok %t, want %t", ok, want)
	}
	for _, entry := range p.model.armed {
		if tm := &p.timers[entry.id]; !tm.armed() || tm.at.Load() != entry.at {
			p.fatalf("timer %d: got armed %t, at %d; want true, %d", entry.id, tm.armed(), tm.at.Load(), entry.at)
		}
	}
	if !ok {
		return
	}
	first := p.model.armed[0]
	if modelTick(at) > first.tick {
		p.fatalf("next: got %d, later than tick %d at which timer %d is due", at, first.tick, first.id)
	}
	if overdue := first.tick <= p.model.tick; overdue && at > p.advanced {
		p.fatalf("next: got %d, want a time that has passed: timer %d is overdue", at, first.id)
	} else if !overdue && at <= p.advanced {
		p.fatalf("next: got %d, want a time to come: the wheel has been advanced there and nothing is overdue", at)
	}
}

func (p *wheelPair) checkInvariants() {
	p.t.Helper()
	if err := p.wheel.invariants(); err != nil {
		p.fatalf("%v", err)
	}
}

// advanceToNext checks that doing as next says makes progress, and that nothing happens before.
func (p *wheelPair) advanceToNext() {
	p.t.Helper()
	at, ok := p.wheel.next()
	if !ok {
		return
	}
	if at > p.advanced {
		if n := p.advance(at - 1); n > 0 {
			p.fatalf("%d timers expired before next, %d", n, at)
		}
		if got, _ := p.wheel.next(); got != at {
			p.fatalf("next went from %d to %d though nothing happened", at, got)
		}
	}
	if p.advance(at) > 0 {
		return
	}
	if after, ok := p.wheel.next(); !ok || after <= at {
		p.fatalf("advance(next = %d) expired nothing and next is %d, %t", at, after, ok)
	}
}

// drain runs the wheel by next until it is empty. A timer is seen at most once per level.
func (p *wheelPair) drain() {
	p.t.Helper()
	p.step = "drain"
	clear(p.onExpire[:])
	for limit := p.wheel.len() * wheelLevels; p.wheel.len() > 0; limit-- {
		if limit == 0 {
			p.fatalf("%d timers are left after %d steps for each of them", p.wheel.len(), wheelLevels)
		}
		p.advanceToNext()
	}
}

// wheelProgram is a sequence of operations encoded in bytes, random or from the
// fuzzer. Missing bytes are zero.
type wheelProgram []byte

func (prog *wheelProgram) byte() byte {
	if len(*prog) == 0 {
		return 0
	}
	b := (*prog)[0]
	*prog = (*prog)[1:]
	return b
}

func (prog *wheelProgram) id() int { return int(prog.byte()) % wheelPairTimers }

// time decodes a function from the present to a time, of any order of magnitude with equal chance.
func (prog *wheelProgram) time() func(clock int64) int64 {
	kind, mantissa, shift := prog.byte(), int64(prog.byte()), prog.byte()
	switch kind % 8 {
	case 0: // the past, also before time 0
		return func(clock int64) int64 { return clock - mantissa<<(shift%55) }
	case 1: // a few ticks ahead, on the boundary or a nanosecond to a side
		return func(clock int64) int64 {
			return saturatingAdd(clock-clock%wheelTick, mantissa*wheelTick+int64(shift%3)-1)
		}
	case 2: // the end of time
		return func(int64) int64 { return math.MaxInt64 - mantissa<<(shift%56) }
	default: // ahead by up to 9 years
		return func(clock int64) int64 { return saturatingAdd(clock, mantissa<<(shift%50)) }
	}
}

// clock decodes a time that the clock takes on. It seldom jumps to the end of
// time, where no program has much to do.
func (prog *wheelProgram) clock(now int64) int64 {
	seldom := prog.byte() == 255
	if to := prog.time()(now); to < math.MaxInt64>>1 || seldom {
		return max(0, to)
	}
	return now
}

func saturatingAdd(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// runWheelProgram plays a program and finally drains the wheel.
func runWheelProgram(t *testing.T, prog wheelProgram) {
	t.Helper()
	p := &wheelPair{t: t}
	for step := 0; len(prog) > 0; step++ {
		op := prog.byte() % 12
		p.step = fmt.Sprintf("step %d, operation %d", step, op)
		switch op {
		case 0, 1, 2, 3:
			p.set(prog.id(), prog.time()(p.clock))
		case 4:
			p.unset(prog.id())
		case 5: // time passes without an advance
			p.clock = max(p.clock, prog.clock(p.clock))
		case 6:
			p.advance(p.clock)
		case 7:
			p.advance(prog.clock(p.clock)) // possibly back
		case 8, 9:
			p.advanceToNext()
		case 10, 11:
			p.decodeAction(&prog)
		}
		p.check()
	}
	p.drain()
}

// decodeAction gives a timer something to do whenever it expires.
func (p *wheelPair) decodeAction(prog *wheelProgram) {
	id, kind, other, at := prog.id(), prog.byte(), prog.id(), prog.time()
	switch kind % 4 {
	case 0:
		p.onExpire[id] = nil
	case 1:
		p.onExpire[id] = func() { p.set(id, at(p.clock)) }
	case 2:
		p.onExpire[id] = func() { p.unset(other) }
	case 3:
		p.onExpire[id] = func() { p.set(other, at(p.clock)) }
	}
}

func randomWheelProgram(seed uint64, length int) wheelProgram {
	random := rand.New(rand.NewPCG(seed, 0))
	prog := make(wheelProgram, length)
	for i := range prog {
		prog[i] = byte(random.Uint32())
	}
	return prog
}

// TestWheelModel plays random programs. To replay a failure: -run 'TestWheelModel/seed=N'.
func TestWheelModel(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			runWheelProgram(t, randomWheelProgram(seed, 2000))
		})
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 3, 5, 30, 8})                                        // one timer, expired by next
	f.Add([]byte{0, 1, 2, 0, 0, 0, 2, 0, 9, 9, 7, 255, 2, 0, 0})            // the past, and the end of time
	f.Add([]byte{0, 1, 3, 200, 49, 7, 0, 3, 255, 49, 8})                    // years ahead, years at once
	f.Add([]byte{10, 1, 1, 0, 0, 1, 20, 0, 1, 3, 0, 0, 6, 6, 6})            // re-arms itself in the past
	f.Add([]byte{10, 1, 2, 2, 3, 0, 0, 0, 1, 1, 1, 1, 0, 2, 1, 1, 1, 8, 8}) // removes another due with it
	f.Add([]byte{0, 1, 1, 63, 1, 0, 2, 1, 64, 1, 0, 3, 1, 65, 1, 8, 8, 8})  // around the end of level 0
	f.Add([]byte{5, 0, 3, 255, 40, 0, 1, 3, 9, 30, 8, 5, 0, 3, 255, 41, 6}) // long idle before an add
	f.Add([]byte(randomWheelProgram(1, 300)))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 4096 {
			return // tests nothing that shorter ones don't
		}
		runWheelProgram(t, program)
	})
}

// Cases that the model may reach by luck only, or that deserve a name.

// TestWheelPanicInExpire: timers due along with the one whose expire panicked isn't forgotten.
func TestWheelPanicInExpire(t *testing.T) {
	var w wheel
	var timers [3]timer
	for i := range timers {
		w.add(&timers[i], 1)
	}
	boom := errors.New("boom")
	func() {
		defer func() {
			if got := recover(); got != boom {
				t.Errorf("recovered %v, want %v", got, boom)
			}
		}()
		w.advance(wheelTick, func(*timer) { panic(boom) })
	}()
	if at, ok := w.next(); !ok || at > wheelTick || w.len() != 2 {
		t.Errorf("after the panic: next %d, %t, len %d; want a time that has passed, 2", at, ok, w.len())
	}
	if err := w.invariants(); err != nil {
		t.Error(err)
	}
	expired := 0
	w.advance(wheelTick, func(*timer) { expired++ })
	if expired != 2 {
		t.Errorf("the next advance expired %d timers, want 2", expired)
	}
}

// TestWheelReleasesTimers: timers that have been in a wheel must not be kept from the
// garbage collector by it.
func TestWheelReleasesTimers(t *testing.T) {
	var w wheel
	var removed, expired, neighbor timer
	for _, tm := range []*timer{&removed, &expired, &neighbor} {
		w.add(tm, 1)
	}
	w.remove(&removed)
	w.remove(&neighbor)
	w.advance(wheelTick, func(*timer) {})
	for name, tm := range map[string]*timer{"removed": &removed, "expired": &expired, "neighbor": &neighbor} {
		if tm.next != nil || tm.prev != nil {
			t.Errorf("%s timer still has links: next %p, prev %p", name, tm.next, tm.prev)
		}
	}
	for list := range w.lists {
		if head := &w.lists[list]; head.next != nil && (head.next != head || head.prev != head) {
			t.Errorf("empty list %d: head %p links to next %p, prev %p, want itself", list, head, head.next, head.prev)
		}
	}
}

func TestWheelAddArmedPanics(t *testing.T) {
	var w wheel
	var tm timer
	w.add(&tm, 1)
	defer func() {
		if got, want := fmt.Sprint(recover()), "loop: timer is already armed"; got != want {
			t.Errorf("got panic %q, want %q", got, want)
		}
		if err := w.invariants(); err != nil || w.len() != 1 || tm.at.Load() != 1 {
			t.Errorf("after the panic: len %d, at %d, %v; want 1, 1, nil", w.len(), tm.at.Load(), err)
		}
	}()
	w.add(&tm, 2)
}

// TestWheelInvariants breaks each invariant and expects to hear of it.
func TestWheelInvariants(t *testing.T) {
	const slotOfHour = 3*wheelSlots + 13 // an hour is tick 3433228, which is 13 6 12 12 in base 64
	for name, damage := range map[string]func(w *wheel, tm *timer){
		"bit without timer":      func(w *wheel, tm *timer) { w.occupied[2] |= 1 << 7 },
		"timer without bit":      func(w *wheel, tm *timer) { w.occupied[3] = 0 },
		"count too small":        func(w *wheel, tm *timer) { w.count-- },
		"count too large":        func(w *wheel, tm *timer) { w.count++ },
		"due before its slot":    func(w *wheel, tm *timer) { tm.at.Add(-int64(5 * time.Minute)) },
		"due after its slot":     func(w *wheel, tm *timer) { tm.at.Add(int64(5 * time.Minute)) },
		"slot behind the cursor": func(w *wheel, tm *timer) { w.cursor = dueTick(tm.at.Load()) },
		"overdue elsewhere":      func(w *wheel, tm *timer) { tm.at.Store(0) },
		"due list not due":       func(w *wheel, tm *timer) { w.unlink(tm); w.link(tm, wheelDue) },
		"level 0 not overdue":    func(w *wheel, tm *timer) { w.unlink(tm); w.link(tm, 5) },
		"wrong list index":       func(w *wheel, tm *timer) { w.lists[slotOfHour].at.Add(1) },
		"broken backward link":   func(w *wheel, tm *timer) { tm.prev = tm },
		"broken forward link":    func(w *wheel, tm *timer) { tm.next = nil },
	} {
		t.Run(name, func(t *testing.T) {
			var w wheel
			var tm timer
			w.add(&tm, int64(time.Hour))
			if err := w.invariants(); err != nil {
				t.Fatalf("before the damage: %v", err)
			}
			if tm.next != &w.lists[slotOfHour] {
				t.Fatalf("the timer isn't in level 3 slot 13, which the test damages; it is in list %d", tm.next.at.Load())
			}
			damage(&w, &tm)
			if err := w.invariants(); err == nil {
				t.Error("got nil, want an error")
			}
		})
	}
}

func TestWheelAllocatesNothing(t *testing.T) {
	w := new(wheel)
	timers := make([]timer, 100)
	now := int64(0)
	allocs := testing.AllocsPerRun(100, func() {
		for i := range timers {
			w.remove(&timers[i])
			w.add(&timers[i], now+int64(i)*int64(time.Minute))
		}
		for range 10 {
			at, _ := w.next()
			now = max(now, at) + int64(10*time.Second)
			w.advance(now, func(tm *timer) { w.add(tm, now+int64(time.Second)) })
		}
	})
	if allocs != 0 {
		t.Errorf("got %v allocations per run of add, remove, next and advance, want 0", allocs)
	}
}

// benchmarkWheel returns a wheel with n timers due between 5 and 65 seconds from now, 0.
func benchmarkWheel(n int) (*wheel, []timer) {
	w, timers := new(wheel), make([]timer, n)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range timers {
		w.add(&timers[i], int64(5*time.Second)+random.Int64N(int64(time.Minute)))
	}
	return w, timers
}

// BenchmarkWheelRearm moves n timers round-robin a little later, as a server's
// deadlines are on each request.
func BenchmarkWheelRearm(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("timers=%d", n), func(b *testing.B) {
			w, timers := benchmarkWheel(n)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				tm := &timers[i]
				at := tm.at.Load() + int64(100*time.Microsecond)
				w.remove(tm)
				w.add(tm, at)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

// BenchmarkWheelExpire lets n timers expire and re-arm themselves by next: the
// whole life of a timer, cascades included.
func BenchmarkWheelExpire(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("timers=%d", n), func(b *testing.B) {
			w, _ := benchmarkWheel(n)
			expired := 0
			rearm := func(tm *timer) {
				expired++
				w.add(tm, tm.at.Load()+int64(30*time.Second))
			}
			b.ReportAllocs()
			for b.Loop() {
				for target := expired + 1; expired < target; {
					at, _ := w.next()
					w.advance(at, rearm)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(expired), "ns/timer")
		})
	}
}
