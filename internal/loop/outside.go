package loop

import (
	"runtime"
	"sync"

	"github.com/percore/percore/internal/monotime"
)

// A bubble of testing/synctest owns the goroutines, channels and timers that are made in it: using
// such a channel or timer from outside ends the process, and its timers have a clock of their own.
// A loop serves descriptors inside and outside of bubbles, so everything that it owns is made
// outside, even if the first Listen of a program is inside one:
//
//	a group and its channel; a loop's goroutine,
//	poller, resume channel and timer             in a cleanup: see outside
//	parkers                                      on the loop's goroutine: see newParker
//	arming the runtime timer                     on the loop's goroutine: see scheduleLocked
//
// A mutex belongs to no bubble. With one, code inside waits for code outside. A sync.WaitGroup would
// belong to the bubble that it was first added to in, and end the process when it is added to elsewhere.

// outside calls f on a goroutine that is in no bubble, and returns once f has. Outside of
// bubbles it just calls f.
//
// Go has one public way out of a bubble: the runtime runs cleanups on goroutines of its own. It
// takes a garbage collection to get there, once per loop that starts in a bubble.
func outside(f func()) {
	if !monotime.InBubble() {
		f()
		return
	}
	var done sync.Mutex
	done.Lock()
	runtime.AddCleanup(new(garbage), func(*sync.Mutex) {
		f()
		done.Unlock()
	}, &done)
	for !done.TryLock() {
		runtime.GC() // until it has found the garbage, and a cleanup's goroutine has run
	}
}

// garbage has a pointer, or the allocator might keep it together with what is not garbage.
type garbage struct{ _ *garbage }

// newParker makes a channel for a goroutine to wait on. The loop has a descriptor.
func (l *Loop) newParker() (p chan struct{}) {
	if !monotime.InBubble() {
		return make(chan struct{}, 1)
	}
	var made sync.Mutex
	made.Lock()
	l.Submit(func() {
		p = make(chan struct{}, 1)
		made.Unlock()
	})
	made.Lock()
	return p
}
