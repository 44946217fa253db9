package hpack

// isNameByte has the characters of names (RFC 9113, section 8.2.1): those of a token (RFC 9110, section
// 5.6.2) without upper case.
var isNameByte = func() (is [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz" {
		is[c] = true
	}
	return is
}()

// validName reports whether a name without a colon at its beginning is valid.
func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isNameByte[s[i]] {
			return false
		}
	}
	return s != ""
}

// isBadValueByte has the bytes that no value may have: control characters except the tab, as in net/http
// (RFC 9110, section 5.5).
var isBadValueByte = func() (is [256]bool) {
	for c := range 0x20 {
		is[c] = c != '\t'
	}
	is[0x7f] = true
	return is
}()

// ValidValue reports whether a field may have a value. White space at its ends is allowed, as in
// net/http.
func ValidValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if isBadValueByte[s[i]] {
			return false
		}
	}
	return true
}
