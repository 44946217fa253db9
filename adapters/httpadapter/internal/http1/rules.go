package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// This file has what net/http's server does with a request besides http.ReadRequest, which decides about
// first line, fields, framing and trailers. Each rule names its function of net/http/server.go.
// versions.go and versions_go126.go have the rules that differ between versions of Go, and
// CONTRIBUTING.md says what to read when a new one comes.

// A StatusError is why net/http's server refuses a request that http.ReadRequest takes (statusError).
type StatusError struct {
	Code int
	Text string
}

// Error implements error.
func (e StatusError) Error() string { return http.StatusText(e.Code) + ": " + e.Text }

// Check returns why a server refuses a request that http.ReadRequest has read from header, or nil
// ((*conn).readRequest).
func Check(r *http.Request, header []byte) error {
	if r.ProtoMajor != 1 && !isPreface(r) { // http1ServerSupportsRequest
		return StatusError{http.StatusHTTPVersionNotSupported, "unsupported protocol version"}
	}
	hosts := hostsOf(r, header)
	switch {
	case r.ProtoAtLeast(1, 1) && len(hosts) == 0 && !isHTTP2Upgrade(r) && r.Method != http.MethodConnect:
		return StatusError{http.StatusBadRequest, "missing required Host header"}
	case len(hosts) == 1 && !semantics.HasOnly(hosts[0], &semantics.HostValueByte):
		return StatusError{http.StatusBadRequest, "malformed Host header"}
	}
	for name, values := range r.Header {
		if !semantics.IsToken(name) {
			return StatusError{http.StatusBadRequest, "invalid header name"}
		}
		for _, v := range values {
			if !isValueBytes(v) {
				return StatusError{http.StatusBadRequest, "invalid header value"}
			}
		}
	}
	return nil
}

// TooManyTrailers reports whether a request in chunks announces more trailers than namesMax (fixTrailer
// of Go 1.27). It is for a whole header, before http.ReadRequest makes a map of their names.
func TooManyTrailers(header []byte, namesMax int) bool {
	if bytes.Count(header, []byte(","))+bytes.Count(header, []byte("\n")) <= namesMax {
		return false // each name has a comma or a line
	}
	names, chunked, isTrailer := 0, false, false
	for line := range bytes.Lines(header) {
		name, list, _ := bytes.Cut(line, []byte(":"))
		switch {
		case line[0] == ' ' || line[0] == '\t': // it goes on
			list = line
		default:
			isTrailer = equalFold(name, "trailer")
			chunked = chunked || equalFold(name, "transfer-encoding")
			if isTrailer {
				names++
			}
		}
		if isTrailer {
			names += bytes.Count(list, []byte(","))
		}
	}
	return chunked && names > namesMax
}

// fieldsOf returns the fields of a header as they were sent.
func fieldsOf(header []byte) textproto.MIMEHeader {
	fields := textproto.NewReader(bufio.NewReader(bytes.NewReader(header)))
	_, _ = fields.ReadLine()
	h, _ := fields.ReadMIMEHeader()
	return h
}

// isPreface reports whether a request is the first line of HTTP/2's preface.
func isPreface(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.ProtoMinor == 0 && r.Method == "PRI" && r.RequestURI == "*"
}

// isHTTP2Upgrade is (*Request).isH2Upgrade.
func isHTTP2Upgrade(r *http.Request) bool {
	return r.Method == "PRI" && len(r.Header) == 0 && r.URL.Path == "*" && r.Proto == "HTTP/2.0"
}

// hostsOf returns the values of the fields Host. http.ReadRequest has removed them from the header, and
// has put the one into r.Host unless the target has a host.
func hostsOf(r *http.Request, header []byte) []string {
	if r.Host != "" && r.URL.Host == "" {
		return []string{r.Host}
	}
	return fieldsOf(header)["Host"]
}

// Refusal returns the answer to a request for which http.ReadRequest or Check has an error, or "" if
// the connection ends without an answer ((*conn).serve). tooLarge says that the header was longer than
// it may be.
func Refusal(err error, tooLarge bool) string {
	const fields = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	const bad, large = "400 Bad Request", "431 Request Header Fields Too Large"
	refused, isStatus := err.(StatusError)
	switch {
	case tooLarge:
		return "HTTP/1.1 " + large + fields + large
	case reflect.TypeOf(err) == unsupportedCoding:
		return "HTTP/1.1 501 Not Implemented" + fields + "Unsupported transfer encoding"
	case isCommonReadError(err):
		return ""
	case isStatus:
		return fmt.Sprintf("HTTP/1.1 %d %v%s%d %v", refused.Code, refused, fields, refused.Code, refused)
	}
	return "HTTP/1.1 " + bad + fields + bad
}

// unsupportedCoding is the type of http.ReadRequest's error about a transfer coding, which has no public
// name (isUnsupportedTEError).
var unsupportedCoding = func() reflect.Type {
	const sample = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: other\r\n\r\n"
	_, err := http.ReadRequest(bufio.NewReader(strings.NewReader(sample)))
	return reflect.TypeOf(err)
}()

// isCommonReadError is isCommonNetReadError.
func isCommonReadError(err error) bool {
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return true
	}
	op, ok := err.(*net.OpError)
	return err == io.EOF || ok && op.Op == "read"
}

// ExpectsContinue reports whether the client waits for "100 Continue", and whether it expects something
// else, which is answered with 417 ((*conn).serve).
func ExpectsContinue(r *http.Request) (continues, fails bool) {
	expect := semantics.First(r.Header, "Expect")
	continues = HasToken(expect, "100-continue")
	return continues && r.ProtoAtLeast(1, 1) && r.ContentLength != 0, !continues && expect != ""
}

// ExpectationFailed answers a request that expects what a server doesn't know
// ((*response).sendExpectationFailed).
func ExpectationFailed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusExpectationFailed)
}
