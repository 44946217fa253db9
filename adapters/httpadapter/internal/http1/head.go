package http1

import (
	"bytes"
	"encoding/binary"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// A Verdict says what [Scan] found at the start of some bytes.
type Verdict uint8

const (
	// Incomplete bytes are the beginning of a header that [Scan] may take when more bytes arrive.
	Incomplete Verdict = iota

	// Plain bytes begin with a complete header in the subset.
	Plain

	// The others name the first thing that is outside the subset. net/http decides what to do with
	// the request. Scan returns all but Ended.

	TooLong   // the header is longer than the limit
	LineEnd   // a line that does not end in CRLF, or an empty line before the request
	Method    // not a token, or CONNECT, PRI
	Target    // not a path: absolute, authority or asterisk form, control characters; none for package url
	Version   // neither HTTP/1.1 nor HTTP/1.0
	FieldName // not a token, or followed by a space; a folded line starts like this, too
	FieldByte // a control character in a value
	Host      // missing, repeated, or not a plain host and port
	Length    // Content-Length twice, or not a plain number
	Coding    // Transfer-Encoding besides one "chunked", with a length, or over HTTP/1.0; Trailer
	Option    // Connection with anything but one keep-alive or close
	Expect    // Expect with anything but one 100-continue
	Upgrade   // Upgrade, HTTP2-Settings
	Fields    // more fields than the subset takes
	Ended     // the stream has ended, or failed, in the middle of a request

	Verdicts // the number of verdicts
)

var verdictNames = [Verdicts]string{
	"incomplete", "plain", "too long", "line end", "method", "target", "version", "field name",
	"field byte", "host", "length", "coding", "connection option", "expect", "upgrade",
	"number of fields", "ended",
}

// String returns the verdict in words.
func (v Verdict) String() string { return verdictNames[v] }

// fieldsMax is the number of fields that the subset takes. Browsers send up to twenty. It bounds the
// array of a [Head], fits the bits of Head.odd, and is below net/http's own limit,
// http.DefaultMaxHeaderValueCount (Go 1.27).
const fieldsMax = 48

// field is a line of the header: its name and value, as offsets into the head.
type field struct{ name, nameEnd, value, valueEnd uint32 }

// A Head says where the parts of a header are that [Scan] took. It refers to no memory, and is
// valid for the scanned bytes and for any copy of them.
type Head struct {
	Bytes         int   // length of the header, including the empty line at its end
	ContentLength int64 // of the body after it, in bytes; 0: none; -1: it comes in chunks
	Close         bool  // the client asks that the connection be closed after the answer
	Expects       bool  // the client may wait for "100 Continue"
	Is10          bool  // the version is HTTP/1.0
	Fields        int   // how many fields there are, including Host

	method, target int  // where they end; the target begins one byte after the method's end
	query          int  // where the first "?" of the target is; -1 if it has no query
	escaped        bool // the target has a byte that package url treats specially
	hasLength      bool
	pragma         bool   // there is a Pragma
	keepAlive      bool   // the client asks that the connection be kept
	host, coding   int    // the indexes of Host and Transfer-Encoding; -1: there is none
	odd            uint64 // a bit for each field whose name is not in its canonical form
	fields         [fieldsMax]field
}

// Scan looks for a complete header at the start of p, of at most limitBytes. h is valid only if it
// returns Plain.
//
// With http.Server.MaxHeaderBytes or http.DefaultMaxHeaderBytes as the limit, Scan takes no header that
// net/http answers with 431: net/http's own limit is 4,096 bytes higher. A server with
// MaxHeaderValueCount (Go 1.27) must compare h.Fields with it as well.
//
// Each call scans from the start. Only a line feed can complete a header, so a caller that receives a
// header in small pieces need call Scan only for those with a line feed, and when limitBytes have come.
func (h *Head) Scan(p []byte, limitBytes int) Verdict {
	if len(p) > limitBytes {
		p = p[:limitBytes]
	}
	v := h.scan(p)
	if v == Incomplete && len(p) == limitBytes {
		return TooLong
	}
	return v
}

// clear forgets an earlier header.
func (h *Head) clear() {
	h.ContentLength, h.hasLength, h.Fields, h.odd = 0, false, 0, 0
	h.Close, h.keepAlive, h.Expects, h.pragma = false, false, false, false
	h.host, h.coding = -1, -1
}

func (h *Head) scan(p []byte) Verdict {
	h.clear()
	pos, v := h.scanRequestLine(p)
	if v == Plain {
		v = h.scanFields(p, pos)
	}
	if v != Plain {
		return v
	}
	return h.end()
}

// scanFields takes the lines from pos on, up to the empty one.
func (h *Head) scanFields(p []byte, pos int) Verdict {
	for {
		end := bytes.IndexByte(p[pos:], '\n')
		switch {
		case end < 0:
			return Incomplete
		case end == 0 || p[pos+end-1] != '\r':
			return LineEnd
		case end == 1:
			h.Bytes = pos + 2
			return Plain
		}
		if v := h.scanField(p, pos, pos+end-1); v != Plain {
			return v
		}
		pos += end + 1
	}
}

func (h *Head) end() Verdict {
	switch {
	case h.host < 0:
		return Host
	case h.coding >= 0 && (h.hasLength || h.Is10):
		return Coding
	}
	h.Close = h.Close || h.Is10 && !h.keepAlive // shouldClose
	return Plain
}

// scanRequestLine takes "GET /path?query HTTP/1.1" CR LF, or the same over HTTP/1.0, and returns where
// the next line begins.
func (h *Head) scanRequestLine(p []byte) (next int, v Verdict) {
	i := 0
	for i < len(p) && semantics.TokenByte[p[i]] {
		i++
	}
	if i == len(p) {
		return 0, Incomplete
	}
	h.method = i
	if p[i] == '\r' || p[i] == '\n' {
		return 0, LineEnd
	}
	if i == 0 || p[i] != ' ' || isOddMethod(p[:i]) {
		return 0, Method
	}
	i++
	if i < len(p) && p[i] != '/' {
		return 0, Target
	}
	h.query, h.escaped = -1, false
	for ; i < len(p) && p[i] > ' ' && p[i] != 0x7f; i++ {
		switch {
		case h.query >= 0: // leave a query as it is
		case p[i] == '?':
			h.query = i
		case !semantics.PathByte[p[i]]:
			h.escaped = true
		}
	}
	if i == len(p) {
		return 0, Incomplete
	}
	h.target = i
	if p[i] != ' ' || h.escaped && !hasGoodEscapes(h.path(p)) {
		return 0, Target
	}
	if h.query == i-1 {
		h.escaped = true // "?" alone: url.URL.ForceQuery
	}
	const rest, minor = " HTTP/1.1\r\n", len(" HTTP/1.")
	for j := 0; j < len(rest); j++ {
		if i+j == len(p) {
			return 0, Incomplete
		}
		if j == minor {
			h.Is10 = p[i+j] == '0'
		}
		if p[i+j] != rest[j] && !(j == minor && h.Is10) {
			if rest[j] == '\r' || rest[j] == '\n' {
				return 0, LineEnd
			}
			return 0, Version
		}
	}
	return i + len(rest), Plain
}

// path returns the target up to its query.
func (h *Head) path(p []byte) []byte {
	if h.query >= 0 {
		return p[h.method+1 : h.query]
	}
	return p[h.method+1 : h.target]
}

// hasGoodEscapes reports whether each percent sign in a path begins an escape. net/http refuses any
// other as soon as it has the first line.
func hasGoodEscapes(path []byte) bool {
	for {
		i := bytes.IndexByte(path, '%')
		if i < 0 {
			return true
		}
		if path = path[i+1:]; len(path) < 2 || !isHex(path[0]) || !isHex(path[1]) {
			return false
		}
	}
}

// isOddMethod reports whether a method changes the meaning of the target.
func isOddMethod(m []byte) bool { return string(m) == "CONNECT" || string(m) == "PRI" }

// scanField takes the line from start to end, without its CRLF.
func (h *Head) scanField(p []byte, start, end int) Verdict {
	i, at, changed := start, wordStart, byte(0)
	for ; i < end; i++ {
		c := p[i]
		written := canonical[at][c]
		if written == 0 {
			break
		}
		changed |= c ^ written
		at = wordRest
		if c == '-' {
			at = wordStart
		}
	}
	if i == start || i == end || p[i] != ':' {
		return FieldName
	}
	if h.Fields == fieldsMax {
		return Fields
	}
	if changed != 0 {
		h.odd |= 1 << h.Fields
	}
	f := &h.fields[h.Fields]
	f.name, f.nameEnd = uint32(start), uint32(i)
	i++
	for i < end && (p[i] == ' ' || p[i] == '\t') {
		i++
	}
	for end > i && (p[end-1] == ' ' || p[end-1] == '\t') {
		end--
	}
	f.value, f.valueEnd = uint32(i), uint32(end)
	if !isValue(p[i:end]) {
		return FieldByte
	}
	h.Fields++
	return h.heed(p[f.name:f.nameEnd], p[i:end])
}

// isValue reports whether a field's value has only visible bytes, spaces, tabs, and bytes from 0x80 on.
// It checks eight bytes at a time, and those with a tab or worse one by one.
func isValue(v []byte) bool {
	for len(v) >= 8 {
		x := binary.LittleEndian.Uint64(v)
		del := x ^ 0x7f*ones
		control := (x-' '*ones)&^x | (del-ones)&^del // the high bits of bytes below a space, and of DEL
		if control&(0x80*ones) != 0 && !isValueBytes(v[:8]) {
			return false
		}
		v = v[8:]
	}
	return isValueBytes(v)
}

// ones has 1 in each of its bytes.
const ones = 0x0101010101010101

func isValueBytes[T []byte | string](v T) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// heed handles the fields that decide how a message is framed, where it ends, or where it goes.
func (h *Head) heed(name, value []byte) Verdict {
	switch len(name) {
	case len("Host"):
		if equalFold(name, "host") {
			if h.host >= 0 || !isHost(value) {
				return Host
			}
			h.host = h.Fields - 1
		}
	case len("Expect"): // and Pragma
		if equalFold(name, "expect") {
			if h.Expects || !equalFold(value, "100-continue") {
				return Expect
			}
			h.Expects = true
		}
		h.pragma = h.pragma || equalFold(name, "pragma")
	case len("Upgrade"): // and Trailer
		if equalFold(name, "upgrade") {
			return Upgrade
		}
		if equalFold(name, "trailer") {
			return Coding
		}
	case len("Connection"):
		if equalFold(name, "connection") {
			return h.heedConnection(value)
		}
	case len("HTTP2-Settings"): // and Content-Length
		if equalFold(name, "http2-settings") {
			return Upgrade
		}
		if equalFold(name, "content-length") {
			return h.heedLength(value)
		}
	case len("Transfer-Encoding"):
		if equalFold(name, "transfer-encoding") {
			if h.coding >= 0 || !equalFold(value, "chunked") {
				return Coding
			}
			h.coding, h.ContentLength = h.Fields-1, -1
		}
	}
	return Plain
}

func (h *Head) heedConnection(value []byte) Verdict {
	switch {
	case equalFold(value, "close"):
		h.Close = true
	case equalFold(value, "keep-alive"):
		h.keepAlive = true
	default:
		return Option
	}
	return Plain
}

// lengthDigitsMax is how many digits a Content-Length may have here: 10^15 - 1 fits in an int64 and
// is longer than any body.
const lengthDigitsMax = 15

func (h *Head) heedLength(value []byte) Verdict {
	if h.hasLength || len(value) == 0 || len(value) > lengthDigitsMax {
		return Length
	}
	n := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return Length
		}
		n = 10*n + int64(c-'0')
	}
	h.hasLength, h.ContentLength = true, n
	return Plain
}

// isHost reports whether a value is a host name or an IPv4 address, with or without a port, or an
// IPv6 address in brackets. A name has letters, digits, dots, hyphens and underscores; a port is
// one colon and digits. Other values that net/http accepts go to net/http.
func isHost(v []byte) bool {
	i := 0
	if len(v) > 0 && v[0] == '[' {
		for i = 1; i < len(v) && (v[i] == ':' || v[i] == '.' || isHex(v[i])); i++ {
		}
		if i == 1 || i == len(v) || v[i] != ']' {
			return false
		}
		i++
	} else {
		for i < len(v) && semantics.HostByte[v[i]] {
			i++
		}
	}
	if i == 0 {
		return false
	}
	if i == len(v) {
		return true
	}
	if v[i] != ':' || i+1 == len(v) {
		return false
	}
	for _, c := range v[i+1:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// equalFold reports whether b equals the lower-case string s, ignoring the case of ASCII letters.
func equalFold[T []byte | string](b T, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range len(b) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != s[i] {
			return false
		}
	}
	return true
}

// canonical maps the bytes of a field's name to their canonical form, at the start of a word
// and after it. Bytes that a name can't have map to 0.
var canonical = func() (t [2][256]byte) {
	for c, ok := range semantics.TokenByte {
		if !ok {
			continue
		}
		t[wordStart][c], t[wordRest][c] = byte(c), byte(c)
		if 'a' <= c && c <= 'z' {
			t[wordStart][c] -= 'a' - 'A'
		}
		if 'A' <= c && c <= 'Z' {
			t[wordRest][c] += 'a' - 'A'
		}
	}
	return t
}()

// Places in a field's name.
const (
	wordStart = iota // the first byte, and any byte after a hyphen
	wordRest
)
