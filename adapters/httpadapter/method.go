package httpadapter

import (
	"bytes"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
)

// method is the memory of the last request while its connection is parked:
// net/http skips an empty line before a request if the last one was a POST, and
// answers it with "400 Bad Request" otherwise.
//
// It isn't known if the request was pipelined, or if its first byte was read by
// net/http while it still answered the one before, or came alone. Then the line is
// skipped, too, as RFC 9112, 2.2, asks for in any case.
type method uint8

const (
	methodUnknown method = iota
	methodPOST
	methodOther
)

// http2Begin is how a client begins that speaks HTTP/2 with prior knowledge (RFC 9113, 3.4).
const http2Begin = "PRI "

func (s connState) method() method { return method(s & methodMask >> methodShift) }

func (s connState) withMethod(m method) connState { return s&^methodMask | connState(m)<<methodShift }

// sniff notes the method of a request of which p is the beginning, as far as it
// goes. If that is HTTP/2's, with prior knowledge, the state is http2.
func (s connState) sniff(p []byte) connState {
	m := methodUnknown
	switch {
	case mayBegin(p, http2Begin):
		if len(p) >= len(http2Begin) {
			s = s.to(stateHTTP2)
		}
	case mayBegin(p, "POST "):
		if len(p) >= len("POST ") {
			m = methodPOST
		}
	default:
		m = methodOther
	}
	return s.set(sniffed).withMethod(m)
}

// skipNewlines returns p, the bytes after the last request, without those that net/http
// skips. It returns nothing if that can't be known from so few.
func (s connState) skipNewlines(p []byte) []byte {
	switch {
	case s.method() == methodOther:
		return p
	case len(p) < probe.PeekBytes:
		return nil
	}
	return p[leadingNewlines(p[:probe.PeekBytes]):]
}

// mayBegin reports whether p begins with word as far as it goes.
func mayBegin(p []byte, word string) bool {
	n := min(len(p), len(word))
	return string(p[:n]) == word[:n]
}

// leadingNewlines counts the carriage returns and line queues at the start of p.
func leadingNewlines(p []byte) int {
	return len(p) - len(bytes.TrimLeft(p, "\r\n"))
}
