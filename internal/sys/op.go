package sys

// Op names a system call for fault injection.
type Op uint8

// The calls that go through the seam. OpRead and OpWrite are the names that a socket's Read and
// Write report in their errors, though they call recv(2) and send(2); likewise, OpWritev stands for
// sendmsg(2).
const (
	OpRead Op = iota
	OpWrite
	OpWritev
	OpAccept4
	OpEpollCreate1
	OpEpollCtl
	OpEpollPwait
	OpEpollPwait2
	OpEventfd2
	OpPpoll
	OpSocket
	OpBind
	OpFcntl
	OpGetsockname
	OpGetsockopt
	OpSetsockopt
	OpShutdown
	OpClose
	OpSendfile
	OpSplice
	OpPipe2
	OpFstat
	numOps
)

var opNames = [numOps]string{
	OpRead:         "read",
	OpWrite:        "write",
	OpWritev:       "writev",
	OpAccept4:      "accept4",
	OpEpollCreate1: "epoll_create1",
	OpEpollCtl:     "epoll_ctl",
	OpEpollPwait:   "epoll_pwait",
	OpEpollPwait2:  "epoll_pwait2",
	OpEventfd2:     "eventfd2",
	OpPpoll:        "ppoll",
	OpSocket:       "socket",
	OpBind:         "bind",
	OpFcntl:        "fcntl",
	OpGetsockname:  "getsockname",
	OpGetsockopt:   "getsockopt",
	OpSetsockopt:   "setsockopt",
	OpShutdown:     "shutdown",
	OpClose:        "close",
	OpSendfile:     "sendfile",
	OpSplice:       "splice",
	OpPipe2:        "pipe2",
	OpFstat:        "fstat",
}

// String returns the system call's name as its man page spells it.
func (op Op) String() string { return opNames[op] }
