package http2

import (
	"strconv"
	"strings"

	"github.com/percore/percore/internal/http2/hpack"
)

// A Request is the header of a request. Package h2 converts it to its own Request, which has the same
// fields and explains them. Unless BadTarget is set, they follow the rules of RFC 9113, section 8.3.1,
// that net/http checks before it parses the path, and Method is a token. A ContentLength that is not a
// number is 0, as in net/http.
type Request struct {
	Method, Scheme, Authority, Path string
	Protocol                        string

	HasAuthority  bool
	BadTarget     bool
	ContentLength int64
	Problem       Problem
	Fields        []hpack.Field // a client passes them to Begin
	End           bool
}

// wishes are what the fields of a request say about its priority.
type wishes struct {
	priority  string // the field, if asks is set
	asks      bool
	forwarded bool // by a proxy, which says so
}

// A Problem is something wrong with a request that net/http answers itself, or that a handler sees.
type Problem uint8

// The problems of requests. A request has the first one that applies.
const (
	Nothing         Problem = iota
	TooLarge                // the fields exceed the limits, and some are left out: 431
	ConnectionField         // a field that RFC 9113, section 8.2.2, forbids: 400
	BadTE                   // te with anything but "trailers": 400
	BadLength               // a declared length, and no body, or two lengths. net/http of Go 1.26 lets it pass, Go 1.27 resets the stream
)

// set is pseudo of a server.
func (f *Frame) set(field *hpack.Field) bool {
	class := field.Name.Class()
	var at *string
	r := &f.request
	switch class {
	case hpack.Method:
		at = &r.Method
	case hpack.Scheme:
		at = &r.Scheme
	case hpack.Authority:
		at, r.HasAuthority = &r.Authority, true
	case hpack.Path:
		at = &r.Path
	case hpack.Protocol:
		at = &r.Protocol
	default:
		return false
	}
	bit := uint8(1) << (class - hpack.Method)
	if f.seen&bit != 0 {
		return false
	}
	f.seen |= bit
	*at = field.Value
	return true
}

// judge returns an error of the request's target, or notes it if AnyTarget allows that.
func (cfg *Config) judge(r *Request, v verdict) verdict {
	if v.scope != fine && cfg.AnyTarget {
		r.BadTarget = true
		return verdict{}
	}
	return v
}

// checkTarget returns an error if the pseudo-header fields of a request are wrong.
func (f *Frame) checkTarget(extendedConnect bool) verdict {
	r := &f.request
	isConnect := r.Method == "CONNECT"
	hasProtocol := f.seen&(1<<(hpack.Protocol-hpack.Method)) != 0
	switch {
	case hasProtocol && (!extendedConnect || !isConnect || r.Protocol == "" || r.Path == "" || r.Scheme == "" || r.Authority == ""):
		return streamError(ProtocolError, "extended CONNECT is not allowed, or incomplete")
	case isConnect && !hasProtocol && (r.Path != "" || r.Scheme != "" || r.Authority == ""):
		return streamError(ProtocolError, "CONNECT with a path or scheme, or without authority")
	case !isConnect && (r.Path == "" || r.Scheme != "http" && r.Scheme != "https"):
		return streamError(ProtocolError, "a request without path, or with another scheme than http and https")
	case !isToken(r.Method):
		return streamError(ProtocolError, "the method is no token")
	}
	return verdict{}
}

// checkUserInfo returns an error if the authority, or the host in its place, has user information,
// which RFC 9113 forbids.
func (r *Request) checkUserInfo() verdict {
	if strings.IndexByte(r.Authority, '@') >= 0 && (r.Scheme == "http" || r.Scheme == "https") {
		return streamError(ProtocolError, "the authority has user information")
	}
	return verdict{}
}

// checkFields stores what matters of the other fields. A field "trailer" may declare as many trailers as
// a list may have fields, since a handler gets an entry of a map for each.
func (f *Frame) checkFields(fieldsMax int) {
	te, trailers, host, length := 0, 0, "", ""
	r := &f.request
	r.ContentLength, f.wishes = -1, wishes{}
	for i := range r.Fields {
		field := &r.Fields[i]
		switch field.Name.Class() {
		case hpack.Regular:
		case hpack.ContentLength:
			if r.ContentLength >= 0 && field.Value != length {
				r.note(BadLength)
			}
			length = field.Value
			r.declare(field.Value)
		case hpack.Connection:
			r.note(ConnectionField)
		case hpack.TE:
			if te++; te > 1 || field.Value != "trailers" && field.Value != "" {
				r.note(BadTE)
			}
		case hpack.Trailer:
			trailers += strings.Count(field.Value, ",") + 1
		case hpack.Host:
			if host == "" {
				host = field.Value
			}
		case hpack.Priority:
			f.wishes.priority, f.wishes.asks = field.Value, true
		case hpack.Forwarded:
			f.wishes.forwarded = true
		}
	}
	if r.Authority == "" {
		r.Authority = host
	}
	if r.End && r.ContentLength > 0 {
		r.note(BadLength)
	}
	if f.list.Truncated || trailers > fieldsMax {
		r.Problem = TooLarge
	}
}

// note keeps the problem that comes first in the list of problems.
func (r *Request) note(p Problem) {
	if r.Problem == Nothing || p < r.Problem {
		r.Problem = p
	}
}

func (r *Request) declare(v string) {
	if r.ContentLength >= 0 {
		return
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		n = 0
	}
	r.ContentLength = int64(n)
}

// Malformed reports whether the request breaks a rule of RFC 9113, so that its stream is to be reset
// with ProtocolError. An answer may be sent before that (section 8.1.1).
func (p Problem) Malformed() bool { return p == ConnectionField || p == BadTE || p == BadLength }

// Status returns the status that an HTTP server answers with, or 0 if it handles the request.
func (p Problem) Status() int {
	switch p {
	case TooLarge:
		return 431
	case ConnectionField, BadTE:
		return 400
	}
	return 0
}
