//go:build !percore_faults

package sys

import "syscall"

// injected is a constant in this build. The compiler puts it in the place of each call, and
// then drops the test of it (TestNoFaultsInRelease).
func injected(Op, int) syscall.Errno { return 0 }
