//go:build !linux

package sys

import "syscall"

// The engine runs on Linux only. On other systems, these few calls exist so that the code that uses
// them compiles; nothing there ever has a descriptor to call them with.

// errUnsupported is the error of every call off Linux.
const errUnsupported = syscall.ENOSYS

// Recv is not available on this platform.
func Recv(int, []byte, bool) (int, syscall.Errno) { return 0, errUnsupported }

// IsLongRecv returns false.
func IsLongRecv(int) bool { return false }

// IsLongSend returns false.
func IsLongSend(int) bool { return false }

// Readable is not available on this platform.
func Readable(int) bool { return true }

// HasData is not available on this platform.
func HasData(int) bool { return false }

// Send is not available on this platform.
func Send(int, []byte, bool) (int, syscall.Errno) { return 0, errUnsupported }

// IsPlainTCP returns false.
func IsPlainTCP(int) bool { return false }

// HungUp is not available on this platform.
func HungUp(int) bool { return false }

// Unread is not available on this platform.
func Unread(int) (int, syscall.Errno) { return 0, errUnsupported }

// Sent is not known on this platform.
type Sent struct{}

// Since is not known either.
func (Sent) Since(Sent) int64 { return 0 }

// SentOf is not available on this platform.
func SentOf(int) Sent { return Sent{} }

// SendRoom is not available on this platform.
func SendRoom(int) int { return 0 }

// Dup is not available on this platform.
func Dup(int) (int, syscall.Errno) { return -1, errUnsupported }

// Shutdown is not available on this platform.
func Shutdown(int, int) syscall.Errno { return errUnsupported }

// Close is not available on this platform.
func Close(int) syscall.Errno { return errUnsupported }
