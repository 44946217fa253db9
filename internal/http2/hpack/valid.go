package hpack

// isNameByte has the characters of a token (RFC 9110, section 5.6.2) without upper case, of which
// names consist (RFC 9113, section 8.2.1).
var isNameByte = func() (is [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz" {
		is[c] = true
	}
	return is
}()

// validName reports whether a name that has no colon at its beginning may be that of a field.
func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isNameByte[s[i]] {
			return false
		}
	}
	return s != ""
}

// isBadValueByte has the bytes that no value has: control characters except the tab, as net/http has
// it (RFC 9110, section 5.5).
var isBadValueByte = func() (is [256]bool) {
	for c := range 0x20 {
		is[c] = c != '\t'
	}
	is[0x7f] = true
	return is
}()

// ValidValue reports whether a value may be that of a field. White space at its ends is allowed, as
// with net/http.
func ValidValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if isBadValueByte[s[i]] {
			return false
		}
	}
	return true
}
