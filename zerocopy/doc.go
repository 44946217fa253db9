// Package zerocopy reports which bytes the kernel moved by itself, and which of its features for that
// are in use.
//
// They need no call of their own: ReadFrom, WriteTo and io.Copy on a percore.Conn send files with
// sendfile(2) and move bytes between connections and pipes with splice(2), so that they never pass
// through the process; vectored writes are one system call instead of several. [Stats] counts
// the bytes that went each way, and [Features] reports which are on, and why the others are not. Only
// Linux has these features.
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
//	rawsyscall=0  the scheduler is told about each send and receive, not only about long ones
//	directwait=0  the next request of a server's only connection is waited for like those of many
//
// Settings that this version does not know are ignored; a warning names them when the program starts.
// Of two for the same feature the later one counts, as with GODEBUG. A feature that the kernel has been
// found not to have is turned off, too.
package zerocopy
