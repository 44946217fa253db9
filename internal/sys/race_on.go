//go:build race

package sys

import (
	"runtime"
	"unsafe"
)

// ioSync is what the race detector sees written and read when bytes move
// through the kernel. Package syscall's Read and Write tell it the same: a
// program that hands work over through a socket is properly synchronized, and
// must not be reported here when it is not reported on package net.
var ioSync int64

// raceReadDone tells the race detector that the kernel filled p.
func raceReadDone(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&p[0]), len(p))
	}
	runtime.RaceAcquire(unsafe.Pointer(&ioSync))
}

// raceWrite tells the race detector that the kernel is about to read p.
func raceWrite(p []byte) {
	runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync))
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&p[0]), len(p))
	}
}
