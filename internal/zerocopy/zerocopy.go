package zerocopy

import (
	"errors"
	"syscall"
)

// ErrUnfinished is wrapped by the error of a transfer that the kernel refused to go on with: n
// bytes have arrived, nothing else was consumed, and the rest can go another way.
var ErrUnfinished = errors.New("zerocopy: unfinished: the rest has to go another way")

// Stream is an end whose owner knows more of it than its descriptor tells: a stream socket, whose
// functions are given its state and report on it in turn. [SendFile] and [Splice] ask for it once
// per transfer; any other [syscall.RawConn] will do.
//
// The methods besides RawConn's don't block. All may be called from any goroutine, except
// that Drained and Marked are called within a function given to Read.
type Stream interface {
	syscall.RawConn

	// Nonblocking reports whether the socket is known to be in non-blocking mode. If
	// not, the kernel is asked.
	Nonblocking() bool

	// Closed reports whether the socket is being closed: a function given to Read or Write
	// that has gone on for long returns then.
	Closed() bool

	// Drained says that the last read of the function has returned something, but less
	// than it asked for: nothing is left.
	Drained()

	// Marked reports whether there may be a mark of TCP urgent data in the stream (tcp(7),
	// SO_OOBINLINE). There splice(2) says EAGAIN, however much is behind it.
	Marked() bool
}

// End is one end of a transfer.
type End uint8

// The ends that an Error can be about.
const (
	Source End = iota
	Destination
)

// Error is why a transfer failed: the error of the calls at one of its ends. Err is a
// [syscall.Errno], or the error of the end's RawConn, without package net's
// *net.OpError around it: [os.ErrDeadlineExceeded], [net.ErrClosed] and so on.
//
// sendfile(2) does not say which end its errno is about. It is taken for the destination's, except EIO.
type Error struct {
	End End
	Err error
}

// Error returns the text of e.Err and which end it is about.
func (e *Error) Error() string {
	if e.End == Source {
		return "zerocopy: source: " + e.Err.Error()
	}
	return "zerocopy: destination: " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }
