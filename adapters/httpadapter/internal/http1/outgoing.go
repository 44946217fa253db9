package http1

import (
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// An Outgoing is what a client adds to an *http.Request to send it.
type Outgoing struct {
	// ContentLength is the length of the body; 0 for none, below 0 for one that goes in chunks, or with
	// CONNECT as it is.
	ContentLength int64

	Trailer http.Header // the fields that follow chunks

	AskForGzip    bool // the client adds Accept-Encoding
	AskForClosing bool // the client adds Connection: close, which the request doesn't have

	ProxyAuthorization string // the field that the client adds for a proxy; "": none

	Trace *httptrace.ClientTrace // nil: none
}

// IsPlainOutgoing reports whether [Outgoing.Append] can send the header of r: the method and the
// names and values of fields and trailers are valid, and the host in its URL, and its Host if it has
// one, are plain. net/http judges others.
func IsPlainOutgoing(r *http.Request) bool {
	if r.Method != "" && !semantics.IsToken(r.Method) {
		return false
	}
	if !IsPlainHost(r.URL.Host) || r.Host != "" && !IsPlainHost(r.Host) {
		return false
	}
	for name := range r.Trailer {
		if semantics.FramesBody(http.CanonicalHeaderKey(name)) {
			return false
		}
	}
	return isValid(r.Header) && isValid(r.Trailer)
}

// IsPlainHost reports whether a host, which may have a port, is one that net/http takes as it is.
func IsPlainHost(host string) bool { return isHost([]byte(host)) }

// isValid reports whether the names and values of fields are valid.
func isValid(h http.Header) bool {
	for name, values := range h {
		if !semantics.IsToken(name) {
			return false
		}
		for _, v := range values {
			if !isValueBytes(v) {
				return false
			}
		}
	}
	return true
}

// ProxiedTarget returns the target of a request of HTTP in clear whose host is plain, for a proxy. The
// method is not CONNECT.
func ProxiedTarget(r *http.Request) string {
	if r.URL.Opaque != "" {
		return r.URL.RequestURI()
	}
	host := r.Host
	if host == "" {
		host = r.URL.Host
	}
	return r.URL.Scheme + "://" + host + r.URL.RequestURI()
}

// OutgoingTarget returns the target of a request whose host is plain.
func OutgoingTarget(r *http.Request) string {
	switch {
	case r.Method != http.MethodConnect || r.URL.Path != "":
		return r.URL.RequestURI()
	case r.URL.Opaque != "":
		return r.URL.Opaque
	case r.Host != "":
		return r.Host
	}
	return r.URL.Host
}

// IsPlainTarget reports whether a target that OutgoingTarget has returned can be sent.
func IsPlainTarget(target string) bool {
	for i := range len(target) {
		if c := target[i]; c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// HostPort returns the address to dial for a URL whose host is plain, with the scheme's port if it has
// none.
func HostPort(u *url.URL, port string) string {
	if strings.LastIndexByte(u.Host, ':') > strings.LastIndexByte(u.Host, ']') {
		return u.Host
	}
	return u.Host + ":" + port
}

// defaultUserAgent is net/http's.
const defaultUserAgent = "Go-http-client/1.1"

// Append appends the header of r, for which IsPlainOutgoing is true, with a target for which
// IsPlainTarget is true: the bytes that http.Transport sends.
func (o *Outgoing) Append(b []byte, r *http.Request, target string) []byte {
	method, host := r.Method, r.Host
	if method == "" {
		method = http.MethodGet
	}
	if host == "" {
		host = r.URL.Host
	}
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = o.line(b, "Host", host)
	if agent, ok := r.Header["User-Agent"]; !ok {
		b = o.line(b, "User-Agent", defaultUserAgent)
	} else if len(agent) > 0 && agent[0] != "" {
		b = o.line(b, "User-Agent", textproto.TrimString(agent[0]))
	}
	if r.Close && !HasToken(semantics.First(r.Header, "Connection"), "close") {
		b = o.line(b, "Connection", "close")
	}
	switch {
	case o.ContentLength < 0 && method == http.MethodConnect:
	case o.ContentLength < 0:
		b = o.line(b, "Transfer-Encoding", "chunked")
	case o.ContentLength > 0 || method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, o.ContentLength, 10)
		b = append(b, crlf...)
		if o.traces() {
			o.Trace.WroteHeaderField("Content-Length", []string{strconv.FormatInt(o.ContentLength, 10)})
		}
	}
	if len(o.Trailer) > 0 {
		b = o.trailers(b)
	}
	var most [fieldsInline]entry
	for _, f := range sorted(r.Header, most[:0]) {
		if !isSentBefore(f.name) {
			b = o.field(b, f)
		}
	}
	if o.AskForGzip {
		b = o.line(b, "Accept-Encoding", "gzip")
	}
	if o.AskForClosing {
		b = o.line(b, "Connection", "close")
	}
	if o.ProxyAuthorization != "" {
		b = o.line(b, "Proxy-Authorization", o.ProxyAuthorization)
	}
	return append(b, crlf...)
}

// isSentBefore reports whether Append takes a field from elsewhere than the header, or sends it first.
func isSentBefore(name string) bool {
	return name == "Host" || name == "User-Agent" || semantics.FramesBody(name)
}

// TrailerNames returns the names of trailers in the order in which net/http lists them.
func TrailerNames(trailer http.Header) (names []string) {
	for name := range trailer {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	slices.Sort(names)
	return names
}

// trailers appends the field that names the trailers.
func (o *Outgoing) trailers(b []byte) []byte {
	names := TrailerNames(o.Trailer)
	b = append(b, "Trailer: "...)
	b = append(b, strings.Join(names, ",")...)
	b = append(b, crlf...)
	if o.traces() {
		o.Trace.WroteHeaderField("Trailer", names)
	}
	return b
}

func (o *Outgoing) traces() bool { return o.Trace != nil && o.Trace.WroteHeaderField != nil }

// line appends a field with one value.
func (o *Outgoing) line(b []byte, name, value string) []byte {
	b = appendLine(b, name, value)
	if o.traces() {
		o.Trace.WroteHeaderField(name, []string{value})
	}
	return b
}

// field appends a field of the header.
func (o *Outgoing) field(b []byte, f entry) []byte {
	b = appendField(b, f)
	if o.traces() {
		var values []string
		for _, v := range f.values {
			values = append(values, textproto.TrimString(v))
		}
		o.Trace.WroteHeaderField(f.name, values)
	}
	return b
}

// RequiresHTTP1 reports whether net/http sends a request over HTTP/1.1 even if it could speak HTTP/2.
func RequiresHTTP1(r *http.Request) bool {
	return len(r.Header["Upgrade"]) > 0 && equalFold(r.Header["Upgrade"][0], "websocket") &&
		HasToken(semantics.First(r.Header, "Connection"), "upgrade")
}
