package http2

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// eachMember calls do for each member of a dictionary (RFC 9651, section 4.2.2), with its value as it
// is written. It reports whether text is a dictionary, and may have called do before it knows. As for
// net/http, members may follow each other without a comma.
func eachMember(text string, do func(key, value string)) (ok bool) {
	for s := scanner(text); s != ""; {
		key, ok := s.cut((*scanner).key)
		value := "?1"
		if ok && s.byte('=') {
			value, ok = s.cut((*scanner).value)
		}
		if !ok || !s.parameters() {
			return false
		}
		do(key, value)
		if s.spaces(); s == "" {
			break
		}
		s.byte(',')
		if s.spaces(); s == "" {
			return false
		}
	}
	return true
}

// A scanner is what is left of a field. Its methods take a part off its beginning, and report whether it
// is there.
type scanner string

// cut takes a part, and returns it.
func (s *scanner) cut(part func(*scanner) bool) (text string, ok bool) {
	at := *s
	ok = part(s)
	return string(at[:len(at)-len(*s)]), ok
}

func (s *scanner) spaces() { s.all(func(c byte) bool { return c == ' ' || c == '\t' }) }

func (s *scanner) byte(c byte) bool {
	ok := *s != "" && (*s)[0] == c
	if ok {
		*s = (*s)[1:]
	}
	return ok
}

// all takes bytes that belong to a set, and returns how many.
func (s *scanner) all(belongs func(c byte) bool) (n int) {
	for n < len(*s) && belongs((*s)[n]) {
		n++
	}
	*s = (*s)[n:]
	return n
}

func (s *scanner) key() bool {
	if *s == "" || !isLower((*s)[0]) && (*s)[0] != '*' {
		return false
	}
	s.all(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 })
	return true
}

// value takes an item, or a list of items.
func (s *scanner) value() bool {
	if !s.byte('(') {
		return s.item()
	}
	for {
		if s.spaces(); s.byte(')') {
			return true
		}
		if !s.item() || !s.parameters() || *s == "" || (*s)[0] != ')' && (*s)[0] != ' ' {
			return false
		}
	}
}

func (s *scanner) parameters() bool {
	for s.byte(';') {
		if s.spaces(); !s.key() || s.byte('=') && !s.item() {
			return false
		}
	}
	return true
}

// item takes an item without its parameters.
func (s *scanner) item() bool {
	switch {
	case *s == "":
		return false
	case s.byte('"'):
		return s.quoted()
	case s.byte('%'):
		return s.byte('"') && s.display()
	case s.byte(':'): // bytes
		s.all(func(c byte) bool { return isLower(c|0x20) || isDigit(c) || strings.IndexByte("+/=", c) >= 0 })
		return s.byte(':')
	case s.byte('?'): // a boolean
		return s.byte('0') || s.byte('1')
	case s.byte('@'): // a date
		decimal, ok := s.number()
		return ok && !decimal
	case (*s)[0] == '*' || isLower((*s)[0]|0x20): // a token
		s.all(func(c byte) bool { return isTokenByte[c] || c == ':' || c == '/' })
		return true
	}
	_, ok := s.number()
	return ok
}

// number takes an integer or a decimal.
func (s *scanner) number() (decimal, ok bool) {
	s.byte('-')
	whole := s.all(isDigit)
	if decimal = whole > 0 && s.byte('.'); !decimal {
		return false, whole > 0 && whole <= 15
	}
	fraction := s.all(isDigit)
	return true, whole <= 12 && fraction > 0 && fraction <= 3
}

// quoted takes the rest of a string.
func (s *scanner) quoted() bool {
	for *s != "" {
		c := (*s)[0]
		switch *s = (*s)[1:]; {
		case c == '"':
			return true
		case c < ' ' || c > '~', c == '\\' && !s.byte('"') && !s.byte('\\'):
			return false
		}
	}
	return false
}

// display takes the rest of a string of Unicode: f%c3%bcr".
func (s *scanner) display() bool {
	var text []byte
	for *s != "" {
		c := (*s)[0]
		switch *s = (*s)[1:]; {
		case c == '"':
			return !strings.ContainsRune(string(text), utf8.RuneError)
		case c < ' ' || c > '~':
			return false
		case c == '%':
			digits := string((*s)[:min(2, len(*s))])
			v, err := strconv.ParseUint(digits, 16, 8)
			if err != nil || len(digits) < 2 || strings.ToLower(digits) != digits {
				return false
			}
			c, *s = byte(v), (*s)[2:]
		}
		text = append(text, c)
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isTokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

var isTokenByte = func() (is [256]bool) {
	for c := range is {
		is[c] = isDigit(byte(c)) || isLower(byte(c)|0x20) || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return is
}()
