package http1

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// A kind is a field of the answer that the server has a say in.
type kind uint8

const (
	ordinary kind = iota // the handler's alone
	connection
	contentEncoding
	contentLength
	contentType
	date
	trailer
	trailerPrefix // a name that begins with [http.TrailerPrefix]
	transferEncoding
	kindCount
)

// kindOf returns the kind of a field by its canonical name.
func kindOf(name string) kind {
	switch name {
	case "Connection":
		return connection
	case "Content-Encoding":
		return contentEncoding
	case "Content-Length":
		return contentLength
	case "Content-Type":
		return contentType
	case "Date":
		return date
	case "Trailer":
		return trailer
	case "Transfer-Encoding":
		return transferEncoding
	}
	if strings.HasPrefix(name, http.TrailerPrefix) {
		return trailerPrefix
	}
	return ordinary
}

// kinds is a set of kinds.
type kinds uint16

func (ks *kinds) set(k kind)     { *ks |= 1 << k }
func (ks kinds) has(k kind) bool { return ks&(1<<k) != 0 }

// lines is a header as it was at one moment: its lines in the order of their names, and the parts that
// a decision may take out or needs to know. A handler may change the header afterwards, so it is either
// this or a copy of the map.
type lines struct {
	text     []byte
	spans    []span
	spanned  [4]span // memory for spans, enough for most answers
	present  kinds
	values   [kindCount]string // the first value of each
	trailer  []string          // all values of Trailer
	upgrades bool              // Connection: Upgrade, and Upgrade
}

// span is a part of the text that is of one kind.
type span struct {
	kind       kind
	start, end int
}

// take takes h down.
func (l *lines) take(h http.Header) {
	var most [16]string
	names := most[:0]
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	l.spans = l.spanned[:0]
	for _, name := range names {
		l.add(name, h[name])
	}
	l.upgrades = first(h, "Upgrade") != "" && slices.ContainsFunc(h["Connection"], func(v string) bool { return listHas(v, "upgrade") })
}

// add adds a field.
func (l *lines) add(name string, values []string) {
	k := kindOf(name)
	if k != ordinary {
		l.present.set(k)
		if len(values) > 0 {
			l.values[k] = values[0]
		}
	}
	if k == trailer {
		l.trailer = values
	}
	start := len(l.text)
	l.text = appendField(l.text, name, values)
	if k != ordinary {
		l.spans = append(l.spans, span{k, start, len(l.text)})
	}
}

// has reports whether the header has a field of this kind, be it without values.
func (l *lines) has(k kind) bool { return l.present.has(k) }

// value returns the first value of the field of this kind.
func (l *lines) value(k kind) string { return l.values[k] }

// appendTo appends the lines without those of the kinds to drop.
func (l *lines) appendTo(b []byte, drop kinds) []byte {
	pos := 0
	for _, s := range l.spans {
		if drop.has(s.kind) {
			b = append(b, l.text[pos:s.start]...)
			pos = s.end
		}
	}
	return append(b, l.text[pos:]...)
}

// appendField appends a line for each value. A name that is no token is left out, as net/http leaves
// it out; line breaks in a value become spaces.
func appendField(b []byte, name string, values []string) []byte {
	if !isTokenString(name) {
		return b
	}
	for _, v := range values {
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, textproto.TrimString(withoutBreaks(v))...)
		b = append(b, crlf...)
	}
	return b
}

// withoutBreaks makes spaces of the line breaks in a value.
func withoutBreaks(v string) string {
	if !strings.ContainsAny(v, "\r\n") {
		return v
	}
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
}

func isTokenString(s string) bool {
	for i := range len(s) {
		if !isToken[s[i]] {
			return false
		}
	}
	return s != ""
}

// first returns the first value of a field whose name is canonical.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// listHas reports whether a list of tokens separated by commas has this one, in any case.
func listHas(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if equalFold(textproto.TrimString(t), token) {
			return true
		}
	}
	return false
}

// hasToken is listHas for lists that may also be separated by white space, as net/http reads the
// Connection field of an answer.
func hasToken(list, token string) bool {
	for t := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if equalFold(t, token) {
			return true
		}
	}
	return false
}

// declareTrailers notes the names in a value of Trailer that may be trailers.
func (w *Response) declareTrailers(v string) {
	for name := range strings.SplitSeq(v, ",") {
		name = http.CanonicalHeaderKey(textproto.TrimString(name))
		if name != "" && !strings.HasPrefix(name, "If-") && !slices.Contains(neverTrailers, name) {
			w.trailers = append(w.trailers, name)
		}
	}
}

// neverTrailers are the fields that frame or route a message, or are needed before its body (RFC 9110,
// section 6.5.1).
var neverTrailers = []string{
	"Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
	"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding",
	"Www-Authenticate",
}

// appendTrailers appends the trailers: those declared, and those whose names have the prefix.
func (w *Response) appendTrailers() {
	var t http.Header
	add := func(name string, values []string) {
		if t == nil {
			t = make(http.Header)
		}
		t[name] = append(t[name], values...)
	}
	for name, values := range w.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(rest, values)
		}
	}
	for _, name := range w.trailers {
		add(name, w.header[name])
	}
	if t == nil {
		return
	}
	var sorted lines
	sorted.take(t)
	w.out = sorted.appendTo(w.out, 0)
}
