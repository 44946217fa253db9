package request

import "errors"

// Errors that users see, with net/http's texts.
var (
	ErrCanceled = errors.New("net/http: request canceled")
	ErrDone     = errors.New("net/http: request completed") // the cause of a context whose request is over

	// ErrBodyUnread is for a Read of the body's that has ended its goroutine.
	ErrBodyUnread = errors.New("net/http: reading the request's body has ended the goroutine")
)

// LimitError is the error once a time limit has passed: a net.Error whose text it is.
type LimitError string

// Error returns the text.
func (e LimitError) Error() string { return string(e) }

// Timeout implements net.Error.
func (LimitError) Timeout() bool { return true }

// Temporary implements net.Error.
func (LimitError) Temporary() bool { return true }
