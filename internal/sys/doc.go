// Package sys is the seam between percore and the kernel: every system call that the engine makes
// goes through here, so that one build tag can make any of them fail.
//
// The wrappers carry the names of the calls they make and return the raw [syscall.Errno]; 0 is
// success. Nothing here retries, waits or interprets: callers must handle EINTR and EAGAIN.
//
// # Which calls tell the scheduler
//
// Recv, Send and Readable and a zero-timeout epoll_pwait never wait for an event, so they are made
// without telling the Go scheduler (RawSyscall): that saves entersyscall and exitsyscall on every
// request. The price: until the call returns, neither the scheduler nor the garbage collector's
// stop-the-world can take the processor away, and a call that touches memory that is not there (a
// mapped file, swap) waits for it. So the scheduler is told as usual about transfers longer than
// [rawSendBytesMax] or [rawRecvBytesMax] and transfers of several slices, and about all with
// PERCOREDEBUG=rawsyscall=0. It is always told about calls that can wait for more than memory:
// close(2) with SO_LINGER, epoll_ctl, which takes a machine-wide lock, getsockname, which takes the
// socket's lock, and a waiting epoll_pwait.
//
// # Fault injection
//
// With the build tag percore_faults, [Inject] installs a function that runs before every call and may
// make it fail; see faults_on.go. Without the tag the check is a constant, and the compiler removes it.
package sys
