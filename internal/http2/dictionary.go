package http2

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// eachMember calls do for each member of a dictionary (RFC 9651, section 4.2.2), with its value as it
// is written. It reports whether s is a dictionary, and may have called do before it knows. As for
// net/http, members may follow each other without a comma.
func eachMember(s string, do func(key, value string)) (ok bool) {
	for s != "" {
		var key, value string
		if key, s = cutKey(s); key == "" {
			return false
		}
		value = "?1"
		if rest, has := strings.CutPrefix(s, "="); has {
			if value, s = cutValue(rest); value == "" {
				return false
			}
		}
		if s, ok = skipParameters(s); !ok {
			return false
		}
		do(key, value)
		if s = skipSpace(s); s == "" {
			break
		}
		if s = skipSpace(strings.TrimPrefix(s, ",")); s == "" {
			return false
		}
	}
	return true
}

// cutKey cuts the key off that s begins with. It is empty if there is none, and so are the results of
// the functions below.
func cutKey(s string) (key, rest string) {
	n := 0
	for n < len(s) && (isLower(s[n]) || s[n] == '*' || n > 0 && (isDigit(s[n]) || strings.IndexByte("_-.", s[n]) >= 0)) {
		n++
	}
	return s[:n], s[n:]
}

// cutValue cuts an item without its parameters, or an inner list.
func cutValue(s string) (value, rest string) {
	rest, inList := strings.CutPrefix(s, "(")
	if !inList {
		return cutItem(s)
	}
	for {
		rest = skipSpace(rest)
		if end, ok := strings.CutPrefix(rest, ")"); ok {
			return s[:len(s)-len(end)], end
		}
		item, behind := cutItem(rest)
		behind, ok := skipParameters(behind)
		if item == "" || !ok || behind == "" || behind[0] != ')' && behind[0] != ' ' {
			return "", s
		}
		rest = behind
	}
}

func skipParameters(s string) (rest string, ok bool) {
	for strings.HasPrefix(s, ";") {
		var key, value string
		if key, s = cutKey(skipSpace(s[1:])); key == "" {
			return s, false
		}
		if rest, has := strings.CutPrefix(s, "="); has {
			if value, s = cutItem(rest); value == "" {
				return s, false
			}
		}
	}
	return s, true
}

func skipSpace(s string) string { return strings.TrimLeft(s, " \t") }

// cutItem cuts an item without its parameters.
func cutItem(s string) (item, rest string) {
	n := itemBytes(s)
	return s[:n], s[n:]
}

// itemBytes returns the length of the item that s begins with, or 0.
func itemBytes(s string) int {
	if s == "" {
		return 0
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		return numberBytes(s)
	case c == '"':
		return stringBytes(s)
	case c == '*' || isLower(c|0x20): // a token
		n := 1
		for n < len(s) && (isToken(s[n:n+1]) || s[n] == ':' || s[n] == '/') {
			n++
		}
		return n
	case c == ':': // bytes
		n := 1
		for n < len(s) && (isLower(s[n]|0x20) || isDigit(s[n]) || strings.IndexByte("+/=", s[n]) >= 0) {
			n++
		}
		if n < len(s) && s[n] == ':' {
			return n + 1
		}
	case c == '?' && len(s) > 1 && (s[1] == '0' || s[1] == '1'): // a boolean
		return 2
	case c == '@': // a date
		if n := numberBytes(s[1:]); n > 0 && strings.IndexByte(s[1:1+n], '.') < 0 {
			return 1 + n
		}
	case strings.HasPrefix(s, `%"`):
		return displayBytes(s)
	}
	return 0
}

// numberBytes returns the length of an integer or a decimal.
func numberBytes(s string) int {
	digits := strings.TrimPrefix(s, "-")
	sign := len(s) - len(digits)
	whole := digitsOf(digits)
	switch {
	case whole == 0 || whole > 15:
		return 0
	case whole == len(digits) || digits[whole] != '.':
		return sign + whole
	}
	fraction := digitsOf(digits[whole+1:])
	if whole > 12 || fraction == 0 || fraction > 3 {
		return 0
	}
	return sign + whole + 1 + fraction
}

// digitsOf returns how many digits s begins with.
func digitsOf(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// stringBytes returns the length of a string in quotes.
func stringBytes(s string) int {
	for n := 1; n < len(s); n++ {
		switch c := s[n]; {
		case c == '"':
			return n + 1
		case c == '\\':
			if n++; n == len(s) || s[n] != '"' && s[n] != '\\' {
				return 0
			}
		case c < ' ' || c > '~':
			return 0
		}
	}
	return 0
}

// displayBytes returns the length of a string of Unicode: %"f%c3%bcr".
func displayBytes(s string) int {
	text := make([]byte, 0, len(s))
	for n := 2; n < len(s); n++ {
		switch c := s[n]; {
		case c == '"':
			if strings.ContainsRune(string(text), utf8.RuneError) {
				return 0
			}
			return n + 1
		case c == '%':
			b, err := hex.DecodeString(s[n+1 : min(n+3, len(s))])
			if err != nil || len(b) == 0 || strings.ToLower(s[n+1:n+3]) != s[n+1:n+3] {
				return 0
			}
			text = append(text, b...)
			n += 2
		case c < ' ' || c > '~':
			return 0
		default:
			text = append(text, c)
		}
	}
	return 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
