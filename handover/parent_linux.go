//go:build !percore_net

package handover

import "syscall"

// leadsGroup reports whether this process leads its process group and doesn't share it with its
// parent.
func leadsGroup() bool { return syscall.Getpgrp() == syscall.Getpid() }
