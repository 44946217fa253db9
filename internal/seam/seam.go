// Package seam connects package percore with packages of its module that know more about its
// connections than users do. They are the adapters, which hold connections, and package handover,
// which moves listeners and connections from one process to another.
//
// The raw connections that SyscallConn returns have extra methods, just as package net's have
// PollFD for package os. A wrapper's SyscallConn returns a raw connection without them, so no code
// bypasses a wrapper by accident. Where package net replaces the engine, the raw connections belong
// to package net, and the functions here find nothing.
package seam

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sys"
)

// Listener moves a listener to another process.
type Listener interface {
	// Pause makes Accept leave connections in the kernel's backlog until Resume is called. Accept
	// still returns connections that had already left the backlog: see Settled.
	Pause()
	Resume()

	// Settled reports, after Pause, whether no connection is on its way to the server any more: no
	// PROXY header is expected, and the goroutines that call Accept have come back for the next
	// connection, so the server has the last one. Their number is the most that have ever waited in
	// Accept at the same time. If one of them has stopped calling Accept, the listener never settles.
	Settled() bool

	// Files returns copies of all sockets.
	Files() ([]*os.File, error)

	// Alike makes a listener of other sockets, with the listener's options. The caller still owns the
	// files.
	Alike(files ...*os.File) (net.Listener, error)

	// UnlinkOnClose reports whether Close removes the file of the unix socket.
	// SetUnlinkOnClose(true) on a closed listener removes the file at once.
	UnlinkOnClose() bool
	SetUnlinkOnClose(unlink bool)

	// IsOpen reports whether the listener has not been closed.
	IsOpen() bool

	// Adopt makes Accept return a connection that another process has accepted. fd is its
	// descriptor, which Adopt owns, even if it fails. The connection counts towards MaxConns, but
	// never has to wait for it. Adopt calls OnAccept for it.
	//
	// Adopt fails unless fd is a connected stream socket such as Accept would have returned.
	Adopt(fd int, c ConnInfo) error

	// AdoptAside is Adopt for a connection that doesn't come out of Accept: it returns it, or nil if
	// OnAccept or the peer has closed it.
	AdoptAside(fd int, c ConnInfo) (net.Conn, error)

	// Has reports whether c is a *percore.Conn that the listener has accepted or adopted.
	Has(c net.Conn) bool
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
	DropFinalizer()
	RestoreFinalizer()
}

// rawConnOf returns nil if c is not a *percore.Conn on the engine.
func rawConnOf(c net.Conn) rawConn {
	raw, _ := rawOf(c).(rawConn)
	return raw
}

// rawOf returns the result of SyscallConn, or nil.
func rawOf(c any) syscall.RawConn {
	if c, ok := c.(syscall.Conn); ok {
		raw, _ := c.SyscallConn()
		return raw
	}
	return nil
}

// TakeOver makes a *percore.Conn of a connection of package net, which it closes, as percore's Dialer
// does. Package percore sets it. It is nil where package net replaces the engine.
var TakeOver func(network string, nc net.Conn) (net.Conn, error)

// Closing, if not nil, is called for each *percore.Conn at the beginning of Close, on the goroutine
// that called Close. Of several calls of Close one closes the connection, and then calls the function
// that Closing returned to it, unless that is nil.
var Closing atomic.Pointer[func(c net.Conn) (closed func())]

// FD returns the engine's descriptor of c, or nil if c is not a *percore.Conn on the engine. The
// garbage collector closes it along with c, so the caller must keep a reference to c, or call
// DropFinalizer.
func FD(c net.Conn) *loop.FD {
	if raw := rawConnOf(c); raw != nil {
		return raw.FD()
	}
	return nil
}

// AtEnd reports whether the peer of c has ended the stream, or reset it, and no byte of it is
// unread: the next Read returns [io.EOF], or the error, at once. It consumes neither, and doesn't
// block. It is for callbacks that can do something cheaper with such a connection than pass it to a
// goroutine. false proves nothing: the end may be on its way, the connection may not be polled
// because nothing waits on it, or c is not a *percore.Conn on the engine.
func AtEnd(c net.Conn) bool {
	fd := FD(c)
	end := fd != nil && fd.AtEnd()
	runtime.KeepAlive(c)
	return end
}

// ConnInfoOf describes c for Adopt in another process. Served is true only if Adopt made c and was
// given it. The description is empty if c is not a *percore.Conn on the engine.
func ConnInfoOf(c net.Conn) ConnInfo {
	if raw := rawConnOf(c); raw != nil {
		return raw.Info()
	}
	return ConnInfo{}
}

// LimitsOf returns the limits of a *percore.Listener, or of the listener that accepted a *percore.Conn.
// It is nil if there are none, or c is neither, or not on the engine.
func LimitsOf(c any) *accepting.Limits {
	if raw, ok := rawOf(c).(interface{ Limits() *accepting.Limits }); ok {
		return raw.Limits()
	}
	return nil
}

// HasUnread reports whether c has unread bytes, or has come to its end. It asks the kernel, and
// doesn't block. c is a *percore.Conn on the engine, or any other connection; without a method
// SyscallConn nothing is known about it.
func HasUnread(c net.Conn) bool {
	fd := FD(c)
	if fd == nil {
		return othersHaveUnread(c)
	}
	has := fd.Control(func(fd int) syscall.Errno { // each call of a client asks this: without a variable on the heap
		if sys.Readable(fd) {
			return syscall.EAGAIN
		}
		return 0
	}) != nil
	runtime.KeepAlive(c)
	return has
}

func othersHaveUnread(c net.Conn) (has bool) {
	withSocket(c, func(fd int) { has = sys.Readable(fd) })
	return has
}

// HungUp reports whether the peer of c has ended the stream, or reset it, even if no loop has reported
// that yet. Bytes before that may be unread. It asks the kernel, and doesn't block. c is any
// connection; unless TellsSent(c), the answer is false.
func HungUp(c net.Conn) bool {
	if fd := FD(c); fd != nil {
		hasEnded := fd.HungUp() // calls to idle servers ask this: without the closure's memory
		runtime.KeepAlive(c)
		return hasEnded
	}
	hasEnded := false
	withSocket(c, func(fd int) { hasEnded = sys.HungUp(fd) })
	return hasEnded
}

// ReadNow reads what has come for c, even if its loop has not reported it yet. It doesn't block: it
// fails with [loop.ErrWouldWait] if there is nothing. c is a *percore.Conn on the engine.
func ReadNow(c net.Conn, p []byte) (n int, err error) {
	err = loop.ErrWouldWait
	if fd := FD(c); fd != nil && len(p) > 0 {
		if n, err = fd.ReadNow(p); n == 0 && err == nil {
			err = loop.ErrWouldWait
		}
	}
	runtime.KeepAlive(c)
	return n, err
}

// Sent says how far the peer of c has got with what was sent to it: see [sys.Sent]. It asks the kernel,
// and may wait for a call that writes to c. c is any connection; unless TellsSent(c), the answer is
// always the same.
func Sent(c net.Conn) (s sys.Sent) {
	withSocket(c, func(fd int) { s = sys.SentOf(fd) })
	return s
}

// SendRoom returns how many bytes a Write of c takes at once, by a cautious guess: see [sys.SendRoom].
// It is 0 unless TellsSent(c).
func SendRoom(c net.Conn) (n int) {
	withSocket(c, func(fd int) { n = sys.SendRoom(fd) })
	return n
}

// withSocket calls do with the descriptor of c, if it has one.
func withSocket(c net.Conn, do func(fd int)) {
	if fd := FD(c); fd != nil {
		_ = fd.Control(func(fd int) syscall.Errno {
			do(fd)
			return 0
		})
	} else if raw := rawOf(c); raw != nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
	runtime.KeepAlive(c)
}

// TellsSent reports whether c is a connection of the kernel's that Sent knows about.
func TellsSent(c net.Conn) bool {
	_, ok := c.(syscall.Conn)
	return ok && runtime.GOOS == "linux"
}

// CountStalls makes writes to c that wait for the peer count in s, and in no other; nil: in none. It has
// no effect unless c is a *percore.Conn on the engine.
func CountStalls(c net.Conn, s *loop.Stalls) {
	if fd := FD(c); fd != nil {
		fd.CountStalls(s)
	}
	runtime.KeepAlive(c)
}

// DropFinalizer promises that the caller keeps a reference to c, a *percore.Conn, until it closes c or
// calls RestoreFinalizer. Until then c needs no finalizer to close it. A finalizer takes 56 bytes of the
// runtime's memory, more than the Conn.
func DropFinalizer(c net.Conn) {
	if raw := rawConnOf(c); raw != nil {
		raw.DropFinalizer()
	}
}

// RestoreFinalizer undoes DropFinalizer, before c gets another owner.
func RestoreFinalizer(c net.Conn) {
	if raw := rawConnOf(c); raw != nil {
		raw.RestoreFinalizer()
	}
}

// ListenerOf returns the part of l that moves it, or nil if l is not a *percore.Listener on the engine.
func ListenerOf(l net.Listener) Listener {
	if raw, ok := rawOf(l).(interface{ Moving() Listener }); ok {
		return raw.Moving()
	}
	return nil
}

// GroupOf returns the loops of a *percore.Listener, or nil if l is none, or not on the engine.
func GroupOf(l net.Listener) *loop.Group {
	if raw, ok := rawOf(l).(interface{ Group() *loop.Group }); ok {
		return raw.Group()
	}
	return nil
}
