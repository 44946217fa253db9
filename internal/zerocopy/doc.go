// Package zerocopy moves bytes between descriptors inside the kernel, so that they never pass through
// the process: from files to sockets with sendfile(2), between sockets and pipes with splice(2).
//
// It works on [syscall.RawConn], which *os.File and the connections of package net and percore
// offer, and needs nothing else from percore. An end that is a [Stream] needs fewer system calls.
// Off Linux it has no functions. The counters and switches are in package features, and
// github.com/percore/percore/zerocopy describes the counters.
//
// # Handled or not
//
// Functions that move bytes return (n, handled, err). If handled is false, nothing was consumed and
// nothing was written: n is 0, err says why, and the caller can read and write instead, as if the
// call had not been made. If handled is true, n bytes arrived at the destination and err is final.
package zerocopy
