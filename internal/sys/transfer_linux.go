package sys

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
)

// The calls that move bytes inside the kernel, and their helpers. The calls that move bytes tell
// the scheduler: a file may have to be read from a disk, and a megabyte takes a while even if it is
// not copied.

// Sendfile is sendfile(2) from the current offset of in, which it moves. n is 0 when it fails.
func Sendfile(out, in, count int) (n int, errno syscall.Errno) {
	if errno = injected(OpSendfile, out); errno != 0 {
		return 0, errno
	}
	raceRelease()
	n, err := unix.Sendfile(out, in, nil, count)
	return max(n, 0), errnoOf(err)
}

// Splice is splice(2) with SPLICE_F_NONBLOCK and without offsets. The flag is about pipes: a socket
// or a file blocks unless its descriptor is non-blocking. n is 0 when it fails.
func Splice(out, in, count int) (n int, errno syscall.Errno) {
	if errno = injected(OpSplice, in); errno != 0 {
		return 0, errno
	}
	raceRelease()
	m, err := unix.Splice(in, nil, out, nil, count, unix.SPLICE_F_NONBLOCK)
	if err == nil {
		raceAcquire(in)
	}
	return int(max(m, 0)), errnoOf(err)
}

// Pipe2 is pipe2(2) with O_NONBLOCK|O_CLOEXEC: r is the end to read from.
func Pipe2() (r, w int, errno syscall.Errno) {
	if errno = injected(OpPipe2, -1); errno != 0 {
		return -1, -1, errno
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return -1, -1, errnoOf(err)
	}
	return fds[0], fds[1], 0
}

// SetPipeSize is fcntl(2) F_SETPIPE_SZ and, where that fails, F_GETPIPE_SZ. It
// returns how many bytes the pipe holds at most.
func SetPipeSize(fd, size int) (int, syscall.Errno) {
	if errno := injected(OpFcntl, fd); errno != 0 {
		return 0, errno
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
	if err != nil {
		got, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	}
	return got, errnoOf(err)
}

// StatusFlags is fcntl(2) F_GETFL: O_NONBLOCK, O_APPEND and so on.
func StatusFlags(fd int) (flags int, errno syscall.Errno) {
	if errno := injected(OpFcntl, fd); errno != 0 {
		return 0, errno
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return flags, errnoOf(err)
}

// FileType is fstat(2)'s S_IFMT part of st_mode: S_IFREG, S_IFIFO, S_IFSOCK and so on.
func FileType(fd int) (mode uint32, errno syscall.Errno) {
	if errno := injected(OpFstat, fd); errno != 0 {
		return 0, errno
	}
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode & unix.S_IFMT, errnoOf(err)
}

// Peek is Recv with MSG_PEEK: the bytes stay there. It tells the scheduler for the same reason as
// Getsockname.
func Peek(fd int, p []byte) (n int, errno syscall.Errno) {
	if errno = injected(OpRead, fd); errno != 0 {
		return 0, errno
	}
	r, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(base(p)), uintptr(len(p)),
		unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	race.WriteRange(p[:r])
	raceAcquire(fd)
	return int(r), 0
}

// Read is read(2) for a descriptor that is not a socket. n is 0 when it fails.
func Read(fd int, p []byte) (n int, errno syscall.Errno) {
	if errno = injected(OpRead, fd); errno != 0 {
		return 0, errno
	}
	n, err := syscall.Read(fd, p)
	return max(n, 0), errnoOf(err)
}

// Write is write(2) for a descriptor that need not be a socket. n is 0 when it fails.
func Write(fd int, p []byte) (n int, errno syscall.Errno) {
	if errno = injected(OpWrite, fd); errno != 0 {
		return 0, errno
	}
	n, err := syscall.Write(fd, p)
	return max(n, 0), errnoOf(err)
}
