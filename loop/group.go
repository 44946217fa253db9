package loop

import (
	"time"

	engine "github.com/percore/percore/internal/loop"
)

// ErrStopped is the error that Listen and Dial return for a [Group] that has ended.
var ErrStopped = engine.ErrStopped

// Strategy says how a loop waits for events. It changes nothing else.
type Strategy uint8

const (
	// Nested parks the loop's goroutine in the Go runtime's own poller. No thread is held while
	// the loop waits, and no processor is handed over when it wakes. The default.
	Nested Strategy = Strategy(engine.Nested)

	// Thread gives each loop a goroutine that blocks in epoll_pwait(2), and with it a thread. It
	// is as cheap as Nested while there are always many events, and more expensive while there
	// are few: after each wait the thread has to get a processor back from the scheduler.
	Thread Strategy = Strategy(engine.Thread)
)

// String returns the strategy's name, "nested" or "thread".
func (s Strategy) String() string { return engine.Strategy(s).String() }

// Config says how the loops of a [Group] run. The zero value is the configuration of the default group.
type Config struct {
	// Loops is the number of loops, at most 1024. 0 means one per processor that the Go
	// scheduler may use (GOMAXPROCS) when the group is made.
	//
	// With the strategy Nested this is the maximum, since loops follow the load: the fewer loops the
	// connections are on, the more connections each wake-up serves. Connections fill one loop after the
	// other:
	//
	//	loops                                     connections on each
	//	those that keep all processors busy,      32, in order of their index; when each has
	//	2 at least and one for 4 processors       32, evenly, up to 1,024
	//	the rest                                  1,024, in order of their index
	//	all, when each has 1,024                  evenly
	//
	// With the strategy Thread a connection goes to the loop whose listening socket it came in on, or
	// to the loop with the fewest.
	Loops int

	// Strategy is how the loops wait for events.
	Strategy Strategy

	// Pin, with the strategy Thread, locks each loop to a thread of its own, and that thread to
	// one of the processors that the process may run on, with sched_setaffinity(2). The
	// goroutines that the loop wakes still run anywhere.
	Pin bool

	// Name is the group's name in [Stats], and in CPU profiles under the label percore_group. "" means
	// "group"; the default group is called "default". If another group in use has the same name, "-2"
	// or a higher number is added.
	Name string
}

// Group is a set of loops that live and end together. Its methods may be called by any goroutine
// at any time, and don't block.
//
// A loop starts with its first connection. Until then it costs some hundred bytes, afterwards two
// descriptors, a goroutine and some 20 KiB. With the strategy Thread all loops start with the group.
//
// A group ends by itself when it is no longer needed: its maker has called Close, and no listener or
// connection is left. Then its goroutines return and its descriptors are closed.
type Group engine.Group

// NewGroup makes a group. It fails if c makes no sense, when the process is out of descriptors,
// and on anything but Linux. Call Close when no listener or dialer will be given the group any more.
func NewGroup(c Config) (*Group, error) {
	g, err := engine.NewGroup(engine.Config{
		Loops: c.Loops, Strategy: engine.Strategy(c.Strategy), Pin: c.Pin, Name: c.Name,
	})
	return (*Group)(g), err
}

// Close says that the maker doesn't need the group any more. The loops go on for as long as there
// are listeners or connections. Calling Close again does nothing.
func (g *Group) Close() { (*engine.Group)(g).Close() }

// Stopped returns a channel that is closed when all loops have ended and have given back everything
// they held. A program that exits need not wait for it, but a test that looks for leaked goroutines
// or descriptors must.
func (g *Group) Stopped() <-chan struct{} { return (*engine.Group)(g).Stopped() }

// Len returns the number of loops, started or not.
func (g *Group) Len() int { return (*engine.Group)(g).Len() }

// Loop returns loop i, counted from 0. It panics if there is no such loop.
func (g *Group) Loop(i int) *Loop { return (*Loop)((*engine.Group)(g).Loop(i)) }

// Loop is one event loop: a goroutine that waits for many connections and wakes the goroutines
// that use them. Its methods may be called by any goroutine at any time, and don't block.
type Loop engine.Loop

// Submit runs task on the loop's goroutine, after the events that the loop is dispatching and after
// the tasks submitted before, and doesn't wait for it. task must not block: all connections of the
// loop wait for it. State that only tasks and readiness callbacks of one loop use needs no lock.
//
// Tasks are dropped once the group has ended. It can't end while a connection is open or before
// Close was called.
func (l *Loop) Submit(task func()) {
	if task == nil { // it would crash the program later, on the loop's goroutine
		panic("loop: Submit was called with a nil function")
	}
	(*engine.Loop)(l).Submit(task)
}

// AfterFunc runs f on the loop's goroutine once d has passed: not earlier, and at most a few
// milliseconds later if the loop is idle. f must not block. If the group ends first, f is not called.
// Unlike [time.AfterFunc] it starts no goroutine, and thousands of timers cost the runtime only one.
func (l *Loop) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("loop: AfterFunc was called with a nil function")
	}
	return (*Timer)((*engine.Loop)(l).AfterFunc(d, f))
}

// Timer is what [Loop.AfterFunc] returns. Its methods may be called by any goroutine at any time,
// and don't block.
type Timer engine.Timer

// Stop prevents the timer from firing and reports whether it was waiting. If it was not, its
// function has run, or is about to, or the timer was stopped before.
func (t *Timer) Stop() bool { return (*engine.Timer)(t).Stop() }

// Reset makes the timer fire once d has passed from now, and not at the time set before. It
// reports whether the timer was waiting.
func (t *Timer) Reset(d time.Duration) bool { return (*engine.Timer)(t).Reset(d) }
