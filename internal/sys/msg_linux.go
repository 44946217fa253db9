package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
)

// Writev is sendmsg(2) of several slices, with the bytes of writev(2) and the
// flags of [Send]. There are at most 1024 of them (UIO_MAXIOV), none empty. n is 0
// when it fails. It tells the scheduler: each slice may be on pages of its own.
func Writev(fd int, iov []unix.Iovec) (n int, errno syscall.Errno) {
	if errno = injected(OpWritev, fd); errno != 0 {
		return 0, errno
	}
	raceRelease()
	for i := range iov {
		race.ReadRange(unsafe.Slice(iov[i].Base, iov[i].Len))
	}
	msg := unix.Msghdr{Iov: unsafe.SliceData(iov)}
	msg.SetIovlen(len(iov))
	r, _, errno := syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), sendFlags)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
