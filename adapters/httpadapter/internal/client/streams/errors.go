package streams

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// The errors of requests over HTTP/2 have the types and texts of net/http's client, which doesn't export
// them.

var (
	errSharedUnusable    = errors.New("http2: client conn not usable")
	errSharedFailed      = errors.New("http2: client conn could not be established")
	errSharedGoAway      = errors.New("http2: Transport received Server's graceful shutdown GOAWAY")
	errSharedLost        = errors.New("http2: client connection lost")
	errSharedBodyClosed  = errors.New("http2: response body closed")
	errSharedReads       = errors.New("http2: concurrent read on response body")
	errAnswersInHTTP1    = errors.New("http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header")
	errBodyTooLong       = errors.New("http2: request body larger than specified content length")
	errAnswerTooLong     = errors.New("net/http: server replied with more than declared Content-Length; truncated")
	errHeaderListTooLong = errors.New("http2: request header list larger than peer's advertised limit")
	errTrailersTooLong   = errors.New("request header list larger than peer's advertised limit")
	errInterimsTooLong   = errors.New("header list too large")
	errFromPeer          = errors.New("received from peer")
	errUploadAbandoned   = errors.New("http2: aborting request body write")
)

// errSharedTimeout is the error once ResponseHeaderTimeout has passed.
var errSharedTimeout error = request.LimitError("http2: timeout awaiting response headers")

// ErrCrowded says that the server lets no other stream be opened on a connection. Users never see it.
var ErrCrowded = errors.New("http2: no room for a stream")

// ConnectionError is the error of requests on a connection whose server has broken the protocol.
type ConnectionError h2.ErrCode

// Error returns net/http's text.
func (e ConnectionError) Error() string { return "connection error: " + h2.ErrCode(e).String() }

// GoAwayError is the error of a request whose server has closed the connection after a GOAWAY.
type GoAwayError struct {
	LastStreamID uint32
	ErrCode      h2.ErrCode
	DebugData    string
}

// Error returns net/http's text.
func (e GoAwayError) Error() string {
	return fmt.Sprintf("http2: server sent GOAWAY and closed the connection; LastStreamID=%v, ErrCode=%v, debug=%q",
		e.LastStreamID, e.ErrCode, e.DebugData)
}

// isPingTimeout reports whether a connection has ended because the server has not answered a PING.
func isPingTimeout(err error) bool {
	_, isSocket := err.(*net.OpError)
	timeout, ok := err.(net.Error)
	return ok && !isSocket && timeout.Timeout()
}

// goneAway returns what the server has said in its GOAWAYs, as net/http puts it together.
func (c *Conn) goneAway() (e GoAwayError, ok bool) {
	first, last, ok := c.h2.GoneAway()
	e = GoAwayError{LastStreamID: last.LastStream, ErrCode: first.Code, DebugData: first.Debug}
	if first.Code == h2.NoError {
		e.ErrCode = last.Code
	}
	return e, ok
}

// streamError returns what net/http has for an error of package h2.
func (c *Conn) streamError(err error) error {
	var ofStream *h2.StreamError
	if errors.As(err, &ofStream) {
		if errors.Is(ofStream.Err, h2.ErrUnserved) {
			if gone, _ := c.goneAway(); gone.ErrCode != h2.NoError && ofStream.ID == 1 {
				return fmt.Errorf("http2: Transport received GOAWAY from server ErrCode:%v", gone.ErrCode)
			}
			return errSharedGoAway
		}
		e := semantics.StreamError{StreamID: ofStream.ID, Code: ofStream.Code, Cause: ofStream.Err}
		switch {
		case ofStream.Remote:
			e.Cause = errFromPeer
		case e.Cause != nil && strings.Contains(e.Cause.Error(), "DATA"):
			e.Cause = nil // net/http only logs it
		}
		return e
	}
	var ofConn *h2.ConnError
	if !errors.As(err, &ofConn) {
		return err
	}
	switch {
	case ofConn.Code == h2.FrameSizeError && strings.Contains(ofConn.Error(), "HTTP/1"):
		return errAnswersInHTTP1
	case ofConn.Code != h2.NoError:
		return ConnectionError(ofConn.Code)
	}
	read, isRead := ofConn.Err.(*net.OpError)
	ended := ofConn.Err == io.EOF || isRead && read.Op == "read"
	gone, went := c.goneAway()
	switch {
	case went && ended:
		return gone
	case ofConn.Err == io.EOF:
		return io.ErrUnexpectedEOF
	case isPingTimeout(ofConn.Err):
		return errSharedLost
	}
	return ofConn.Err
}

// HasServed reports whether err says that the server goes away, after it has served other requests on
// the connection. If it serves some on each connection, then of many calls that share one, some fail
// each time. They neither wait before they are sent again nor give up.
func (c *Conn) HasServed(err error) bool {
	gone, _ := c.goneAway()
	return gone.ErrCode == h2.NoError && gone.LastStreamID > 0 && (err == errSharedUnusable || err == errSharedGoAway)
}

// MayRetry reports whether err says that the server has not served the request, so it may be sent again.
func MayRetry(err error) bool {
	e, ok := err.(semantics.StreamError)
	switch {
	case err == errSharedUnusable, err == errSharedGoAway, ok && e.Code == h2.RefusedStream:
		return true
	}
	return ok && request.RetriesBreaches && e.Code == h2.ProtocolError && e.Cause == errFromPeer
}
