package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Writev is sendmsg(2) of several slices, with what writev(2) would send and the
// flags of [Send]. There are at most 1024 of them (UIO_MAXIOV), none empty. n is 0
// when it fails.
func Writev(fd int, iov []unix.Iovec) (n int, errno syscall.Errno) {
	if FaultsEnabled {
		if errno = injected(OpWritev, fd); errno != 0 {
			return 0, errno
		}
	}
	raceRelease()
	total := uint64(0)
	for i := range iov {
		total += uint64(iov[i].Len)
		raceTaken(unsafe.Slice(iov[i].Base, iov[i].Len))
	}
	msg := unix.Msghdr{Iov: unsafe.SliceData(iov)}
	msg.SetIovlen(len(iov))
	var r uintptr
	if total <= rawBytesMax {
		r, _, errno = syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), sendFlags)
	} else {
		r, _, errno = syscall.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), sendFlags)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// SendZerocopy is [Send] with MSG_ZEROCOPY: the kernel reads p after the call has
// returned, for as long as it has not said on the error queue that it is done
// (see RecvCompletion). The socket must have SO_ZEROCOPY, or the kernel copies and
// says nothing. n is 0 when it fails.
func SendZerocopy(fd int, p []byte) (n int, errno syscall.Errno) {
	if FaultsEnabled {
		if errno = injected(OpSendto, fd); errno != 0 {
			return 0, errno
		}
	}
	raceRelease()
	raceTaken(p)
	// It looks up and pins every page, which takes longer than copying a little.
	r, _, errno := syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(base(p)), uintptr(len(p)), sendFlags|unix.MSG_ZEROCOPY, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// Completion says that the kernel is done with the memory of the sends number
// First to Last of a socket, counted from 0 and modulo 2^32, those that failed
// not counted. Copied says that it copied the bytes of one of them at least.
type Completion struct {
	First, Last uint32
	Copied      bool
}

// soEECodeZerocopyCopied is SO_EE_CODE_ZEROCOPY_COPIED of <linux/errqueue.h>.
const soEECodeZerocopyCopied = 1

// RecvCompletion is recvmsg(2) with MSG_ERRQUEUE. ok is false if the message is
// about something else. It fails with EAGAIN when the queue is empty.
func RecvCompletion(fd int) (c Completion, ok bool, errno syscall.Errno) {
	if FaultsEnabled {
		if errno = injected(OpRecvmsg, fd); errno != 0 {
			return Completion{}, false, errno
		}
	}
	// A completion comes with one sock_extended_err and an address, 16 and up to 28
	// bytes, after a header of 16. What the user has enabled besides (time stamps,
	// say) is cut off.
	var control [128]byte
	msg := unix.Msghdr{Control: &control[0]}
	msg.SetControllen(len(control))
	_, _, errno = syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if errno != 0 {
		return Completion{}, false, errno
	}
	c, ok = parseCompletion(control[:msg.Controllen])
	return c, ok, 0
}

// parseCompletion finds the completion in the control messages of an error queue's
// message.
func parseCompletion(control []byte) (c Completion, ok bool) {
	for len(control) >= unix.CmsgLen(0) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return Completion{}, false
		}
		v4 := header.Level == unix.SOL_IP && header.Type == unix.IP_RECVERR
		v6 := header.Level == unix.SOL_IPV6 && header.Type == unix.IPV6_RECVERR
		if (v4 || v6) && len(data) >= int(unsafe.Sizeof(unix.SockExtendedErr{})) {
			// Copied, not pointed to: data need not be aligned.
			var e unix.SockExtendedErr
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), data)
			if e.Origin == unix.SO_EE_ORIGIN_ZEROCOPY && e.Errno == 0 {
				return Completion{First: e.Info, Last: e.Data, Copied: e.Code&soEECodeZerocopyCopied != 0}, true
			}
		}
		control = rest
	}
	return Completion{}, false
}

// Ready asks ppoll(2), without waiting, what fd is ready for at present, of
// everything that an epoll instance would tell. The bits are those of epoll. If
// it fails the answer is everything, and whoever tries will find out.
func Ready(fd int) (events uint32) {
	const all = unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP | unix.POLLPRI
	if FaultsEnabled && injected(OpPpoll, fd) != 0 {
		return all
	}
	events, errno := ppoll(fd, all)
	if errno != 0 {
		return all
	}
	return events
}

// Disconnect is connect(2) to AF_UNSPEC, which resets a TCP connection, throws
// away what was not sent or not read, and leaves the socket open.
func Disconnect(fd int) syscall.Errno {
	if FaultsEnabled {
		if errno := injected(OpConnect, fd); errno != 0 {
			return errno
		}
	}
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := syscall.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	return errno
}

// Unread is ioctl(2) SIOCINQ: how many bytes there are to read.
func Unread(fd int) (int, syscall.Errno) {
	if FaultsEnabled {
		if errno := injected(OpIoctl, fd); errno != 0 {
			return 0, errno
		}
	}
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return n, errnoOf(err)
}

// GetsockoptLinger is getsockopt(2) SO_LINGER.
func GetsockoptLinger(fd int) (l unix.Linger, errno syscall.Errno) {
	if FaultsEnabled {
		if errno = injected(OpGetsockopt, fd); errno != 0 {
			return l, errno
		}
	}
	size := uint32(unsafe.Sizeof(l))
	_, _, errno = syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&l)), uintptr(unsafe.Pointer(&size)), 0)
	return l, errno
}
