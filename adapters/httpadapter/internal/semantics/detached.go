package semantics

import (
	"context"
	"errors"
	"net/http"
)

// A Detacher is the http.ResponseWriter of a request, whose answer can go on after the handler has
// returned. A is the type of what is left of the answer: h1's, or httpstream's.
type Detacher[A any] interface {
	http.ResponseWriter

	// SentPlain reports whether the header was sent, and says nothing about a coding of the body.
	SentPlain() bool

	// Detach moves the rest of the answer to a, which must be new, and which is o's, and returns the
	// request's context, and whether the header is fixed. From then on the ResponseWriter takes nothing,
	// and the handler's return lets go of it and of the request. Detach fails if the handler has returned,
	// or the answer is detached or hijacked.
	Detach(a *A, o Owner) (ctx context.Context, wrote bool, err error)
}

// An Owner has a detached answer.
type Owner interface {
	// Work sends what is to be sent. It is called when the handler has returned, and for each Start of
	// the answer after that. It reports whether the answer is over, and whether all of it was sent, with
	// End: if not, the answer is cut. It may block.
	Work() (over, sent bool)

	// Finish is called last, once. It may panic, which is logged.
	Finish(sent bool)

	// Gone ends the answer early, and reports whether it went on: the client has gone, for which err may
	// be nil, or the handler has panicked, or others need the place. It must not block.
	Gone(err error) bool

	// GoesOn reports whether the answer has not ended.
	GoesOn() bool

	// Blocks says whether something waits, for the rest of the request's body say, that the answer's Cut
	// ends. It reports whether the answer has ended.
	Blocks(blocks bool) (ended bool)
}

var (
	// ErrDetached is the error of a Write to an answer whose rest has another owner.
	ErrDetached = errors.New("httpadapter: the answer is detached: write to its Stream")

	// ErrReturned is the error of a Detach when the handler has returned.
	ErrReturned = errors.New("httpadapter: Detach was called when the handler had returned")

	// ErrPanicked is what the owner of a detached answer is told about a handler that has panicked, or
	// ended its goroutine.
	ErrPanicked = errors.New("httpadapter: the handler has panicked")
)
