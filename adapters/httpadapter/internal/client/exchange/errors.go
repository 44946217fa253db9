package exchange

import (
	"context"
	"errors"
	"fmt"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
)

// Errors that users see, with net/http's texts.
var (
	errReadOnClosedBody = errors.New("http: read on closed response body")
	errConcurrentRead   = errors.New("http: concurrent read on response body")
)

// errHeaderTooLong is the error of a scratch at its limit. Users get another.
var errHeaderTooLong = errors.New("the header is too long")

// errTimeout is the error once ResponseHeaderTimeout has passed. It is context.DeadlineExceeded to
// errors.Is.
var errTimeout error = timeoutError{request.LimitError("net/http: timeout awaiting response headers")}

type timeoutError struct{ request.LimitError }

// Is is for errors.Is.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Errors that say where an exchange has failed. Plain returns what the user gets for one of them.
type (
	NothingWritten struct{ error } // no byte of the request was sent
	NoAnswer       struct{ error } // no byte of an answer came
	copyError      struct{ error } // reading or writing the body failed; as in net/http, later errors don't replace it
)

// Plain returns the error that the user gets.
func Plain(err error) error {
	switch e := err.(type) {
	case NothingWritten:
		return e.error
	case NoAnswer:
		return e.error
	case copyError:
		return e.error
	}
	return err
}

// broken is the error of an exchange that failed in the middle.
func broken(err error) error {
	return fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", err)
}
