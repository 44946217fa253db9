package http1

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// A kind is a field of the answer that the server handles itself.
type kind uint8

const (
	connection kind = iota
	contentLength
	contentType
	transferEncoding
	contentEncoding
	date
	trailer // Trailer, or a name that starts with [http.TrailerPrefix]
	ordinary

	// droppable is how many kinds, from the first one, the server may drop. They are in the order
	// of their names.
	droppable = transferEncoding + 1
)

// kindOf returns the kind of a field, given its canonical name.
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
		return trailer
	}
	return ordinary
}

// kinds is a set of kinds.
type kinds uint8

func (ks *kinds) set(k kind)     { *ks |= 1 << k }
func (ks kinds) has(k kind) bool { return ks&(1<<k) != 0 }

// A snapshot has what later decisions need of the header at WriteHeader. The handler may change it
// afterwards.
type snapshot struct {
	values   *fieldValues // nil: the header has none of these fields
	lines    [droppable]span
	present  kinds
	encoded  bool // Content-Encoding has a value
	upgrades bool // Connection: Upgrade, and Upgrade
}

// fieldValues holds values that few answers have.
type fieldValues struct {
	connection string   // the first value of Connection
	coding     string   // the first value of Transfer-Encoding
	trailers   []string // the canonical names that Trailer declares
}

func (s *snapshot) declared() fieldValues {
	if s.values == nil {
		return fieldValues{}
	}
	return *s.values
}

func (s *snapshot) declare() *fieldValues {
	if s.values == nil {
		s.values = new(fieldValues)
	}
	return s.values
}

// span says where a field's lines are among the bytes for the connection.
type span struct{ start, end uint32 }

// has reports whether the header has a field of this kind, even if it has no values.
func (s *snapshot) has(k kind) bool { return s.present.has(k) }

// take appends the lines of h to b, in the order of their names.
func (s *snapshot) take(b []byte, h http.Header) []byte {
	var most [fieldsInline]entry
	for _, f := range sorted(h, most[:0]) {
		start := len(b)
		b = appendField(b, f)
		if k := kindOf(f.name); k != ordinary {
			s.note(k, f, span{uint32(start), uint32(len(b))})
		}
	}
	if s.has(connection) {
		s.upgrades = isUpgrade(h)
	}
	return b
}

// note remembers a field that the server handles itself.
func (s *snapshot) note(k kind, f entry, at span) {
	value := ""
	if len(f.values) > 0 {
		value = f.values[0]
	}
	switch k {
	case connection:
		s.declare().connection = value
	case transferEncoding:
		s.declare().coding = value
	case contentEncoding:
		s.encoded = value != ""
	case trailer:
		if f.name == "Trailer" {
			if len(f.values) == 0 {
				return
			}
			s.declareTrailers(f.values)
		}
	}
	s.present.set(k)
	if k < droppable {
		s.lines[k] = at
	}
}

// dropFrom removes the lines of some kinds from b, to which take appended them.
func (s *snapshot) dropFrom(b []byte, drop kinds) []byte {
	for k := int(droppable) - 1; k >= 0; k-- { // from the last: earlier positions stay valid
		if at := s.lines[k]; drop.has(kind(k)) && at.end > at.start {
			b = append(b[:at.start], b[at.end:]...)
		}
	}
	return b
}

// appendInformation appends the lines of a 1xx answer, which has no body (RFC 8297).
func appendInformation(b []byte, h http.Header) []byte {
	var most [fieldsInline]entry
	for _, f := range sorted(h, most[:0]) {
		if k := kindOf(f.name); k != contentLength && k != transferEncoding {
			b = appendField(b, f)
		}
	}
	return b
}

// entry is a field of a header.
type entry struct {
	name   string
	values []string
}

// fieldsInline is the number of fields that are sorted without an allocation.
const fieldsInline = 12

// sorted appends the fields of h to fields, which is empty, in the order of their names.
func sorted(h http.Header, fields []entry) []entry {
	for name, values := range h {
		fields = append(fields, entry{name, values})
	}
	if len(fields) > 1 {
		slices.SortFunc(fields, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	}
	return fields
}

// appendField appends a line for each value. Like net/http, it leaves out a name that is not a
// token, and replaces line breaks in a value with spaces.
func appendField(b []byte, f entry) []byte {
	if !semantics.IsToken(f.name) {
		return b
	}
	for _, v := range f.values {
		b = appendLine(b, f.name, textproto.TrimString(withoutBreaks(v)))
	}
	return b
}

func appendLine(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, crlf...)
}

// withoutBreaks replaces the line breaks in a value with spaces.
func withoutBreaks(v string) string {
	if strings.IndexByte(v, '\n') < 0 && strings.IndexByte(v, '\r') < 0 {
		return v
	}
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
}

// isUpgrade reports whether a header with status 101 changes the protocol.
func isUpgrade(h http.Header) bool {
	return semantics.First(h, "Upgrade") != "" && semantics.ListsToken(h["Connection"], "upgrade")
}

// HasToken reports whether a list contains a token, which is in lower case, ignoring case. Spaces also
// separate tokens: net/http reads the Connection field of an answer so.
func HasToken(list, token string) bool {
	for t := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if equalFold(t, token) {
			return true
		}
	}
	return false
}

// declareTrailers notes the names in the values of Trailer that are allowed as trailers.
func (s *snapshot) declareTrailers(values []string) {
	to := s.declare()
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			if semantics.MayBeTrailer(name) {
				to.trailers = append(to.trailers, name)
			}
		}
	}
}

// appendTrailers appends the declared trailers, and the fields with http.TrailerPrefix.
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
	for _, name := range w.declared().trailers {
		add(name, w.header[name])
	}
	for _, f := range sorted(t, nil) {
		w.out = appendField(w.out, f)
	}
}
