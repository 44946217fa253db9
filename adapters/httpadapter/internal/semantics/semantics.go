package semantics

import (
	"net/http"
	"slices"
	"strings"
)

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var (
	// TokenByte says which bytes a token may have (RFC 9110, section 5.6.2). Methods and the names of
	// fields are tokens.
	TokenByte = bytesOf("!#$%&'*+-.^_`|~" + alphanumeric)

	// PathByte has the bytes that package url does not escape in a path (shouldEscape): for a path of
	// these alone url.URL's Path is the path, and RawPath is empty.
	PathByte = bytesOf("/-._~$&+,=:;@" + alphanumeric)

	// HostByte has the bytes of plain host names.
	HostByte = bytesOf("-._" + alphanumeric)

	// HostValueByte has the bytes that a Host field may have (httpguts.ValidHostHeader).
	HostValueByte = bytesOf("!$%&()*+,-.:;=['_]~" + alphanumeric)
)

// bytesOf returns the set of the bytes in s.
func bytesOf(s string) (t [256]bool) {
	for i := range len(s) {
		t[s[i]] = true
	}
	return t
}

// ListsToken reports whether any of the comma-separated lists in values has a token, ignoring case.
func ListsToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// IsToken reports whether s is a token.
func IsToken(s string) bool { return s != "" && HasOnly(s, &TokenByte) }

// HasOnly reports whether all bytes of s are in a set.
func HasOnly(s string, set *[256]bool) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// First returns the first value of a field. The name must be canonical.
func First(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// AddValue adds a value to a header. first is memory for the first value of a key: one element with the
// capacity of one, since an append must not reach what follows.
func AddValue(h http.Header, key, value string, first []string) {
	if have, ok := h[key]; ok {
		h[key] = append(have, value)
		return
	}
	first[0] = value
	h[key] = first
}

// SniffBytes is how many bytes [http.DetectContentType] looks at.
const SniffBytes = 512

// BodyAllowed reports whether an answer with this status has a body (RFC 9110, section 6.4.1).
func BodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// ConnFields are fields about one connection, which HTTP/2 doesn't have (RFC 9113, section 8.2.2).
var ConnFields = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"}

// FramesBody reports whether a field says how the body ends. net/http takes these out of the header, and
// doesn't let them be declared as trailers (fixTrailer). The name must be canonical.
func FramesBody(name string) bool {
	return name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer"
}

// MayBeTrailer reports whether a field may be sent after the body. The name must be canonical.
func MayBeTrailer(name string) bool {
	return name != "" && !strings.HasPrefix(name, "If-") && !slices.Contains(neverTrailers, name)
}

// neverTrailers are fields that frame or route a message, or are needed before its body (RFC 9110,
// section 6.5.1).
var neverTrailers = []string{
	"Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
	"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding",
	"Www-Authenticate",
}
