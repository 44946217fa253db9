package h1

import (
	"net/http"
	"reflect"
	"runtime"
)

// An http.MaxBytesReader that meets its limit notifies net/http's ResponseWriter, through a method
// without a public name, which no other type can have. Then net/http does not read the rest of the
// body before it answers, and closes the connection. Here the body finds out from the way in which
// it is read: the reader cuts the slice that it was given to one byte more than its limit allows,
// and never reads again once it has got them all. So the limit was met if the last Read
//
//   - has filled a slice that has room behind its end,
//   - has not read the body to its end, and
//   - was called by an http.MaxBytesReader, which the stack shows.
//
// So the reader is found wherever it is kept: in the request, in a copy of it, in a variable. Nothing is
// asked of the reader itself, which another goroutine may be using. If a new net/http names it in
// another way, no limit is found, and such a body is one that the handler has just not read; TestLimits
// fails then. The package comment says what is not found, and what is taken for a limit by mistake.

// maxBytesRead is the name of the Read of an http.MaxBytesReader, as the stack has it.
var maxBytesRead = func() string {
	t := reflect.TypeOf(http.MaxBytesReader(nil, http.NoBody, 0)).Elem()
	return t.PkgPath() + ".(*" + t.Name() + ").Read"
}()

const (
	// limitDepth is how many calls up the reader is looked for: readers that pass the slice on may be
	// between.
	limitDepth = 8

	// looksMax is how often a body is looked at. A look costs a few µs, and a handler may read all of a
	// large body by Reads of a few bytes.
	looksMax = 16
)

// meetsLimit reports whether a Read into p, which has returned n bytes, has met the limit of an
// http.MaxBytesReader, as far as can be seen. It is for Read, with mu held.
func (b *requestBody) meetsLimit(p []byte, n int) bool {
	if n == 0 || n < len(p) || n == cap(p) || b.ended || b.looks == looksMax {
		return false
	}
	b.looks++
	return underMaxBytesReader()
}

// underMaxBytesReader reports whether an http.MaxBytesReader has called the body's Read, two calls up.
func underMaxBytesReader() bool {
	var pcs [limitDepth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == maxBytesRead {
			return true
		}
	}
	return false
}
