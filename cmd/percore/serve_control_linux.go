//go:build !percore_net

package main

import (
	"os"
	"syscall"
)

// isOwn reports whether a directory belongs to the user. It may belong to another, whose
// environment variables sudo has kept.
func isOwn(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
