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

	head      Head // its fields
	statusEnd int  // where the first line ends
	hasClose  bool // the server said so
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
// Content-Length or Transfer-Encoding, and otherwise the fields that [Head.Scan] takes, without Host. An
// answer that is taken equals, field by field, the http.Response that [http.ReadResponse] returns for
// the same bytes.
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
	if v := h.scanFields(p, end+1); v != Plain {
		return v
	}
	a.Bytes = h.Bytes
	return a.frame(isHead)
}

// frame decides how the body ends (RFC 9112, section 6.3).
func (a *Answer) frame(isHead bool) Verdict {
	h := &a.head
	noBody, chunked := isHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified, h.coding >= 0
	switch {
	case chunked && (h.hasLength || noBody):
		return Coding
	case h.host >= 0: // which Head leaves out
		return Host
	}
	a.hasClose, a.Close = h.Close, h.Close
	a.ContentLength = -1
	if h.hasLength {
		a.ContentLength = h.ContentLength
	}
	switch {
	case chunked:
		a.Body = Chunked
	case noBody || a.ContentLength == 0:
		a.Body = Empty
	case h.hasLength:
		a.Body = Counted
	default:
		a.Body, a.Close = UntilEnd, true
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
	if a.Body == Chunked {
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
