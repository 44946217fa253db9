package http1

import (
	"bytes"
	"net/http"
)

// An Answer says where the parts of a server's answer are that [Answer.Scan] took. Like a [Head], it
// refers to no memory. net/http reads the answers that Scan doesn't take, so only net/http judges
// unusual ones.
type Answer struct {
	Bytes  int // length of the header, including the empty line at its end
	Status int // 200 to 999
	Body   Framing

	// ContentLength is the value of the field; -1 without it. The body has as many bytes only if its
	// framing is Counted.
	ContentLength int64

	// Close says that the connection ends with this answer: the server said so, or only the end of
	// the stream ends the body.
	Close bool

	head      Head
	statusEnd int // where the first line ends
	hasClose  bool
	chunked   bool
}

// Framing says how the body of an answer ends.
type Framing uint8

const (
	Empty    Framing = iota // there is no body
	Counted                 // it has ContentLength bytes
	Chunked                 // its last chunk says so
	UntilEnd                // with the stream
)

// answerStart is how a status line in the subset begins. Three digits, a space and a text follow.
const answerStart = "HTTP/1.1 "

// Scan looks for a complete header at the start of p. isHead says that the request's method was HEAD. a
// is valid only if Scan returns Plain.
//
// Scan takes a header of HTTP/1.1 with lines that end in CRLF, a final status, at most one
// Content-Length or Transfer-Encoding, of which "chunked" is the only one it takes, and at most one
// Connection, with keep-alive or close. An answer that is taken equals, field by field, the
// http.Response that [http.ReadResponse] returns for the same bytes.
func (a *Answer) Scan(p []byte, isHead bool) Verdict {
	end := bytes.IndexByte(p, '\n')
	switch {
	case end < 0:
		return Incomplete
	case end < len(answerStart)+len("200 ")+1 || p[end-1] != '\r' || p[len(answerStart)+3] != ' ':
		return LineEnd
	case string(p[:len(answerStart)]) != answerStart:
		return Version
	}
	a.Status, a.statusEnd = 0, end-1
	for _, c := range p[len(answerStart) : len(answerStart)+3] {
		if c < '0' || c > '9' {
			return Version
		}
		a.Status = 10*a.Status + int(c-'0')
	}
	if a.Status < 200 {
		return Expect
	}
	h := &a.head
	h.clear()
	a.hasClose, a.chunked = false, false
	connections := 0
	for pos := end + 1; ; pos += end + 1 {
		end = bytes.IndexByte(p[pos:], '\n')
		switch {
		case end < 0:
			return Incomplete
		case end == 0 || p[pos+end-1] != '\r':
			return LineEnd
		case end == 1:
			a.Bytes = pos + 2
			return a.frame(isHead)
		}
		f, v := h.takeField(p, pos, pos+end-1)
		if v == Plain {
			v = a.heed(p[f.name:f.nameEnd], p[f.value:f.valueEnd], &connections)
		}
		if v != Plain {
			return v
		}
	}
}

// heed handles the fields that decide where the answer ends, or that net/http changes.
func (a *Answer) heed(name, value []byte, connections *int) Verdict {
	switch len(name) {
	case len("Pragma"):
		a.head.pragma = a.head.pragma || equalFold(name, "pragma")
	case len("Trailer"):
		if equalFold(name, "trailer") {
			return Coding
		}
	case len("Connection"):
		if equalFold(name, "connection") {
			if *connections++; *connections > 1 {
				return Option
			}
			return a.head.heedConnection(value)
		}
	case len("Content-Length"):
		if equalFold(name, "content-length") {
			return a.head.heedLength(value)
		}
	case len("Transfer-Encoding"):
		if equalFold(name, "transfer-encoding") {
			if a.chunked || !equalFold(value, "chunked") {
				return Coding
			}
			a.chunked = true
		}
	}
	return Plain
}

// frame decides how the body ends (RFC 9112, section 6.3).
func (a *Answer) frame(isHead bool) Verdict {
	h := &a.head
	noBody := isHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified
	if a.chunked && (h.hasLength || noBody) {
		return Coding
	}
	a.hasClose, a.Close = h.Close, h.Close
	a.ContentLength = -1
	if h.hasLength {
		a.ContentLength = h.ContentLength
	}
	switch {
	case noBody:
		a.Body = Empty
	case a.chunked:
		a.Body = Chunked
	case !h.hasLength:
		a.Body, a.Close = UntilEnd, true
	case h.ContentLength == 0:
		a.Body = Empty
	default:
		a.Body = Counted
	}
	return Plain
}

// Response fills r, which must be new, for the answer scanned at the start of p to req. It copies
// everything that it needs from p, and writes the canonical form of the fields' names into p. It leaves
// Body to the caller.
func (a *Answer) Response(p []byte, req *http.Request, r *http.Response) {
	p = p[:a.Bytes]
	h := &a.head
	h.canonicalize(p)
	parts := cutter{p: p}
	r.Status = parts.cut(len(answerStart), a.statusEnd)
	r.StatusCode = a.Status
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Header, _ = h.header(&parts, make([]string, h.Fields))
	if a.hasClose {
		delete(r.Header, "Connection")
	}
	if a.chunked {
		delete(r.Header, "Transfer-Encoding")
		r.TransferEncoding = []string{"chunked"}
	}
	r.ContentLength = a.ContentLength
	if a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		if req == nil || req.Method != http.MethodHead {
			r.ContentLength = 0
		}
	}
	r.Close = a.Close
	r.Request = req
}
