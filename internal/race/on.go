//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether the race detector watches.
const Enabled = true

// WriteRange counts as a write of p.
func WriteRange(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&p[0]), len(p))
	}
}

// ReadRange counts as a read of p.
func ReadRange(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&p[0]), len(p))
	}
}
