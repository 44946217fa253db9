package exchange

import (
	"context"
	"errors"
	"fmt"
)

// Errors that users see, with net/http's texts.
var (
	errReadOnClosedBody = errors.New("http: read on closed response body")
	errConcurrentRead   = errors.New("http: concurrent read on response body")
)

// errTimeout is the error once ResponseHeaderTimeout has passed. It is a net.Error, and
// context.DeadlineExceeded to errors.Is.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string        { return "net/http: timeout awaiting response headers" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// NothingWritten is the error of a request of which no byte was sent.
type NothingWritten struct{ error }

// Unwrap returns the error that the user gets.
func (e NothingWritten) Unwrap() error { return e.error }

// NoAnswer is the error of a request to which no byte of an answer came.
type NoAnswer struct{ error }

// Unwrap returns the error that the user gets.
func (e NoAnswer) Unwrap() error { return e.error }

// Plain returns the error that the user gets for one of the two above, or for a copyError.
func Plain(err error) error {
	if e, ok := err.(copyError); ok {
		err = e.error
	}
	if e, ok := err.(NothingWritten); ok {
		err = e.error
	}
	if e, ok := err.(NoAnswer); ok {
		err = e.error
	}
	return err
}

// broken is the error of an exchange that failed in the middle.
func broken(err error) error {
	return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
}
