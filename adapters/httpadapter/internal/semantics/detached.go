package semantics

import "errors"

var (
	// ErrDetached is the error of a Write to an answer whose rest has another owner.
	ErrDetached = errors.New("httpadapter: the answer is detached: write to its Stream")

	// ErrReturned is the error of a Detach when the handler has returned.
	ErrReturned = errors.New("httpadapter: Detach was called when the handler had returned")

	// ErrPanicked is what the owner of a detached answer is told about a handler that has panicked, or
	// ended its goroutine.
	ErrPanicked = errors.New("httpadapter: the handler has panicked")
)
