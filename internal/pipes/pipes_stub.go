//go:build !linux

package pipes

// Drain does nothing: pipes are for splice, which only Linux has.
func Drain() {}

// Idle returns 0.
func Idle() int { return 0 }
