package sys_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

func init() {
	children = append(children,
		testnet.WithChild("page faults", servePageFaults), testnet.WithChild("a locked socket", serveLockedSocket))
}

// The structures and numbers of <linux/userfaultfd.h>.
type (
	uffdioAPI      struct{ api, features, ioctls uint64 }
	uffdioRegister struct{ start, length, mode, ioctls uint64 }
	uffdioCopy     struct {
		dst, src, length, mode uint64
		copied                 int64
	}
	uffdMsg struct {
		event          uint8
		_              [7]byte
		flags, address uint64
		_              [8]byte
	}
)

const (
	uffdAPI               = 0xAA
	ioctlAPI              = 0xC018AA3F
	ioctlRegister         = 0xC020AA00
	ioctlCopy             = 0xC028AA03
	uffdioRegisterMissing = 1
)

func ioctl(fd, request uintptr, arg unsafe.Pointer) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
		fmt.Fprintf(os.Stderr, "ioctl %#x: %v\n", request, errno)
		os.Exit(1)
	}
}

// pagedMemory returns memory whose pages are missing until a goroutine of this process delivers
// them, or an error if that can't be done. On a missing page it first calls before.
func pagedMemory(size int, before func()) ([]byte, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("userfaultfd", errno)
	}
	ioctl(fd, ioctlAPI, unsafe.Pointer(&uffdioAPI{api: uffdAPI}))
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	ioctl(fd, ioctlRegister, unsafe.Pointer(&uffdioRegister{start: start, length: uint64(size+page) &^ uint64(page-1), mode: uffdioRegisterMissing}))
	contents, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	source := uint64(uintptr(unsafe.Pointer(&contents[0])))
	go func() {
		var m uffdMsg
		for {
			_, err := unix.Read(int(fd), unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			before()
			// A thread that a signal wakes faults again, when the page is already there.
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, ioctlCopy,
				uintptr(unsafe.Pointer(&uffdioCopy{dst: m.address &^ uint64(page-1), src: source, length: uint64(page)})))
			if errno != 0 && errno != unix.EEXIST {
				fmt.Fprintf(os.Stderr, "UFFDIO_COPY: %v\n", errno)
				os.Exit(1)
			}
		}
	}()
	return memory[:size], nil
}

// servePageFaults makes a call with memory that another goroutine on the only processor has to
// deliver, as a FUSE server or a pager in the process would.
func servePageFaults() {
	runtime.GOMAXPROCS(1)
	call := os.Getenv("CALL")
	var size int
	fmt.Sscan(os.Getenv("SIZE"), &size)
	memory, err := pagedMemory(size, func() {})
	if err != nil {
		skipChild(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		skipChild(err)
	}
	var n int
	var errno syscall.Errno
	switch call {
	case "Send":
		n, errno = sys.Send(fds[0], memory, false)
	case "Recv":
		_, _ = unix.Write(fds[1], make([]byte, size))
		n, errno = sys.Recv(fds[0], memory, false)
	case "Writev":
		iov := unix.Iovec{Base: &memory[0]}
		iov.SetLen(size)
		n, errno = sys.Writev(fds[0], []unix.Iovec{iov})
	}
	fmt.Printf("%d bytes, errno %d", n, errno)
	os.Exit(0)
}

// A call that waits for its memory leaves its processor to others, for instance to
// the goroutine that delivers the memory, unless it is a short one.
func TestPageFaults(t *testing.T) {
	for _, c := range []struct {
		call, env string
		size      int
	}{
		{"Send", "", 64 << 10},
		{"Send", "", 4<<10 + 1},
		{"Send", "PERCOREDEBUG=rawsyscall=0", 100},
		{"Recv", "", 64<<10 + 1},
		{"Recv", "PERCOREDEBUG=rawsyscall=0", 100},
		{"Writev", "", 100},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.call, c.size, c.env), func(t *testing.T) {
			wantAnswer(t, fmt.Sprintf("%d bytes, errno 0", c.size), "page faults", "CALL="+c.call, fmt.Sprint("SIZE=", c.size), c.env)
		})
	}
}

// wantAnswer fails the test unless a child process has an answer, and skips it if the child can't have
// its memory or socket.
func wantAnswer(t *testing.T, want, name string, env ...string) {
	t.Helper()
	child := testnet.StartChild(t, name, env...)
	answer := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(child.Stdout)
		answer <- string(b)
	}()
	got := testnet.Receive(t, "the answer of a process with "+name, answer)
	if reason, ok := strings.CutPrefix(got, "skip: "); ok {
		t.Skipf("the child can't set its memory or socket up (%s): run it on a machine that allows that", reason)
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// serveLockedSocket makes a call on a socket while a transfer on it waits for memory. Another
// goroutine on the only processor delivers the memory then.
func serveLockedSocket() {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		skipChild(err)
	}
	peer, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		skipChild(err)
	}
	c, err := ln.Accept()
	if err != nil {
		skipChild(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		skipChild(err)
	}
	runtime.GOMAXPROCS(1)
	group, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		skipChild(err)
	}
	sysfd := int(f.Fd())
	fd, err := group.Loop(0).NewFD(sysfd, loop.TCP)
	if err != nil {
		skipChild(err)
	}
	_, _ = peer.Write([]byte("ping"))
	p := make([]byte, 4)
	call := lockedCalls[os.Getenv("CALL")]
	missed, calling, called := make(chan bool), make(chan bool, 1), make(chan error)
	go func() {
		<-missed
		calling <- true
		called <- call.call(fd, sysfd, p)
	}()
	var once sync.Once
	memory, err := pagedMemory(call.size, func() {
		once.Do(func() {
			missed <- true
			<-calling
		})
	})
	if err != nil {
		skipChild(err)
	}
	time.Sleep(10 * time.Millisecond) // for the loop to notice the peer's bytes
	if call.size > lockingWrite {
		_, err = fd.Read(memory)
	} else {
		_, err = fd.Write(memory)
	}
	fmt.Printf("%v, %v", err, <-called)
	os.Exit(0)
}

func skipChild(reason error) {
	fmt.Print("skip: ", reason)
	os.Exit(0) // before the leak checks: goroutines and their descriptors end with the process
}

// Sizes of transfers that tell the scheduler.
const (
	lockingWrite = 8 << 10
	lockingRead  = 128 << 10
)

// lockedCalls are made while a Write or a Read of the given size waits for its memory.
var lockedCalls = map[string]struct {
	size int
	call func(fd *loop.FD, sysfd int, p []byte) error
}{
	"Read":  {lockingWrite, func(fd *loop.FD, _ int, p []byte) error { _, err := fd.Read(p); return err }},
	"Write": {lockingRead, func(fd *loop.FD, _ int, p []byte) error { _, err := fd.Write(p); return err }},
	"Getsockname": {lockingWrite, func(_ *loop.FD, sysfd int, _ []byte) error {
		if _, errno := sys.Getsockname(sysfd, new(unix.RawSockaddrAny)); errno != 0 {
			return errno
		}
		return nil
	}},
	"Peek": {lockingWrite, func(_ *loop.FD, sysfd int, p []byte) error {
		if _, errno := sys.Peek(sysfd, p); errno != 0 {
			return errno
		}
		return nil
	}},
}

// The kernel keeps a socket locked while a transfer waits for its memory. A call that waits for the
// lock leaves its processor to others.
func TestLockedSocket(t *testing.T) {
	for call := range lockedCalls {
		t.Run(call, func(t *testing.T) { wantAnswer(t, "<nil>, <nil>", "a locked socket", "CALL="+call) })
	}
}
