//go:build go1.28

package goroutine

// locked reports whether the goroutine is locked to its thread.
func locked() bool { return lockedByStack() }
