package http1

import (
	"bytes"
	"errors"
	"net/http"
)

// A Beginning is how far the header of an odd request was looked at. net/http reads a header line by
// line, and answers at the first invalid one. So each line is looked at when it comes, once, however
// many pieces the header comes in, and is read once more when the header is complete.
type Beginning struct {
	looked int // bytes of whole lines that may begin a header
	lines  int // the lines of fields among them
}

// A Progress says what [Beginning.Look] has found.
type Progress uint8

const (
	Begun   Progress = iota // the header goes on
	Ready                   // it is complete, or invalid: http.ReadRequest knows
	TooMany                 // it has more lines than it may have
)

// Look looks at what was added to p, a header of at most linesMax lines, since the last call. end is
// where a complete header ends, and 0 for others.
func (b *Beginning) Look(p []byte, linesMax int) (state Progress, end int) {
	from, lines := b.looked, b.lines
	for pos := from; ; {
		n := bytes.IndexByte(p[pos:], '\n')
		if n < 0 {
			return b.check(p[from:pos], from, lines), 0
		}
		line := p[pos : pos+n]
		b.looked = pos + n + 1
		switch {
		case pos == 0: // the first line of the request, even if it is empty
		case n == 0, n == 1 && line[0] == '\r':
			return Ready, b.looked
		case line[0] != ' ' && line[0] != '\t':
			b.lines++
		}
		if b.lines > linesMax {
			if b.check(p[from:pos], from, lines) == Ready {
				return Ready, 0 // an earlier line is wrong
			}
			return TooMany, 0
		}
		pos = b.looked
	}
}

// check lets http.ReadRequest look at complete lines, which begin at from, after so many lines of
// fields. After a good first line and a good field it judges a line as it does in the line's own place.
func (b *Beginning) check(added []byte, from, lines int) Progress {
	if len(added) == 0 {
		return Begun
	}
	var good string
	switch {
	case from == 0:
	case lines == 0:
		good = "GET / HTTP/1.1\r\n"
	default:
		good = "GET / HTTP/1.1\r\nA: b\r\n"
	}
	if _, _, _, err := readRequest(good, added, errMore); err != errMore {
		return Ready
	}
	return Begun
}

// ReadRequest is http.ReadRequest of the header at the start of p, after which it finds end. It also
// returns how many bytes of p it has used, and whether it has looked at all of p. The caller must
// replace the request's Body.
func ReadRequest(p []byte, end error) (r *http.Request, used int, all bool, err error) {
	return readRequest("", p, end)
}

func readRequest(first string, then []byte, end error) (r *http.Request, used int, all bool, err error) {
	b := readers.Get().(*Reader)
	b.from = source{first: first, left: then, end: end}
	r, err = http.ReadRequest(&b.Reader)
	used, all = len(then)-len(b.from.left)-b.Buffered(), len(b.from.left) == 0
	b.Release()
	return r, used, all, err
}

// errMore is what http.ReadRequest finds after lines that begin a header.
var errMore = errors.New("http1: the header goes on")
