package httpadapter

import "bytes"

// method is what is remembered of the last request while its connection is
// parked: net/http skips an empty line before a request if the last one was a
// POST, and answers it with "400 Bad Request" otherwise.
//
// It isn't known if the request was pipelined, or if its first byte was read by
// net/http while it still answered the one before, or came alone. Then the line is
// skipped, too, which is what RFC 9112, 2.2, asks for in any case.
type method uint8

const (
	methodUnknown method = iota
	methodPOST
	methodOther
)

// method returns the method of the last request.
func (c *conn) method() method { return method(c.word.Load() & methodMask >> methodShift) }

// setMethod sets it. The caller holds mu.
func (c *conn) setMethod(m method) {
	c.word.Store(c.word.Load()&^methodMask | uint32(m)<<methodShift)
}

// sniffLocked notes the method of a request of which p is the beginning, as far as
// it goes.
func (c *conn) sniffLocked(p []byte) {
	c.mark(sniffed, true)
	m := methodUnknown
	switch {
	case mayBegin(p, "PRI "):
		if len(p) >= len("PRI ") {
			c.passLocked() // HTTP/2, with prior knowledge
		}
	case mayBegin(p, "POST "):
		if len(p) >= len("POST ") {
			m = methodPOST
		}
	default:
		m = methodOther
	}
	c.setMethod(m)
}

// skipNewlines returns p, the bytes after the last request, without what net/http
// skips. It returns nothing if that can't be known from so few.
func (c *conn) skipNewlines(p []byte) []byte {
	switch {
	case c.method() == methodOther:
		return p
	case len(p) < peekBytes:
		return nil
	}
	return p[leadingNewlines(p[:peekBytes]):]
}

// mayBegin reports whether p begins with word as far as it goes.
func mayBegin(p []byte, word string) bool {
	n := min(len(p), len(word))
	return bytes.Equal(p[:n], []byte(word[:n]))
}

// leadingNewlines counts the carriage returns and line feeds at the start of p.
func leadingNewlines(p []byte) int {
	return len(p) - len(bytes.TrimLeft(p, "\r\n"))
}
