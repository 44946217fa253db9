// Package zerocopy moves bytes between descriptors inside the kernel, so that
// they never pass through the process: files to sockets with sendfile(2), sockets
// and pipes among each other with splice(2).
//
// It works on [syscall.RawConn], which *os.File, package net's connections and percore's offer, and
// needs nothing else of percore; an end that is a [Stream] costs fewer questions to the kernel. On
// anything but Linux each function declines. The counters and switches are in package features, the
// description of the counters in github.com/percore/percore/zerocopy.
//
// # Handled or not
//
// Functions that move bytes return (n, handled, err). With handled false nothing was consumed and
// nothing was written: the caller can do the same in another way, by reading and writing, as if the
// call had not been made; then n is 0 and err says why. With handled true n bytes arrived at the
// destination and err is final.
package zerocopy
