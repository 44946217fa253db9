package http1

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// beginnings are headers that Scan doesn't take: whole ones with what follows, and wrong ones.
var beginnings = []string{
	"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.1\nHost: h\nA: b\n c\n\td\n\nbehind",
	"GET / HTTP/1.1\r\nHost: h\r\n A: b\r\n\r\n",
	"GET / HTTP/1.1\r\n A: b\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nno field\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n \r\n\r\nbehind",
	"GET / HTTP/1.1 extra words\r\nHost: h\r\n\r\n",
	"GET / HTTP/9\r\nHost: h\r\n\r\n",
	"G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
	"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
}

// lookOf returns what http.ReadRequest knows of the whole lines of p: how many bytes of a header it has
// read, or 0 if one is wrong. It knows nothing if it wants more.
func lookOf(p string) (knows bool, end int) {
	lines := p[:strings.LastIndexByte(p, '\n')+1]
	_, used, _, err := ReadRequest([]byte(lines), errMore)
	switch {
	case err == errMore, lines == "" && err == io.EOF:
		return false, 0
	case err != nil:
		return true, 0
	}
	return true, used
}

// TestBeginning: a header that comes in two pieces, or byte by byte, is ready with the first piece of
// which http.ReadRequest knows what it is, and not before.
func TestBeginning(t *testing.T) {
	for _, text := range beginnings {
		for _, step := range []int{1, 2, 7, len(text)} {
			t.Run(fmt.Sprintf("%q/%d", text, step), func(t *testing.T) {
				var b Beginning
				for n := min(step, len(text)); ; n = min(n+step, len(text)) {
					knows, want := lookOf(text[:n])
					state, end := b.Look([]byte(text[:n]), FieldsMax)
					if knows != (state == Ready) || want != 0 && end != want {
						t.Fatalf("behind %q: got %v with a header of %d bytes, want to be ready: %t, with %d", text[:n], state, end, knows, want)
					}
					if state == Ready || n == len(text) {
						return
					}
				}
			})
		}
	}
}

// TestBeginningCountsLines: a line that goes on is no other line, and each is looked at once.
func TestBeginningCountsLines(t *testing.T) {
	const header = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n d\r\n"
	for limit, want := range map[int]Progress{1: TooMany, 2: Begun, 3: Begun} {
		var b Beginning
		got := Begun
		for n := 0; n <= len(header) && got == Begun; n++ {
			got, _ = b.Look([]byte(header[:n]), limit)
		}
		if got != want {
			t.Errorf("at most %d lines: got %v, want %v", limit, got, want)
		}
	}
}

// TestBeginningFirstWrongLine: net/http answers at the first line that is wrong, even if there are too
// many behind it.
func TestBeginningFirstWrongLine(t *testing.T) {
	const header = "GET / HTTP/1.1\r\nHost: h\r\n\x7f: b\r\nA: b\r\nA: b\r\n"
	var b Beginning
	if got, _ := b.Look([]byte(header), 3); got != Ready {
		t.Errorf("got %v, want %v", got, Ready)
	}
}

// TestTooManyTrailers counts the names that a request in chunks announces.
func TestTooManyTrailers(t *testing.T) {
	const start = "POST / HTTP/1.1\r\nHost: h\r\n"
	for _, tt := range []struct {
		fields string
		want   bool
	}{
		{"Transfer-Encoding: chunked\r\nTrailer: A, B, C\r\n", false},
		{"Transfer-Encoding: chunked\r\nTrailer: A, B, C, D\r\n", true},
		{"transfer-encoding: chunked\r\nTRAILER: A, B\r\nTrailer: C, D\r\n", true},
		{"Transfer-Encoding: chunked\r\nTrailer: A, B,\r\n C, D\r\n", true},
		{"Trailer: A, B, C, D\r\n", false}, // which mean nothing
		{"Transfer-Encoding: chunked\r\nAccept: a, b, c, d, e\r\n", false},
	} {
		if got := TooManyTrailers([]byte(start+tt.fields+"\r\n"), 3); got != tt.want {
			t.Errorf("%q: got %t, want %t", tt.fields, got, tt.want)
		}
	}
}
