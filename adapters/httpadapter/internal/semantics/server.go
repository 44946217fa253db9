package semantics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
)

// A Canceler cancels the context of a request. Cancel may be called more than once, and by several
// goroutines.
type Canceler interface{ Cancel() }

// ErrFinished is the error of a Write after the handler has returned.
var ErrFinished = errors.New("http: the handler has returned, write the answer before that")

// LogPanic logs a panic of the user's, while a connection with peer was served, as net/http does.
func LogPanic(logf func(format string, args ...any), protocol string, peer net.Addr, reason any) {
	if reason == http.ErrAbortHandler {
		return
	}
	const size = 64 << 10
	buf := make([]byte, size)
	buf = buf[:runtime.Stack(buf, false)]
	logf("%s: panic serving %v: %v\n%s", protocol, peer, reason, buf)
}

// IsGeneralOptions reports whether a request asks for the options of the server itself
// (serverHandler.ServeHTTP).
func IsGeneralOptions(r *http.Request) bool {
	return r.RequestURI == "*" && r.Method == http.MethodOptions
}

// GeneralOptions answers such a request (globalOptionsHandler).
func GeneralOptions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength != 0 {
		const bytesMax = 4 << 10 // of a body that is read
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, bytesMax))
	}
}
