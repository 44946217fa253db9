package sys

// Op names a system call for fault injection.
type Op uint8

// The calls that go through the seam. OpRead and OpWrite are what a socket's
// Read and Write report in their errors, though recv(2) and send(2) are called.
const (
	OpRead Op = iota
	OpWrite
	OpAccept4
	OpEpollCreate1
	OpEpollCtl
	OpEpollPwait
	OpEventfd2
	OpPpoll
	OpFcntl
	OpGetsockname
	OpGetsockopt
	OpSetsockopt
	OpShutdown
	OpClose
	numOps
)

var opNames = [numOps]string{
	OpRead:         "read",
	OpWrite:        "write",
	OpAccept4:      "accept4",
	OpEpollCreate1: "epoll_create1",
	OpEpollCtl:     "epoll_ctl",
	OpEpollPwait:   "epoll_pwait",
	OpEventfd2:     "eventfd2",
	OpPpoll:        "ppoll",
	OpFcntl:        "fcntl",
	OpGetsockname:  "getsockname",
	OpGetsockopt:   "getsockopt",
	OpSetsockopt:   "setsockopt",
	OpShutdown:     "shutdown",
	OpClose:        "close",
}

// String returns the system call's name as its man page spells it.
func (op Op) String() string { return opNames[op] }
