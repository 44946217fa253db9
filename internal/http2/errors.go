package http2

import "fmt"

// An ErrCode is the reason why a stream or a connection ended (RFC 9113, section 7).
type ErrCode uint32

// The error codes of RFC 9113, section 7.
const (
	NoError            ErrCode = 0x0
	ProtocolError      ErrCode = 0x1
	InternalError      ErrCode = 0x2
	FlowControlError   ErrCode = 0x3
	SettingsTimeout    ErrCode = 0x4
	StreamClosed       ErrCode = 0x5
	FrameSizeError     ErrCode = 0x6
	RefusedStream      ErrCode = 0x7
	Cancel             ErrCode = 0x8
	CompressionError   ErrCode = 0x9
	ConnectError       ErrCode = 0xa
	EnhanceYourCalm    ErrCode = 0xb
	InadequateSecurity ErrCode = 0xc
	HTTP11Required     ErrCode = 0xd
)

var errCodeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
	"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
	"CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String returns the name that RFC 9113 gives the code.
func (c ErrCode) String() string {
	if int(c) < len(errCodeNames) {
		return errCodeNames[c]
	}
	return fmt.Sprintf("unknown error code %#x", uint32(c)) // as net/http says
}

// A ConnError ends the connection. A GOAWAY with its code is in the output, unless Silent is set: then
// the peer doesn't speak HTTP/2.
type ConnError struct {
	Code   ErrCode
	Reason string // the rule that the peer broke
	Limit  Limit  // the limit that the peer exceeded, if Code is EnhanceYourCalm
	Silent bool
}

// A Limit is one of the limits of a Config that end a connection with ENHANCE_YOUR_CALM.
type Limit uint8

// The limits.
const (
	NoLimit     Limit = iota
	HeaderLimit       // the length of a header block: Continuations, HeaderListBytes
	IdleLimit         // frames that bring nothing: Idle
	ResetLimit        // streams that end early: Resets
	AnswerLimit       // frames of control that the peer does not read: ControlFrames
)

// Error returns the code and the reason.
func (e *ConnError) Error() string { return "http2: " + e.Code.String() + ": " + e.Reason }

// A scope says what an error ends.
type scope uint8

const (
	fine       scope = iota // no error
	ofStream                // the stream: RST_STREAM (RFC 9113, section 5.4.2)
	ofConn                  // the connection: GOAWAY (section 5.4.1)
	ofGreeting              // the connection, without a frame
)

// A verdict is the outcome of a check. The zero value means no error.
type verdict struct {
	scope  scope
	limit  Limit
	code   ErrCode
	reason string
}

// illegalID is the reason for a stream with an even identifier, or one that went down (RFC 9113,
// section 5.1.1). The words are grpc-go's.
const illegalID = "received an illegal stream id"

func streamError(code ErrCode, reason string) verdict {
	return verdict{scope: ofStream, code: code, reason: reason}
}

func connError(code ErrCode, reason string) verdict {
	return verdict{scope: ofConn, code: code, reason: reason}
}

var tooLong = streamError(ProtocolError, "a body is longer than was declared")

var noPreface = verdict{
	scope: ofGreeting, code: ProtocolError, reason: "the client does not begin with the preface of HTTP/2",
}

func limitError(limit Limit, reason string) verdict {
	return verdict{scope: ofConn, limit: limit, code: EnhanceYourCalm, reason: reason}
}
