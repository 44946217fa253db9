//go:build !linux

package testnet

// openFDs returns nothing where there is no /proc: goroutines are still checked, descriptors are not.
func openFDs() map[int]string { return nil }

// CountFDs returns how many descriptors the process has open, or 0 where that is unknown.
func CountFDs() int { return 0 }

// describeFD has nothing to add where openFDs finds nothing.
func describeFD(int) string { return "" }
