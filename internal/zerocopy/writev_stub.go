//go:build !linux

package zerocopy

import "syscall"

// Writev fails with [syscall.ENOSYS] and writes nothing.
func Writev(fd int, v *[][]byte) (n int64, err error) { return 0, syscall.ENOSYS }
