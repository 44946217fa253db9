package zerocopy

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

var (
	errSwitchedOff = errors.New("zerocopy: the feature is off")

	errBlocking = errors.New("zerocopy: the descriptor is in blocking mode")
	errFileType = errors.New("zerocopy: not a descriptor of a kind that can be spliced")
)

// conn is one end of a transfer, and its owner if that tells of it.
type conn struct {
	syscall.RawConn
	owner Stream // nil if there is none
}

// connOf is the one place where a Stream is told from other ends.
func connOf(c syscall.RawConn) conn {
	owner, _ := c.(Stream)
	return conn{c, owner}
}

// isKnown reports whether c is known to be a stream socket in non-blocking mode, so that
// the kernel need not be asked.
func (c conn) isKnown() bool { return c.owner != nil && c.owner.Nonblocking() }

// isMarked reports whether there may be a mark of urgent data in c's stream.
func (c conn) isMarked() bool { return c.owner != nil && c.owner.Marked() }

// isClosed reports whether c is known to be being closed.
func (c conn) isClosed() bool { return c.owner != nil && c.owner.Closed() }

// drained tells c's owner that a read has used up all there was.
func (c conn) drained() {
	if c.owner != nil {
		c.owner.Drained()
	}
}

// mustNotBlock returns an error for a descriptor in blocking mode: a call that blocks in the kernel
// can neither be interrupted by a deadline nor by Close, which would wait for it. os.File's Fd
// method makes a descriptor blocking, and all its duplicates.
func mustNotBlock(fd int) error {
	flags, errno := sys.StatusFlags(fd)
	switch {
	case errno != 0:
		return errno
	case flags&unix.O_NONBLOCK == 0:
		return errBlocking
	}
	return nil
}

// examine returns an error for an end that splice is not used for: it can be a stream socket or a
// pipe, in non-blocking mode, and a destination a regular file as well. One that is closed passes:
// it is for the transfer to fail as the reads or writes would, at the time when they would.
func examine(c conn, end End) error {
	if c.isKnown() {
		return nil
	}
	var unfit error
	_ = c.Control(func(fd uintptr) { unfit = examineFD(int(fd), end) })
	return unfit
}

func examineFD(fd int, end End) error {
	mode, errno := sys.FileType(fd)
	if errno != 0 {
		return errno
	}
	switch {
	case mode == unix.S_IFIFO:
		return mustNotBlock(fd)
	case mode == unix.S_IFSOCK:
		if kind, errno := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); errno != 0 || kind != unix.SOCK_STREAM {
			return errFileType
		}
		return mustNotBlock(fd)
	case mode == unix.S_IFREG && end == Destination:
		// splice(2), EINVAL: "the target file is opened in append mode".
		if flags, errno := sys.StatusFlags(fd); errno != 0 || flags&unix.O_APPEND != 0 {
			return errFileType
		}
		return nil
	}
	return errFileType
}

// refuses reports whether a call failed with errno because it can't be done with these descriptors,
// or at all: nothing was moved, and reads and writes may well succeed.
//
//	ENOSYS      the kernel does not have the call, or a filter says so
//	EPERM       a filter forbids it
//	EINVAL      a file system or a protocol that can't
//	EOPNOTSUPP  the same, from some file systems (golang.org/issue/40731)
//	EOVERFLOW   a file that is too large for the call
func refuses(errno syscall.Errno) bool {
	switch errno {
	case unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.EOPNOTSUPP, unix.EOVERFLOW:
		return true
	}
	return false
}

// plain takes off the *net.OpError that package net's RawConns return.
func plain(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

// unfinished is how a transfer of n bytes ends when why keeps the kernel from
// going on: declined if it did not even begin.
func unfinished(n int64, why error) (int64, bool, error) {
	if n == 0 {
		return 0, false, why
	}
	return n, true, fmt.Errorf("%w: %w", ErrUnfinished, why)
}
