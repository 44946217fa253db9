// Package zerocopy moves bytes between descriptors inside the kernel, so that
// they never pass through the process: files to sockets by sendfile(2), sockets
// and pipes among each other by splice(2).
//
// It works on [syscall.RawConn], which *os.File, package net's connections and
// percore's offer, and needs nothing else of percore; an end that is a [Stream] costs
// fewer questions to the kernel. On anything but Linux each function declines.
//
// # Handled or not
//
// Functions that move bytes return (n, handled, err). With handled false nothing
// was consumed and nothing was written: the caller can do the same in another
// way, by reading and writing, as if the call had not been made; then n is 0 and
// err says why. With handled true n bytes arrived at the destination and err is
// final.
//
// # Switches
//
// The environment variable PERCOREDEBUG, read when the program starts, switches
// features off, as GODEBUG does for Go: a list of settings separated by commas,
//
//	PERCOREDEBUG=splice=0,sendfile=0
//
//	sendfile=0    files are read and written
//	splice=0      sockets and pipes are read and written
//	writev=0      slices are written one by one
//	rawsyscall=0  the scheduler is told of each send and receive, not only of long ones
//
// Settings that this version does not know are ignored; a warning names them when
// the program starts. Of two for the same feature the later one counts, as with
// GODEBUG. [Features] tells what is
// on, and if not why not: a feature that the kernel has been found not to have is
// turned off, too.
package zerocopy
