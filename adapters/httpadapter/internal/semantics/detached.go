package semantics

import "errors"

// ErrDetached is the error of a Write to an answer whose rest has another owner.
var ErrDetached = errors.New("httpadapter: the answer is detached: write to its Stream")
