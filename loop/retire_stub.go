//go:build !linux

package loop

// retire is never called: there are no descriptors.
func (f *FD) retire() {}
