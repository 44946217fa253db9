// Package sys is the seam between percore and the kernel: every system call that the engine makes
// goes through here, so that one build tag can make any of them fail.
//
// The wrappers carry the names of the calls they make and return the raw [syscall.Errno]; 0 is
// success. Nothing here retries, waits or interprets: callers must handle EINTR and EAGAIN.
//
// # Which calls tell the scheduler
//
// Recv, Send and Readable and a zero-timeout epoll_pwait never wait for an event, so they
// are made without telling the Go scheduler (RawSyscall): that saves entersyscall and
// exitsyscall on every request. The price is that neither the
// scheduler nor a garbage collection's stop-the-world can take the processor away until the
// call returns, and a call that touches memory that is not there waits for it (a mapped
// file, swap). So transfers longer than [rawSendBytesMax] or [rawRecvBytesMax], and those of
// several slices, go the usual way, as do all with PERCOREDEBUG=rawsyscall=0. Calls that can
// wait for more than memory always do: close(2) with SO_LINGER, epoll_ctl, which takes a lock
// of the machine, getsockname, which takes the socket's, a waiting epoll_pwait.
//
// # Fault injection
//
// Under the build tag percore_faults, [Inject] installs a function that is asked
// before every call and may make it fail; see faults_on.go. Without the tag the
// answer is a constant, and the compiler removes the question.
package sys
