package load

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"

const response = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length:  5\r\nDate: today\r\n\r\nhello"

// pieces reads a string in pieces of n bytes, and then fails if more is asked for.
type pieces struct {
	t *testing.T
	s string
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.s == "" {
		p.t.Fatal("read after the end of the response: a server would have blocked")
	}
	n := copy(b, p.s[:min(p.n, len(p.s))])
	p.s = p.s[n:]
	return n, nil
}

// TestResponseReaderPieces cuts responses everywhere, the known shape as well as
// one that is not known yet, with a length and in chunks.
func TestResponseReaderPieces(t *testing.T) {
	long := strings.Replace(response, "5\r", "5000\r", 1)
	long = strings.TrimSuffix(long, "hello") + strings.Repeat("x", 5000)
	for n := 1; n <= max(len(response), len(chunked)); n++ {
		var r responseReader
		for i, s := range []string{response, response, long, long, response, chunked, chunked, response} {
			if err := r.read(&pieces{t, s, n}); err != nil {
				t.Fatalf("pieces of %d, response %d: %v", n, i, err)
			}
		}
	}
}

func TestResponseReaderErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name, in string
		after    error
		want     string
	}{
		{"another status", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", nil, `"HTTP/1.1 404 Not Found"`},
		{"not HTTP", "220 mail.example.org ESMTP\r\n", nil, `"220 mail.example.org ESMTP"`},
		{"end in the header", response[:30], io.EOF, "unexpected EOF"},
		{"end in the body", response[:len(response)-1], io.EOF, "unexpected EOF"},
		{"error", response[:30], boom, "boom"},
		{"more than announced", response + "!", nil, "1 bytes more"},
		{"no length", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", headerMax), nil, "without a length"},
		{"end in a chunk", strings.TrimSuffix(chunked, "o\r\n0\r\n\r\n"), io.EOF, "unexpected EOF"},
		{"end after the last chunk", strings.TrimSuffix(chunked, "\r\n"), io.EOF, "unexpected EOF"},
		{"a trailer", strings.TrimSuffix(chunked, "\r\n") + "X: y\r\n\r\n", io.EOF, `"X:" after the last chunk`},
		{"more than the chunks", chunked + "!", io.EOF, "1 bytes more"},
		{"bad chunk", strings.Replace(chunked, "3\r", "x\r", 1), io.EOF, "invalid byte in chunk length"},
		{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", io.EOF, "unexpected EOF"},
	} {
		in := io.Reader(strings.NewReader(c.in))
		if c.after != nil {
			in = io.MultiReader(in, iotest.ErrReader(c.after))
		}
		var r responseReader
		if err := r.read(in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// TestResponseReaderChange sends an error after a good response of the same
// shape: it must not pass for another good one.
func TestResponseReaderChange(t *testing.T) {
	var r responseReader
	if err := r.read(strings.NewReader(response)); err != nil {
		t.Fatal(err)
	}
	err := r.read(strings.NewReader(strings.Replace(response, "200 OK", "500 No", 1)))
	if err == nil || !strings.Contains(err.Error(), "500 No") {
		t.Errorf("error %v, want one with the status", err)
	}
}

// TestResponseReaderRefused: an answer of 503 is an error that the connection outlives, if the server
// may refuse.
func TestResponseReaderRefused(t *testing.T) {
	refused := strings.Replace(response, "200 OK", "503 Service Unavailable", 1)
	for n := 1; n <= len(refused); n++ {
		r := responseReader{refusable: true}
		for i, s := range []string{refused, response, refused, response, chunked} {
			if err := r.read(&pieces{t, s, n}); err != nil && (err != errRefused || s != refused) || err == nil && s == refused {
				t.Fatalf("pieces of %d, response %d: got %v", n, i, err)
			}
		}
	}
	r := responseReader{refusable: true}
	if err := r.read(strings.NewReader(refused[:len(refused)-1])); err == nil || err == errRefused {
		t.Errorf("the end in a body: got %v", err)
	}
	if err := new(responseReader).read(strings.NewReader(refused)); err == nil || err == errRefused {
		t.Errorf("a refusal that is not expected: got %v", err)
	}
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		job   Job
		extra string
		want  string
	}{
		{Job{Addr: "h:1"}, "", "GET / HTTP/1.1\r\nHost: h:1\r\n\r\n"},
		{Job{Addr: "h:1", Path: "/f"}, "X: y\r\n", "GET /f HTTP/1.1\r\nHost: h:1\r\nX: y\r\n\r\n"},
		{Job{Addr: "h:1", Payload: 3}, "", "POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\nxxx"},
		{Job{Addr: "h:1", Browser: true}, "X: y\r\n", "GET / HTTP/1.1\r\nHost: h:1\r\nX: y\r\n" + strings.Join(BrowserHeader, "\r\n") + "\r\n\r\n"},
	} {
		if got := request(c.job, c.extra); !bytes.Equal(got, []byte(c.want)) {
			t.Errorf("request(%+v, %q) = %q, want %q", c.job, c.extra, got, c.want)
		}
	}
}
