// Package moving is the one seam between package percore and those of its module that know more of
// its connections than users do: the adapters, which hold connections, and package handover, which
// moves listeners and connections from one process to another.
//
// The raw connections that SyscallConn returns have further methods, as those of package net have
// PollFD for package os. The raw connection of a wrapper's SyscallConn hasn't, so that no code gets
// past a wrapper by accident. Where package net stands in for the engine the raw connections are
// package net's, and the functions here find nothing.
package moving

import (
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/proxyproto"
)

// Listener moves the listener of a process.
type Listener interface {
	// Begin begins a move. It reports false if another is under way, or the listener has moved.
	Begin() bool

	// End ends the move: the listener stays. SetMoved ends it with the listener in another process, as
	// IsMoved reports from then on.
	End()
	SetMoved()
	IsMoved() bool

	// Pause makes Accept leave connections in the kernel's backlog until Resume is called. Accept still
	// returns connections that had left the backlog before: see Settled.
	Pause()
	Resume()

	// Settled reports, after Pause, whether no connection is on its way to the server any more: no PROXY
	// header is awaited, and the goroutines that call Accept have come back for the next connection, so
	// that the server has the last one. They are as many as have ever waited in Accept at a time. A
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

	// Adopt makes Accept return a connection that another process has accepted. fd is its descriptor,
	// which Adopt owns, also when it fails. MaxConns counts the connection, but doesn't hold it up.
	// OnAccept is called for it.
	//
	// Adopt fails unless fd is a connected stream socket as Accept would have returned it.
	Adopt(fd int, c ConnInfo) error
}

// ConnInfo describes a connection: everything about it except its socket.
type ConnInfo struct {
	Served bool // it has had a request

	// Client is the PROXY header that the connection began with, or the zero Header.
	Client proxyproto.Header
}

// rawConn is the raw connection of a *percore.Conn.
type rawConn interface {
	FD() *loop.FD
	Info() ConnInfo
	Hold()
	Release()
}

// rawConnOf returns the raw connection of c, or nil if c is no *percore.Conn on the engine.
func rawConnOf(c net.Conn) rawConn {
	raw, _ := rawOf(c).(rawConn)
	return raw
}

// rawOf returns what SyscallConn does, or nil.
func rawOf(c any) syscall.RawConn {
	if c, ok := c.(syscall.Conn); ok {
		raw, _ := c.SyscallConn()
		return raw
	}
	return nil
}

// FD returns the engine's descriptor of c, or nil if c is no *percore.Conn on the engine. The
// garbage collector closes it with c, so the caller refers to c, or calls Hold.
func FD(c net.Conn) *loop.FD {
	if raw := rawConnOf(c); raw != nil {
		return raw.FD()
	}
	return nil
}

// AtEnd reports whether the peer of c has ended the stream, or reset it, and no byte of it is
// unread: the next Read returns [io.EOF], or the error, at once. It takes neither away, and doesn't
// block. It is for callbacks that have something cheaper to do with such a connection than to pass
// it to a goroutine. false proves nothing: the end may be on its way, nothing may be waiting on the
// connection, so that it isn't polled, or c is no *percore.Conn on the engine.
func AtEnd(c net.Conn) bool {
	fd := FD(c)
	end := fd != nil && fd.AtEnd()
	runtime.KeepAlive(c)
	return end
}

// ConnInfoOf describes c for Adopt in another process. Served is true only if Adopt made c and was
// given it. The description is empty if c is no *percore.Conn on the engine.
func ConnInfoOf(c net.Conn) ConnInfo {
	if raw := rawConnOf(c); raw != nil {
		return raw.Info()
	}
	return ConnInfo{}
}

// Hold says that the caller refers to c, a *percore.Conn, until it closes c or calls Release. The
// garbage collector doesn't close c meanwhile. The finalizer that does takes 56 bytes of the
// runtime's memory, more than the Conn.
func Hold(c net.Conn) {
	if raw := rawConnOf(c); raw != nil {
		raw.Hold()
	}
}

// Release ends Hold, before c gets another owner.
func Release(c net.Conn) {
	if raw := rawConnOf(c); raw != nil {
		raw.Release()
	}
}

// ListenerOf returns the part of l that moves it, or nil if l is no *percore.Listener on the engine.
func ListenerOf(l net.Listener) Listener {
	if raw, ok := rawOf(l).(interface{ Moving() Listener }); ok {
		return raw.Moving()
	}
	return nil
}
