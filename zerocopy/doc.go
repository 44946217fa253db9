// Package zerocopy reports how many bytes the kernel moved by itself, and which kernel features
// percore uses for that.
//
// Programs don't have to call anything to use them. ReadFrom, WriteTo and io.Copy on a percore.Conn
// send files with sendfile(2), and move bytes between connections and pipes with splice(2), so the
// bytes never pass through the process. Vectored writes take one system call instead of several.
// [Stats] counts the bytes that went each way. [Features] reports which features are on, and why the
// others are off. Only Linux has them.
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
// Settings that this version does not know are ignored; a warning names them when the program
// starts. If a feature is set twice, the last setting counts, as with GODEBUG. A feature that the
// kernel turns out not to have is switched off as well.
package zerocopy
