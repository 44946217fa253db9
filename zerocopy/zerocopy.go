package zerocopy

import "errors"

// ErrUnfinished is wrapped by the error of a transfer that the kernel refused to
// go on with: n bytes have arrived, nothing else was consumed, and the rest can
// go another way.
var ErrUnfinished = errors.New("zerocopy: unfinished: the rest has to go another way")

// errSwitchedOff is why a function declines whose feature is off.
var errSwitchedOff = errors.New("zerocopy: the feature is off")

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
// sendfile(2) does not say which end its errno is about. It is taken for the
// destination's, except EIO.
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
