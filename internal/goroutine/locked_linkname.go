//go:build !go1.28

package goroutine

import _ "unsafe" // for go:linkname

// locked reports whether the goroutine is locked to its thread. The runtime marks this function for
// use from outside, by tests. It takes 2 ns. Raise the version in the first line of this file when the
// next Go is released and has the function; until then lockedByStack gives the same answer there.
//
//go:linkname locked runtime.lockedOSThread
func locked() bool
