package h2

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
)

// A Field is a field of a header or of trailers.
type Field = hpack.Field

// A Name is the name of a field, and everything that depends only on it. Names never change, and
// the whole program shares the common ones.
type Name = hpack.Name

// MakeField returns a field. The name must be in lower case.
func MakeField(name, value string) Field { return hpack.MakeField(name, value) }

// FieldOfKey is MakeField for a key of an http.Header. It is quick for keys in their canonical form.
func FieldOfKey(key, value string) Field { return keys.MakeKeyField(key, value) }

// keys has the names of keys that are not among the common ones.
var keys = hpack.NewInterner()

// An ErrCode says why a stream or a connection ends (RFC 9113, section 7).
type ErrCode = http2.ErrCode

// The error codes of RFC 9113.
const (
	NoError            = http2.NoError
	ProtocolError      = http2.ProtocolError
	InternalError      = http2.InternalError
	FlowControlError   = http2.FlowControlError
	SettingsTimeout    = http2.SettingsTimeout
	StreamClosed       = http2.StreamClosed
	FrameSizeError     = http2.FrameSizeError
	RefusedStream      = http2.RefusedStream
	Cancel             = http2.Cancel
	CompressionError   = http2.CompressionError
	ConnectError       = http2.ConnectError
	EnhanceYourCalm    = http2.EnhanceYourCalm
	InadequateSecurity = http2.InadequateSecurity
	HTTP11Required     = http2.HTTP11Required
)

// A Problem is something about a request that a server of HTTP answers itself.
type Problem = http2.Problem

// The problems of requests.
const (
	Nothing         = http2.Nothing
	TooLarge        = http2.TooLarge        // the fields exceed the limits, and some are left out: 431
	ConnectionField = http2.ConnectionField // a field that RFC 9113, section 8.2.2, forbids: 400
	BadTE           = http2.BadTE           // te with anything but "trailers": 400
	BadLength       = http2.BadLength       // a length is declared, and there is no body, or another length
)

// ErrEnded is the error of calls after the end of the answer or the return of Serve.
var ErrEnded = http2.ErrEnded

// ErrServerClosed is the error of Serve after Shutdown or Close. It wraps [net.ErrClosed].
var ErrServerClosed = fmt.Errorf("h2: the server is closed: %w", net.ErrClosed)

var errClientClosed = fmt.Errorf("h2: the client is closed: %w", net.ErrClosed)

// Errors of Open: nothing was sent, and the call may be made on another connection.
var (
	// ErrLeaving is for a connection on which no more streams can be opened: it has ended, the server has
	// hung up, either side has sent GOAWAY, or all stream numbers are used up.
	ErrLeaving = errors.New("h2: the connection takes no more streams")

	// ErrNoQuota is for a connection whose Quota is 0, without a ctx to wait with.
	ErrNoQuota = http2.ErrNoQuota
)

// A client's StreamError wraps ErrUnserved if the server's GOAWAY says that it has not served the
// stream and won't: the request may be sent again on another connection.
var ErrUnserved = errors.New("h2: the server goes away, and has not served the stream")

// ErrShortBody is the error of Read on a body that is shorter than declared.
var ErrShortBody = fmt.Errorf("h2: the body is shorter than its declared length: %w", io.ErrUnexpectedEOF)

// ErrLongBody is the error of Read on a body that is longer than declared. The stream is reset.
var ErrLongBody = errors.New("h2: the body is longer than its declared length")

// errNil is the error of a call that was passed a nil.
func errNil(call, what string) error {
	return errors.New("h2: " + call + " was called with a nil " + what + ": pass one")
}

// errDeadline is net/http's error for a body whose deadline has passed.
var errDeadline = fmt.Errorf("%w", os.ErrDeadlineExceeded)

// A StreamError says why a stream has ended early.
type StreamError struct {
	ID     uint32
	Code   ErrCode
	Remote bool  // the peer has reset the stream
	Err    error // os.ErrDeadlineExceeded after a write deadline, the limit or rule that the peer has broken; or nil
}

// Error returns the text.
func (e *StreamError) Error() string {
	by := "this side"
	if e.Remote {
		by = "the peer"
	}
	return fmt.Sprintf("h2: stream %d was reset by %s: %v", e.ID, by, e.Code)
}

// Unwrap returns Err.
func (e *StreamError) Unwrap() error { return e.Err }

// A ConnError says why a connection has ended.
type ConnError struct {
	Code ErrCode
	Err  error // of the socket: io.EOF, net.ErrClosed, a timeout; or the rule that the peer broke
}

// Error returns the text.
func (e *ConnError) Error() string {
	if e.Err == nil {
		return "h2: the connection has ended: " + e.Code.String()
	}
	return "h2: the connection has ended: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConnError) Unwrap() error { return e.Err }
