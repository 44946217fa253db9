//go:build !percore_faults

package sys

import "syscall"

// FaultsEnabled reports whether this build can inject faults.
const FaultsEnabled = false

func injected(Op, int) syscall.Errno { return 0 }
