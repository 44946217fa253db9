package httpstream

import (
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// RootedPath is rootedPath.
const RootedPath = rootedPath

// BadLengthResets is badLengthResets.
const BadLengthResets = badLengthResets

// StreamError returns the error of a stream that was reset.
func StreamError(id uint32, code h2.ErrCode) error {
	return semantics.StreamError{StreamID: id, Code: code}
}
