package h1

import (
	"net/http"
	"reflect"
	"runtime"
)

// An http.MaxBytesReader that meets its limit tells net/http's ResponseWriter, through a method without
// a public name, which no other type can have. Then net/http answers without reading the rest of the
// body, and closes the connection. Here the body finds out from how it is read: the reader cuts the
// slice that it was given to one byte more than its limit allows, and never reads again once it has them
// all. So the limit was met if the last Read
//
//   - has filled a slice whose capacity goes on,
//   - has not read the body to its end, and
//   - was called by an http.MaxBytesReader, which the stack shows.
//
// That finds the reader wherever it is kept, and touches nothing that another goroutine may be using. If
// a new net/http gives the reader another name no limit is found, and TestLimits fails.

// maxBytesRead is the name of the Read of an http.MaxBytesReader, as the stack has it.
var maxBytesRead = func() string {
	t := reflect.TypeOf(http.MaxBytesReader(nil, http.NoBody, 0)).Elem()
	return t.PkgPath() + ".(*" + t.Name() + ").Read"
}()

const (
	// limitDepth is how many calls up the reader is looked for: other readers may be in between.
	limitDepth = 8

	// looksMax is how often the stack is looked at for a body: a look costs a few µs, and a handler may
	// read a large body a few bytes at a time.
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
