package client

import (
	"context"
	"errors"
	"fmt"
)

// Errors that users see, with net/http's texts.
var (
	errCannotRewind        = errors.New("net/http: cannot rewind body after connection loss")
	errReadOnClosedBody    = errors.New("http: read on closed response body")
	errConcurrentRead      = errors.New("http: concurrent read on response body")
	errRequestCanceled     = errors.New("net/http: request canceled")
	errRequestCanceledConn = errors.New("net/http: request canceled while waiting for connection")
	errRequestDone         = errors.New("net/http: request completed")
	errBodyUnread          = errors.New("net/http: reading the request's body has ended the goroutine")
	errNoConn              = errors.New("net/http: Transport.DialContext hook returned (nil, nil)")
)

// Errors that the hook PutIdleConn gets.
var (
	errKeepAlivesDisabled = errors.New("http: putIdleConn: keep alives disabled")
	errConnBroken         = errors.New("http: putIdleConn: connection is in bad state")
	errCloseIdle          = errors.New("http: putIdleConn: CloseIdleConnections was called")
	errTooManyIdleHost    = errors.New("http: putIdleConn: too many idle connections for host")
)

// errTimeout is the error once ResponseHeaderTimeout has passed. It is a net.Error, and
// context.DeadlineExceeded to errors.Is.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string        { return "net/http: timeout awaiting response headers" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// The errors once TLSHandshakeTimeout has passed, and over HTTP/2 ResponseHeaderTimeout.
var (
	errHandshakeTimeout error = limitError("net/http: TLS handshake timeout")
	errSharedTimeout    error = limitError("http2: timeout awaiting response headers")
)

// limitError is a net.Error whose text it is.
type limitError string

func (e limitError) Error() string { return string(e) }
func (limitError) Timeout() bool   { return true }
func (limitError) Temporary() bool { return true }

// nothingWritten is the error of a request of which no byte was sent.
type nothingWritten struct{ error }

func (e nothingWritten) Unwrap() error { return e.error }

// noAnswer is the error of a request to which no byte of an answer came.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() error { return e.error }

// plainError returns the error that the user gets for one of the two above, or for a copyError.
func plainError(err error) error {
	if e, ok := err.(copyError); ok {
		err = e.error
	}
	if e, ok := err.(nothingWritten); ok {
		err = e.error
	}
	if e, ok := err.(noAnswer); ok {
		err = e.error
	}
	return err
}

// broken is the error of an exchange that failed in the middle.
func broken(err error) error {
	return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
}
