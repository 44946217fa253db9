// Package goroutine lets a goroutine serve one peer after the other without passing on what the
// program's code has left behind on it.
package goroutine

import (
	"bytes"
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
)

// Reset is called between two calls of the program's code, by the goroutine that makes them. It takes
// back what the code may have changed: the labels of profiles, and debug.SetPanicOnFault.
//
// It reports false if the goroutine is locked to its thread (runtime.LockOSThread). The thread may then
// have another namespace, other credentials or another mask of signals, so the caller must let the
// goroutine end, without unlocking it: the runtime ends the thread with it. So does net/http, whose
// goroutines end with their connections.
//
// Open regions of runtime/trace stay, which only a trace shows.
func Reset() (reusable bool) {
	pprof.SetGoroutineLabels(context.Background())
	debug.SetPanicOnFault(false)
	return !locked()
}

// lockedByStack reports whether the goroutine is locked to its thread, by the first line of its stack.
// That takes 2 µs, as much as a third of a short request.
func lockedByStack() bool {
	var buf [128]byte
	line, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("\n"))
	return bytes.Contains(line, []byte("locked to thread"))
}
