// Package moving is the one seam between package percore and those of its module that know more of
// its connections than users do: the adapters, which hold connections, and package handover, which
// moves listeners and connections from one process to another. They can't reach the methods in
// question, and package percore can't import them, so it sets the functions here when the program
// starts.
package moving

import (
	"net"
	"os"

	"github.com/percore/percore/internal/proxyproto"
)

// Listener moves the listener of a process.
type Listener interface {
	// Begin begins to move the listener, and reports false if that is under way already, or done.
	Begin() bool

	// End ends it: the listener stays. SetMoved ends it with the listener in another process, as IsMoved
	// reports from then on.
	End()
	SetMoved()
	IsMoved() bool

	// Pause has Accept leave connections in the kernel's backlog until Resume is called. Connections
	// that were accepted before still come out of Accept: see Settled.
	Pause()
	Resume()

	// Settled reports, after Pause, whether no connection is on its way any more: the PROXY header of
	// none is awaited, and the goroutines that call Accept have come back for the next, which says
	// that they have seen to the last. They are as many as have ever waited in Accept at a time. A
	// program in which one of them has stopped calling Accept never settles.
	Settled() bool

	// Files returns copies of all sockets.
	Files() ([]*os.File, error)

	// UnlinkOnClose reports whether Close removes the file of the unix socket.
	// SetUnlinkOnClose(true) for a listener that is closed removes the file at once.
	UnlinkOnClose() bool
	SetUnlinkOnClose(unlink bool)

	// IsOpen reports whether the listener has not been closed.
	IsOpen() bool

	// Adopt has Accept return a connection that another process has accepted, whose descriptor is
	// fd, which Adopt owns from then on, also when it fails. MaxConns counts the connection, but
	// doesn't hold it up. OnAccept is asked.
	//
	// It fails unless fd is a connected stream socket as Accept would have returned it.
	Adopt(fd int, c ConnInfo) error
}

// ConnInfo describes a connection: everything about it except its socket.
type ConnInfo struct {
	Served bool // it has had a request

	// Client is the PROXY header that the connection began with, or the zero Header.
	Client proxyproto.Header
}

// The functions that package percore sets, where its engine runs; nil otherwise.
var (
	// ListenerOf returns the listener's part, or nil if l is no *percore.Listener.
	ListenerOf func(l net.Listener) Listener

	// ConnInfoOf describes c, a *percore.Conn, for Adopt in another process. Served is true only if
	// Adopt made c and was given it.
	ConnInfoOf func(c net.Conn) ConnInfo

	// Hold says that the caller refers to c, a *percore.Conn, until it closes c or calls Release. The
	// garbage collector doesn't close c meanwhile. The finalizer that does takes 56 bytes of the
	// runtime's memory, more than the Conn.
	Hold func(c net.Conn)

	// Release ends Hold, before c gets another owner.
	Release func(c net.Conn)
)
