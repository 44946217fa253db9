package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// A Beginning is how far the header of a request outside the subset was looked at, as far as it has
// come. It makes a slow header cost no more than a quick one: each line is looked at once, however many
// pieces the header comes in, and is read once more when the header is whole.
//
// net/http reads a header line by line, and answers at the first line that is wrong. So a server that
// waits for the end of the header must look at each line when it comes.
type Beginning struct {
	looked int // bytes of whole lines that may begin a header
	lines  int // the lines of fields among them
}

// A Progress says what [Beginning.Look] has found.
type Progress uint8

const (
	Begun   Progress = iota // the header goes on
	Ready                   // it is whole, or wrong: http.ReadRequest knows
	TooMany                 // it has more lines than it may have
)

// Look looks at what was added to p, a header of at most linesMax lines, since it was called last. end
// is where a header that is whole ends, and 0 if it isn't.
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
			return TooMany, 0
		}
		pos = b.looked
	}
}

// check lets http.ReadRequest look at whole lines, which begin at from, behind so many lines of fields.
// Behind a good first line and a good field it takes or refuses a line as it does in the line's own
// place.
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
	r := getReader(&linesReader{first: good, then: added})
	defer putReader(r)
	if _, err := http.ReadRequest(r); err != errMore {
		return Ready
	}
	return Begun
}

// errMore is what http.ReadRequest finds behind lines that begin a header.
var errMore = errors.New("http1: the header goes on")

// linesReader reads lines, and then finds errMore.
type linesReader struct {
	first string
	then  []byte
}

func (p *linesReader) Read(b []byte) (n int, err error) {
	if p.first != "" {
		n = copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	if len(p.then) == 0 {
		return 0, errMore
	}
	n = copy(b, p.then)
	p.then = p.then[n:]
	return n, nil
}

// readers has the bufio.Readers that lines are checked with. They have the size of net/http's own,
// which decides how long trailers may be.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// getReader returns a bufio.Reader of net/http's size over r.
func getReader(r io.Reader) *bufio.Reader {
	b := readers.Get().(*bufio.Reader)
	b.Reset(r)
	return b
}

// putReader gives a bufio.Reader back, of which nothing that http.ReadRequest has returned is used any
// more.
func putReader(r *bufio.Reader) {
	r.Reset(nil)
	readers.Put(r)
}
