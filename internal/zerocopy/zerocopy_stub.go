//go:build !linux

package zerocopy

import (
	"errors"
	"syscall"
)

// SendFile declines: the platform has no sendfile(2) with Linux's semantics. (Its
// package net may use its own, and percore uses package net there.)
func SendFile(_, _ syscall.RawConn, limit int64) (n int64, handled bool, err error) {
	return 0, limit == 0, errors.ErrUnsupported
}

// Splice declines: the platform has no splice(2).
func Splice(_, _ syscall.RawConn, limit int64) (n int64, handled bool, err error) {
	return 0, limit == 0, errors.ErrUnsupported
}
