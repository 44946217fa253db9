package sys

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/race"
)

// rawSendBytesMax is the longest write made behind the scheduler's back, in bytes: a page, so that
// it touches at most two pages of memory. Each page may first have to be read from a mapped file or
// from swap. Until then, the call keeps all other goroutines from its processor, and a garbage
// collection from starting. net/http's buffers for reading and writing are also one page long.
const rawSendBytesMax = 4 << 10

// rawRecvBytesMax is rawSendBytesMax for reading, in bytes of the caller's slice. It is larger,
// because servers read small messages into large slices, gRPC into 32 KiB: the kernel touches only
// as much of a slice as it fills, and a slice to read into is seldom memory of a file. With 4 KiB,
// a unary gRPC call costs an eighth more CPU time.
const rawRecvBytesMax = 64 << 10

// isRaw reports whether a transfer of n bytes is made behind the scheduler's back: if n is at most
// bytesMax and tell is not set.
func isRaw(n, bytesMax int, tell bool) bool {
	return n <= bytesMax && !tell && features.RawSyscall.On()
}

// IsLongRecv and IsLongSend report whether a transfer of n bytes may wait for more memory than a
// few pages. The kernel keeps the socket locked for that time (tcp_sendmsg and tcp_recvmsg in
// net/ipv4/tcp.c). So a transfer in the other direction waits, too, and must tell the scheduler.
func IsLongRecv(n int) bool { return n > rawRecvBytesMax }

// IsLongSend is IsLongRecv for sending.
func IsLongSend(n int) bool { return n > rawSendBytesMax }

// zero is the target of an empty slice: the kernel wants a valid address even for a length of 0.
var zero byte

func base(p []byte) unsafe.Pointer {
	if len(p) == 0 {
		return unsafe.Pointer(&zero)
	}
	return unsafe.Pointer(unsafe.SliceData(p))
}

// Recv is recv(2) with MSG_DONTWAIT. n is 0 when it fails. With tell the scheduler is told in
// any case: see IsLongRecv.
//
// It does the same as read(2) on a non-blocking socket, and is a little cheaper. But it doesn't
// block even if the socket was made blocking elsewhere, which the holder of a duplicate can do
// (os.File.Fd does). A blocking call made behind the scheduler's back would hold up a processor.
func Recv(fd int, p []byte, tell bool) (n int, errno syscall.Errno) {
	if errno = injected(OpRead, fd); errno != 0 {
		return 0, errno
	}
	var r uintptr
	if isRaw(len(p), rawRecvBytesMax, tell) {
		r, _, errno = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(base(p)), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	} else {
		r, _, errno = syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(base(p)), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	race.WriteRange(p[:r])
	raceAcquire(fd)
	return int(r), 0
}

// Readable checks with ppoll(2), without waiting, whether a recv would find data, the end of the
// stream or an error. A recv with MSG_PEEK would consume a pending error; Readable consumes
// nothing. If ppoll fails, Readable returns true, and the recv will show.
func Readable(fd int) bool {
	if errno := injected(OpPpoll, fd); errno != 0 {
		return true
	}
	revents, errno := poll(fd, unix.POLLIN|unix.POLLRDHUP)
	return errno != 0 || revents != 0
}

// HasData checks with ppoll(2), without waiting, whether a recv would find data or the end of the
// stream. Unlike Readable, it ignores errors, because a recv need not report them: an error in the
// socket's error queue stays until recvmsg(2) with MSG_ERRQUEUE. If ppoll fails, HasData returns false.
func HasData(fd int) bool {
	revents, errno := poll(fd, unix.POLLIN)
	return errno == 0 && revents&unix.POLLIN != 0
}

// HungUp checks with ppoll(2), without waiting, whether the peer has ended the stream or reset it. Bytes
// before that may be unread. If ppoll fails, HungUp returns false.
func HungUp(fd int) bool {
	if errno := injected(OpPpoll, fd); errno != 0 {
		return false
	}
	revents, errno := poll(fd, unix.POLLRDHUP)
	return errno == 0 && revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

// poll is ppoll(2) for one descriptor, without waiting. A signal, such as those by which the runtime
// preempts goroutines, may interrupt it: that says nothing about the descriptor.
func poll(fd int, events int16) (revents int16, errno syscall.Errno) {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	var atOnce unix.Timespec
	for {
		_, _, errno = syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 0, 0)
		if errno != syscall.EINTR {
			return p.Revents, errno
		}
	}
}

// Poll is ppoll(2) without a signal mask: it sleeps until there is an event, or ns nanoseconds have
// passed, less than a second. fds must not be empty.
func Poll(fds []unix.PollFd, ns int) syscall.Errno {
	if errno := injected(OpPpoll, int(fds[0].Fd)); errno != 0 {
		return errno
	}
	timeout := unix.NsecToTimespec(int64(ns))
	_, _, errno := syscall.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return errno
}

// sendFlags are the flags of [Send]: never block, for the reason given at Recv, and no SIGPIPE,
// which the Go runtime would only throw away.
const sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// Send is send(2) with MSG_DONTWAIT and MSG_NOSIGNAL. n is 0 when it fails. With tell the
// scheduler is told in any case: see IsLongRecv.
func Send(fd int, p []byte, tell bool) (n int, errno syscall.Errno) {
	if errno = injected(OpWrite, fd); errno != 0 {
		return 0, errno
	}
	raceRelease()
	race.ReadRange(p)
	var r uintptr
	if isRaw(len(p), rawSendBytesMax, tell) {
		r, _, errno = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(base(p)), uintptr(len(p)), sendFlags, 0, 0)
	} else {
		r, _, errno = syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(base(p)), uintptr(len(p)), sendFlags, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// Notify adds 1 to an eventfd (eventfd(2)). It can fail only when the 64-bit
// counter is full, which takes centuries.
func Notify(eventfd int) {
	one := uint64(1)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(eventfd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
}

// Unnotify sets an eventfd back to 0.
func Unnotify(eventfd int) {
	var n uint64
	syscall.RawSyscall(unix.SYS_READ, uintptr(eventfd), uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n))
}

// Accept4 is accept4(2) with SOCK_NONBLOCK|SOCK_CLOEXEC. It fills sa with the peer's address.
func Accept4(fd int, sa *unix.RawSockaddrAny) (nfd int, errno syscall.Errno) {
	if errno = injected(OpAccept4, fd); errno != 0 {
		return -1, errno
	}
	salen := uint32(unix.SizeofSockaddrAny)
	// Not behind the scheduler's back: others may hold copies of a listening
	// socket and make it blocking, and accept has no flag against that.
	r, _, errno := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(sa)),
		uintptr(unsafe.Pointer(&salen)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(r), 0
}

// EpollCreate1 is epoll_create1(2) with EPOLL_CLOEXEC.
func EpollCreate1() (int, syscall.Errno) {
	if errno := injected(OpEpollCreate1, -1); errno != 0 {
		return -1, errno
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return fd, errnoOf(err)
}

// EpollCtl is epoll_ctl(2). It tells the scheduler: an ADD to an epoll instance that another
// instance watches takes a machine-wide lock (fs/eventpoll.c, epnested_mutex), and sleeps while
// another process holds it.
func EpollCtl(epfd, op, fd int, ev *unix.EpollEvent) syscall.Errno {
	if errno := injected(OpEpollCtl, fd); errno != 0 {
		return errno
	}
	_, _, errno := syscall.Syscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(ev)), 0, 0)
	return errno
}

// EpollPwait is epoll_pwait(2) without a signal mask: with block it sleeps until there is an event;
// otherwise it only takes pending events. events must not be empty.
func EpollPwait(epfd int, events []unix.EpollEvent, block bool) (n int, errno syscall.Errno) {
	if errno = injected(OpEpollPwait, epfd); errno != 0 {
		return 0, errno
	}
	var r uintptr
	if block {
		r, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])),
			uintptr(len(events)), ^uintptr(0), 0, 0)
	} else {
		r, _, errno = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])),
			uintptr(len(events)), 0, 0, 0)
	}
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// EpollPwait2 is epoll_pwait2(2) without a signal mask (Linux 5.11): it sleeps until there is an
// event, or ns nanoseconds have passed, less than a second. It doesn't tell the scheduler: the
// thread keeps its processor, so ns must be short. events must not be empty.
func EpollPwait2(epfd int, events []unix.EpollEvent, ns int) (n int, errno syscall.Errno) {
	if errno = injected(OpEpollPwait2, epfd); errno != 0 {
		return 0, errno
	}
	timeout := timespec64{nsec: int64(ns)}
	r, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// timespec64 is struct __kernel_timespec, on all architectures.
type timespec64 struct{ sec, nsec int64 }

// Eventfd is eventfd(2) with EFD_NONBLOCK|EFD_CLOEXEC and a count of 0.
func Eventfd() (int, syscall.Errno) {
	if errno := injected(OpEventfd2, -1); errno != 0 {
		return -1, errno
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return fd, errnoOf(err)
}

// ClockMonotonic reads the clock that package time uses for its monotonic readings
// (clock_gettime(2), CLOCK_MONOTONIC), in nanoseconds. It can't fail.
func ClockMonotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// Dup is fcntl(2) F_DUPFD_CLOEXEC.
func Dup(fd int) (int, syscall.Errno) {
	if errno := injected(OpFcntl, fd); errno != 0 {
		return -1, errno
	}
	nfd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return nfd, errnoOf(err)
}

// SetNonblock sets or clears O_NONBLOCK with fcntl(2).
func SetNonblock(fd int, nonblock bool) syscall.Errno {
	if errno := injected(OpFcntl, fd); errno != 0 {
		return errno
	}
	return errnoOf(unix.SetNonblock(fd, nonblock))
}

// IsPlainTCP reports whether a read on a TCP socket gives all that has arrived: there is no protocol on
// top (TCP_ULP, whose value, as a number, is then 0), and data need not wait for more (socket(7),
// SO_RCVLOWAT). A kernel before 4.13 has no TCP_ULP (ENOPROTOOPT), and so no protocol on top.
func IsPlainTCP(fd int) bool {
	ulp, errno := GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_ULP)
	if errno != syscall.ENOPROTOOPT && (errno != 0 || ulp != 0) {
		return false
	}
	lowat, errno := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	return errno == 0 && lowat <= 1
}

// Socket is socket(2) for a stream socket, with SOCK_CLOEXEC.
func Socket(family int) (int, syscall.Errno) {
	if errno := injected(OpSocket, -1); errno != 0 {
		return -1, errno
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fd, errnoOf(err)
}

// Bind is bind(2). sa and salen are as Getsockname returns them.
func Bind(fd int, sa *unix.RawSockaddrAny, salen uint32) syscall.Errno {
	if errno := injected(OpBind, fd); errno != 0 {
		return errno
	}
	_, _, errno := syscall.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(sa)), uintptr(salen))
	return errno
}

// Getsockname is getsockname(2). It tells the scheduler: the kernel locks the socket for it
// (inet_getname in net/ipv4/af_inet.c), and a long write that waits for its memory holds the lock.
func Getsockname(fd int, sa *unix.RawSockaddrAny) (salen uint32, errno syscall.Errno) {
	if errno = injected(OpGetsockname, fd); errno != 0 {
		return 0, errno
	}
	salen = unix.SizeofSockaddrAny
	_, _, errno = syscall.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(sa)),
		uintptr(unsafe.Pointer(&salen)))
	return salen, errno
}

// Getpeername is getpeername(2).
func Getpeername(fd int, sa *unix.RawSockaddrAny) syscall.Errno {
	salen := uint32(unix.SizeofSockaddrAny)
	_, _, errno := syscall.Syscall(unix.SYS_GETPEERNAME, uintptr(fd), uintptr(unsafe.Pointer(sa)),
		uintptr(unsafe.Pointer(&salen)))
	return errno
}

// GetsockoptInt is getsockopt(2) for an int.
func GetsockoptInt(fd, level, opt int) (int, syscall.Errno) {
	if errno := injected(OpGetsockopt, fd); errno != 0 {
		return 0, errno
	}
	v, err := unix.GetsockoptInt(fd, level, opt)
	return v, errnoOf(err)
}

// TCPInfo is getsockopt(2) with TCP_INFO (tcp(7)). A field that the kernel doesn't know is 0.
func TCPInfo(fd int) (*unix.TCPInfo, syscall.Errno) {
	if errno := injected(OpGetsockopt, fd); errno != 0 {
		return nil, errno
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return info, errnoOf(err)
}

// SetsockoptInt is setsockopt(2) for an int.
func SetsockoptInt(fd, level, opt, value int) syscall.Errno {
	if errno := injected(OpSetsockopt, fd); errno != 0 {
		return errno
	}
	return errnoOf(unix.SetsockoptInt(fd, level, opt, value))
}

// Unread returns how many bytes have arrived on a stream socket and are not read yet: ioctl(2)
// SIOCINQ (tcp(7), unix(7)).
func Unread(fd int) (int, syscall.Errno) {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return n, errnoOf(err)
}

// Sent says how far a stream socket's peer has got with what was sent to it. It changes when the peer
// acknowledges bytes (over a unix socket: reads them) or the socket takes more.
type Sent struct {
	acked  uint64 // tcpi_bytes_acked, Linux 4.1; else 0
	queued int    // bytes that are not acknowledged
}

// Since returns how many bytes the peer has taken since earlier, or, of a unix socket, a smaller number
// if more was sent meanwhile.
func (s Sent) Since(earlier Sent) int64 {
	return max(int64(s.acked-earlier.acked), int64(earlier.queued-s.queued), 0)
}

// SentOf asks the kernel with getsockopt(2) TCP_INFO, and ioctl(2) SIOCOUTQ (tcp(7), unix(7)). A number
// that the kernel doesn't know is 0.
func SentOf(fd int) (s Sent) {
	if injected(OpGetsockopt, fd) != 0 {
		return s
	}
	if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
		s.acked = info.Bytes_acked
	}
	if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil {
		s.queued = n
	}
	return s
}

// SendRoom returns how many bytes a socket takes at once, by a cautious guess: half of its buffer, since
// the kernel counts what it needs besides, without what was sent and is not acknowledged (socket(7)
// SO_SNDBUF, tcp(7) SIOCOUTQ). It is 0 if the kernel doesn't say so.
func SendRoom(fd int) int {
	if injected(OpGetsockopt, fd) != 0 {
		return 0
	}
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 0
	}
	queued, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return max(size/2-queued, 0)
}

// SetsockoptLinger is setsockopt(2) SO_LINGER.
func SetsockoptLinger(fd int, l *unix.Linger) syscall.Errno {
	if errno := injected(OpSetsockopt, fd); errno != 0 {
		return errno
	}
	return errnoOf(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, l))
}

// Shutdown is shutdown(2).
func Shutdown(fd, how int) syscall.Errno {
	if errno := injected(OpShutdown, fd); errno != 0 {
		return errno
	}
	return errnoOf(unix.Shutdown(fd, how))
}

// Close is close(2). The descriptor is gone even if it fails; it can block for
// as long as SO_LINGER says.
func Close(fd int) syscall.Errno {
	errno := errnoOf(unix.Close(fd))
	if e := injected(OpClose, fd); e != 0 {
		return e
	}
	return errno
}

// KernelBefore reports whether the kernel is older than the given version. A kernel of unknown
// version counts as new.
func KernelBefore(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	return releaseBefore(unix.ByteSliceToString(name.Release[:]), major, minor)
}

// releaseBefore is KernelBefore for a release as uname(2) returns it ("6.1.0-18-amd64").
func releaseBefore(release string, major, minor int) bool {
	var isMajor, isMinor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &isMajor, &isMinor); n != 2 {
		return false
	}
	return isMajor < major || isMajor == major && isMinor < minor
}

// errnoOf unwraps the errors of package unix, which are an Errno or nil.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return err.(syscall.Errno)
}
