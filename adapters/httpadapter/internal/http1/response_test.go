package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/internal/race"
)

// wire is a Conn in memory.
type wire struct {
	bytes.Buffer
	off    bool // SetKeepAlivesEnabled(false)
	body   *body
	log    bytes.Buffer
	writes writeSizes
}

func (c *wire) Write(p []byte) (int, error) {
	c.writes = append(c.writes, len(p))
	return c.Buffer.Write(p)
}

// writeSizes are the sizes of the writes to a connection.
type writeSizes []int

func (c *wire) KeepAlives() bool { return !c.off }

// keptBytesMax is how much of a request's body net/http reads to keep a connection.
const keptBytesMax = 256 << 10

func (c *wire) FinishBody(bool) (reusable, tooLong bool) {
	switch {
	case c.body.closed:
		return c.body.left == 0, false
	case c.body.left >= keptBytesMax:
		return false, true
	}
	_ = c.body.Close()
	return true, false
}

func (c *wire) Fail() {}

func (c *wire) Logf(format string, args ...any) { fmt.Fprintf(&c.log, format+"\n", args...) }

// newResponse returns the answer to r on conn.
func newResponse(conn Conn, r *http.Request) *Response {
	w := new(Response)
	w.Init(conn, r)
	return w
}

// A narrowWire is a wire that does not implement io.ReaderFrom, like a *tls.Conn.
type narrowWire struct{ Conn }

// body is a request's body in memory.
type body struct {
	r      *bytes.Reader
	left   int
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.r.Read(p)
	b.left -= n
	if b.left == 0 {
		err = io.EOF
	}
	return n, err
}

func (b *body) Close() error {
	if !b.closed && b.left < keptBytesMax {
		b.left = 0
	}
	b.closed = true
	return nil
}

// A stage is where a program runs: a request and its answer.
type stage struct {
	http.ResponseWriter
	r     *http.Request
	notes *strings.Builder
}

func (s *stage) note(format string, args ...any) { fmt.Fprintf(s.notes, format+"\n", args...) }

func (s *stage) set(name string, values ...string) { s.Header()[name] = values }

func (s *stage) write(text string) {
	n, err := s.Write([]byte(text))
	s.note("wrote %d %v", n, err)
}

func (s *stage) writeString(text string) {
	n, err := io.WriteString(s.ResponseWriter, text)
	s.note("wrote string %d %v", n, err)
}

func (s *stage) copy(r io.Reader) {
	n, err := io.Copy(s.ResponseWriter, r)
	s.note("copied %d %v", n, err)
}

func (s *stage) writeHeader(status int) {
	defer func() {
		if p := recover(); p != nil {
			s.note("panic %v", p)
		}
	}()
	s.WriteHeader(status)
}

// The tests' programs are made of these steps.
var steps = []func(*stage){
	func(s *stage) { s.set("Content-Type", "text/x") },
	func(s *stage) { s.set("X-One", "1\r\nX-Injected: 2") },
	func(s *stage) { s.Header().Add("A-Many", " a ") },
	func(s *stage) { s.set("odd name", "x") },
	func(s *stage) { s.set("lower", "x", "y") },
	func(s *stage) { s.set("Date") },
	func(s *stage) { s.set("Content-Type") },
	func(s *stage) { s.set("Content-Length", "5") },
	func(s *stage) { s.set("Content-Length", "none") },
	func(s *stage) { s.set("Content-Encoding", "gzip") },
	func(s *stage) { s.set("Transfer-Encoding", "identity") },
	func(s *stage) { s.set("Transfer-Encoding", "chunked") },
	func(s *stage) { s.set("Connection", "close") },
	func(s *stage) { s.set("Connection", "Close, x") },
	func(s *stage) { s.set("Trailer", "X-T, Content-Length,, x-u") },
	func(s *stage) { s.set("X-T", "t") },
	func(s *stage) { s.set(http.TrailerPrefix+"X-P", "p") },
	func(s *stage) { s.writeHeader(200) },
	func(s *stage) { s.writeHeader(204) },
	func(s *stage) { s.writeHeader(304) },
	func(s *stage) { s.writeHeader(404) },
	func(s *stage) { s.writeHeader(599) },
	func(s *stage) { s.writeHeader(103) },
	func(s *stage) { s.write("") },
	func(s *stage) { s.write("hello") },
	func(s *stage) { s.writeString("<html>") },
	func(s *stage) { s.write(strings.Repeat("x", 2000)) },
	func(s *stage) { s.writeString(strings.Repeat("y", 2048)) },
	func(s *stage) { s.write(strings.Repeat("z", 9000)) },
	func(s *stage) { s.note("flush %v", http.NewResponseController(s.ResponseWriter).Flush()) },
	func(s *stage) { s.copy(io.LimitReader(strings.NewReader(strings.Repeat("c", 3000)), 3000)) },
	func(s *stage) { http.Error(s.ResponseWriter, "no", 500) },
	func(s *stage) { s.set("Upgrade", "x") },
	func(s *stage) { s.set("Date", "a", "b") },
	func(s *stage) { s.set("Content-Type", "") },
	func(s *stage) { s.set("Content-Length", "-5") },
	func(s *stage) { s.set("Content-Length", "+5", "6") },
	func(s *stage) { s.set("Content-Length", "4000") },
	func(s *stage) { s.set("Content-Length", "0") },
	func(s *stage) { s.set("Content-Length", "") },
	func(s *stage) { s.set("Content-Length") },
	func(s *stage) { s.set("content-length", "7") },
	func(s *stage) { s.set("Content-Encoding", "") },
	func(s *stage) { s.set("Transfer-Encoding", "gzip", "chunked") },
	func(s *stage) { s.set("Transfer-Encoding", "") },
	func(s *stage) { s.set("Connection", "keep-alive") },
	func(s *stage) { s.set("Connection", "x", "close") },
	func(s *stage) { s.set("Connection", "x", "y,\tUPGRADE ") },
	func(s *stage) { s.set("Connection", "Upgrade\n") },
	func(s *stage) { s.set("Connection") },
	func(s *stage) { s.set("Keep-Alive", "timeout=5") },
	func(s *stage) { s.set("Trailer") },
	func(s *stage) { s.set("Trailer", "If-Match", " ,", "X-T", "x-t") },
	func(s *stage) { s.set(http.TrailerPrefix+"X-T", "1", " 2\n3 ") },
	func(s *stage) { s.set(http.TrailerPrefix) },
	func(s *stage) { s.set(http.TrailerPrefix+"no token", "x") },
	func(s *stage) { s.set("", "x") },
	func(s *stage) { s.set("X-Empty") },
	func(s *stage) { s.set("X-Spaces", "\t\r\n a\tb \n", "", "\x00\xff") },
	func(s *stage) { s.set("colon:", "x") },
	func(s *stage) { s.set("Large", strings.Repeat("l", 5000)) },
	func(s *stage) {
		for i := range 20 {
			s.set(fmt.Sprintf("N%d", i*7%20), "v")
		}
	},
	func(s *stage) { clear(s.Header()) },
	func(s *stage) {
		if v := s.Header()["A-Many"]; len(v) > 0 {
			v[0] = "changed"
		}
	},
	func(s *stage) { s.writeHeader(101) },
	func(s *stage) { s.writeHeader(100) },
	func(s *stage) { s.writeHeader(199) },
	func(s *stage) { s.writeHeader(99) },
	func(s *stage) { s.writeHeader(1000) },
	func(s *stage) { s.writeHeader(999) },
	func(s *stage) { s.writeHeader(201) },
	func(s *stage) { s.writeString("") },
	func(s *stage) { s.writeString(strings.Repeat("s", 9000)) },
	func(s *stage) { s.write(strings.Repeat("t", 2049)) },
	func(s *stage) { s.writeString(strings.Repeat("u", 48)) },
	func(s *stage) { s.write("\x00\x01\x02") },
	func(s *stage) { s.write(strings.Repeat("v", 70000)) },
	func(s *stage) { s.copy(strings.NewReader(strings.Repeat("d", 5000))) },
	func(s *stage) { s.copy(io.LimitReader(strings.NewReader(strings.Repeat("e", 600)), 511)) },
	func(s *stage) { s.copy(struct{ io.Reader }{strings.NewReader(strings.Repeat("f", 40000))}) },
	func(s *stage) { s.copy(iotestErrReader(700)) },
	func(s *stage) { s.copy(strings.NewReader("")) },
	func(s *stage) { http.NotFound(s.ResponseWriter, s.r) },
	func(s *stage) { http.Redirect(s.ResponseWriter, s.r, "/elsewhere", http.StatusFound) },
	func(s *stage) {
		http.ServeContent(s.ResponseWriter, s.r, "x.txt", time.Time{}, strings.NewReader(strings.Repeat("g", 3000)))
	},
	func(s *stage) {
		n, err := io.ReadAll(s.r.Body)
		s.note("read %d %v", len(n), err)
	},
	func(s *stage) {
		n, err := s.r.Body.Read(make([]byte, 1))
		s.note("read %d %v", n, err)
	},
	func(s *stage) { s.note("close %v", s.r.Body.Close()) },
	func(s *stage) {
		if s.r.Body == http.NoBody { // Go 1.26 panics if it has read a body before it reads a request
			s.note("full duplex %v", http.NewResponseController(s.ResponseWriter).EnableFullDuplex())
		}
	},
	func(s *stage) { s.r.Close = !s.r.Close },
	func(s *stage) { s.r.Header.Set("Connection", "close") },
}

// iotestErrReader returns a reader that reads n bytes and then fails.
func iotestErrReader(n int) io.Reader {
	return io.MultiReader(strings.NewReader(strings.Repeat("h", n)), failing{})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no more") }

// program returns a handler that runs a step for each byte of code and writes notes.
func program(code []byte, notes *strings.Builder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			fmt.Fprint(w, "the end")
			return
		}
		s := &stage{w, r, notes}
		for _, op := range code {
			steps[int(op)%len(steps)](s)
		}
	}
}

// A setting says how a server and its connection are set up.
type setting struct {
	off    bool // keep-alive is off
	narrow bool // the connection does not implement io.ReaderFrom
}

// outcome is the bytes on the wire, the handler's notes, the error log, and the sizes of the writes
// if they must match net/http's.
type outcome struct{ wire, notes, log, writes string }

var dates = regexp.MustCompile(`(?m)^Date: .{29}\r$`)

func newOutcome(wire, notes, log string, writes writeSizes) outcome {
	return outcome{dates.ReplaceAllString(wire, "Date: now\r"), notes, log, fmt.Sprint(writes)}
}

// controlled is a Response with the methods for http.ResponseController that its owner implements.
type controlled struct{ *Response }

func (w controlled) EnableFullDuplex() error {
	w.Response.EnableFullDuplex()
	return nil
}

// here serves the requests with this package. The answers are collected in out, as the answers to
// pipelined requests may be. If the connection is narrow they are not, because the test then
// compares the sizes of the writes.
func here(t testing.TB, input []byte, handler http.Handler, with setting, notes *strings.Builder) outcome {
	t.Helper()
	c := &wire{off: with.off}
	conn := Conn(c)
	if with.narrow {
		conn = narrowWire{c}
	}
	for len(input) > 0 {
		var h Head
		if v := h.Scan(input, 4<<10); v != Plain {
			t.Fatalf("%q: got %v, want plain", input, v)
		}
		r := new(http.Request)
		h.Request(context.Background(), input, r)
		input = input[h.Bytes:]
		c.body = &body{r: bytes.NewReader(input[:h.ContentLength]), left: int(h.ContentLength)}
		input = input[h.ContentLength:]
		if h.ContentLength > 0 {
			r.Body = c.body
		}
		w := newResponse(conn, r)
		handler.ServeHTTP(controlled{w}, r)
		reusable := w.Finish()
		if w.body != nil {
			t.Error("Finish: the body's memory is still held")
		}
		if out := w.Out(); len(out) > 0 {
			_, _ = c.Write(out)
			ReleaseOut(out)
		}
		if !reusable || with.off {
			break
		}
	}
	if !with.narrow {
		c.writes = nil
	}
	return newOutcome(c.String(), notes.String(), c.log.String(), c.writes)
}

// onNetHTTP serves the requests with net/http, on a connection in memory. The last request must end it.
func onNetHTTP(t testing.TB, input []byte, handler http.Handler, with setting, notes *strings.Builder) outcome {
	t.Helper()
	var (
		lines bytes.Buffer
		ended sync.WaitGroup
	)
	l := make(pipes, 1)
	srv := &http.Server{Handler: handler, ErrorLog: log.New(&lines, "", 0)}
	srv.SetKeepAlivesEnabled(!with.off)
	ended.Go(func() { _ = srv.Serve(l) })
	client, server := net.Pipe()
	var writes writeSizes
	if with.narrow {
		l <- narrowConn{server, &writes}
	} else {
		l <- wideConn{server}
	}
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	ended.Go(func() { _, _ = client.Write(input) })
	got, err := io.ReadAll(client)
	if err != nil {
		t.Fatalf("reading net/http's answer: %v", err)
	}
	client.Close()
	_ = srv.Shutdown(context.Background())
	ended.Wait()
	return newOutcome(string(got), notes.String(), lines.String(), writes)
}

// pipes is a listener that accepts the connections sent to it.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (l pipes) Close() error {
	close(l)
	return nil
}

// narrowConn is a connection that notes the sizes of the writes.
type narrowConn struct {
	net.Conn
	writes *writeSizes
}

func (c narrowConn) Write(p []byte) (int, error) {
	*c.writes = append(*c.writes, len(p))
	return c.Conn.Write(p)
}

// wideConn is a connection that implements io.ReaderFrom, like a *net.TCPConn.
type wideConn struct{ net.Conn }

func (c wideConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

// starts are the requests that programs answer.
var starts = []string{
	"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("b", 200000),
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nRange: bytes=1-2\r\n\r\n",
}

// tooLong is a start whose body is longer than net/http reads to keep a connection. net/http waits
// for half a second before it closes such a connection.
var tooLong = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("b", 300000)

// wantSameAnswer runs a program both ways.
func wantSameAnswer(t testing.TB, start string, with setting, code []byte) {
	t.Helper()
	if beyondLength(code) {
		with.narrow = true
	}
	input := []byte(start + "GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	var gotNotes, wantNotes strings.Builder
	got := here(t, input, program(code, &gotNotes), with, &gotNotes)
	want := onNetHTTP(t, input, program(code, &wantNotes), with, &wantNotes)
	if got != want {
		t.Errorf("%.80q, %+v, steps %v:\n got %s\nwant %s", start, with, code, brief(got), brief(want))
	}
}

// brief shortens runs of the same byte in an outcome.
func brief(o outcome) string {
	var b strings.Builder
	text := fmt.Sprintf("%+q", o)
	for i := 0; i < len(text); {
		n := len(text[i:]) - len(strings.TrimLeft(text[i:], text[i:i+1]))
		if n > 40 {
			fmt.Fprintf(&b, "(%d times %c)", n, text[i])
		} else {
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}

// beyondLength reports whether a program may copy more than its declared length. Go 1.26 sends the
// excess, later versions don't.
func beyondLength(code []byte) bool {
	const first, last = 77, 81 // the steps that copy
	lengths, copies := false, false
	for _, op := range code {
		step := int(op) % len(steps)
		lengths = lengths || step == 7 || 35 < step && step < 39 || step == serveContent
		copies = copies || step == 30 || first <= step && step <= last || step == serveContent
	}
	return lengths && copies && strings.HasPrefix(runtime.Version(), "go1.26")
}

// serveContent is the index of the step that declares a length and copies that many bytes.
const serveContent = 84

// TestSameAnswer: each step alone, each pair of steps, and some triples.
func TestSameAnswer(t *testing.T) {
	settings := []setting{{}, {narrow: true}, {off: true}}
	for i, start := range starts {
		wantSameAnswer(t, start, setting{}, nil)
		for a := range steps {
			wantSameAnswer(t, start, settings[(a+i)%len(settings)], []byte{byte(a)})
		}
	}
	n := 0
	for a := range steps {
		for b := range steps {
			n++
			wantSameAnswer(t, starts[n%len(starts)], settings[n%7%len(settings)], []byte{byte(a), byte(b), 24})
		}
	}
}

// TestSameAnswerToLongBody: if the rest of a body is too long to read, the connection is closed and
// the answer says so.
func TestSameAnswerToLongBody(t *testing.T) {
	for _, code := range [][]byte{{24}, {13, 24}, {45, 28}, {85, 24}, {86, 24}, {87, 24}, {47, 32, 64}} {
		wantSameAnswer(t, tooLong, setting{}, code)
	}
}

func FuzzSameAnswer(f *testing.F) {
	f.Add(byte(0), []byte{14, 24, 29, 15})
	f.Add(byte(1), []byte{7, 24})
	f.Add(byte(3), []byte{26, 26, 16, 28})
	f.Add(byte(10), []byte{2, 17, 63, 15, 24})
	f.Add(byte(0x40), []byte{58, 33, 30, 77})         // a chunk ends at the end of the buffer
	f.Add(byte(0x40), []byte{60, 52, 15, 28, 53, 72}) // a header and trailers beyond the buffer
	f.Fuzz(func(t *testing.T, kind byte, code []byte) {
		if len(code) > 12 {
			code = code[:12]
		}
		wantSameAnswer(t, starts[int(kind&0x3f)%len(starts)], setting{off: kind&0x80 != 0, narrow: kind&0x40 != 0}, code)
	})
}

// TestReadFromWithLength: a file's bytes go straight to the connection, and never beyond the declared
// length (Go 1.27).
func TestReadFromWithLength(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, bytes.Repeat([]byte("0123456789"), 200), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		limited    bool
		length, n  int64
		written    int
		err        error
		wantReused bool
	}{
		{false, 2000, 2000, 2000, nil, true},
		{true, 2000, 2000, 2000, nil, true},
		{false, 2001, 2000, 2000, nil, false},
		{false, 1999, 1999, 1999, http.ErrContentLength, true},
		{true, 1999, 1999, 1999, http.ErrContentLength, true},
		{false, 100, 0, 0, http.ErrContentLength, false},
	} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = f
		limited := &io.LimitedReader{R: f, N: 2000}
		if test.limited {
			r = limited
		}
		c := new(wire)
		req, _ := http.NewRequest("GET", "/", nil)
		w := newResponse(c, req)
		w.Header().Set("Content-Length", fmt.Sprint(test.length))
		n, err := w.ReadFrom(r)
		reused := w.Finish()
		_, _ = c.Write(w.Out())
		_, sent, _ := bytes.Cut(c.Bytes(), []byte("\r\n\r\n"))
		if n != test.n || !errors.Is(err, test.err) || len(sent) != test.written || reused != test.wantReused {
			t.Errorf("%+v: got %d bytes, %v, %d on the wire, reusable %v", test, n, err, len(sent), reused)
		}
		if left := limited.N; test.limited && test.err != nil && left != 0 {
			t.Errorf("%+v: got a limit of %d afterwards, want 0: one more byte was read", test, left)
		}
		f.Close()
	}
}

// TestFullDuplex: the answer does not wait for the request's body.
func TestFullDuplex(t *testing.T) {
	c := &wire{body: &body{r: bytes.NewReader([]byte("abc")), left: 3}}
	r, _ := http.NewRequest("POST", "/", strings.NewReader("abc"))
	w := newResponse(c, r)
	w.EnableFullDuplex()
	w.Flush()
	if c.body.closed {
		t.Error("the body is read before the answer is sent")
	}
}

// TestAfterFinish: a handler's late calls have no effect.
func TestAfterFinish(t *testing.T) {
	c := new(wire)
	r, _ := http.NewRequest("GET", "/", nil)
	w := newResponse(c, r)
	_, _ = w.Write([]byte("answer"))
	w.Finish()
	_, _ = c.Write(w.Out())
	before := c.Len()
	if n, err := w.Write([]byte("stray")); n != 0 || err == nil {
		t.Errorf("Write: got %d, %v, want an error", n, err)
	}
	if n, err := w.WriteString("stray"); n != 0 || err == nil {
		t.Errorf("WriteString: got %d, %v, want an error", n, err)
	}
	w.Flush()
	w.WriteHeader(500)
	_, _ = w.ReadFrom(strings.NewReader("stray"))
	if c.Len() != before || len(w.Out()) > 0 {
		t.Errorf("stray calls: got %q, want nothing", c.String()[before:])
	}
}

// TestWaitingHoldsNothing: a Response holds no buffers before the handler writes, nor between a
// Flush and the next Write.
func TestWaitingHoldsNothing(t *testing.T) {
	const sizeMax = 256
	if size := unsafe.Sizeof(Response{}); size > sizeMax {
		t.Errorf("Response: got %d bytes, want %d at most", size, sizeMax)
	}
	r, _ := http.NewRequest("GET", "/", nil)
	w := newResponse(new(wire), r)
	for _, do := range []func(){
		func() {},
		func() { w.Header().Set("A", "b") },
		func() { w.WriteHeader(103) },
		func() { _, _ = w.Write([]byte("x")); w.Flush() },
		func() { _, _ = w.WriteString(strings.Repeat("x", 10000)); w.Flush() },
	} {
		do()
		if w.body != nil || w.out != nil {
			t.Errorf("got %d and %d bytes of memory, want none", cap(w.body), cap(w.out))
		}
	}
}

// failingWire is a wire whose client has gone.
type failingWire struct{ wire }

func (c *failingWire) Write([]byte) (int, error)         { return 0, net.ErrClosed }
func (c *failingWire) ReadFrom(io.Reader) (int64, error) { return 0, net.ErrClosed }

// TestFailingConn: a handler learns that the connection has failed, and the connection is not used
// again.
func TestFailingConn(t *testing.T) {
	for name, write := range map[string]func(w *Response) error{
		"Write":       func(w *Response) error { _, err := w.Write(make([]byte, 10000)); return err },
		"WriteString": func(w *Response) error { _, err := w.WriteString(strings.Repeat("x", 10000)); return err },
		"ReadFrom":    func(w *Response) error { _, err := w.ReadFrom(bytes.NewReader(make([]byte, 10000))); return err },
		"Flush":       func(w *Response) error { return w.FlushError() },
	} {
		r, _ := http.NewRequest("GET", "/", nil)
		w := newResponse(new(failingWire), r)
		if err := write(w); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got %v, want net.ErrClosed", name, err)
		}
		if w.Finish() {
			t.Errorf("%s: got a reusable connection", name)
		}
	}
}

// cutConn is a connection that takes some bytes and then fails, in the middle of a Write.
type cutConn struct {
	net.Conn
	left int
}

var errCut = errors.New("cut")

func (c *cutConn) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if n < len(p) {
		return n, errCut
	}
	return n, nil
}

// A cutWire is a Conn whose bytes go to a cutConn.
type cutWire struct {
	*wire
	to *cutConn
}

func (c cutWire) Write(p []byte) (int, error) { return c.to.Write(p) }

// TestCountOfFailedWrites: a handler learns how many of its bytes were taken before the connection
// failed. Access logs and metrics report this count.
func TestCountOfFailedWrites(t *testing.T) {
	programs := [][]func(*stage){
		{func(s *stage) { s.write(strings.Repeat("a", 100000)) }},
		{func(s *stage) { s.set("Content-Length", "100000") }, func(s *stage) { s.write(strings.Repeat("a", 100000)) }},
		{func(s *stage) { s.writeString(strings.Repeat("a", 20000)) }},
		{func(s *stage) { s.copy(struct{ io.Reader }{strings.NewReader(strings.Repeat("a", 100000))}) }},
		{func(s *stage) { s.copy(strings.NewReader(strings.Repeat("a", 20000))) }},
		{
			func(s *stage) { s.write(strings.Repeat("a", 1500)) },
			func(s *stage) { s.write(strings.Repeat("b", 4000)) },
			func(s *stage) { s.write(strings.Repeat("c", 5000)) },
		},
		{
			func(s *stage) { s.write("a") },
			func(s *stage) { http.NewResponseController(s.ResponseWriter).Flush() },
			func(s *stage) { s.write(strings.Repeat("b", 5000)) },
		},
		{ // a Write fails no earlier than with net/http: not because a Flush has
			func(s *stage) { s.write("a") },
			func(s *stage) { fmt.Fprintln(s.notes, http.NewResponseController(s.ResponseWriter).Flush()) },
			func(s *stage) { s.write("b") },
			func(s *stage) { s.writeString("c") },
			func(s *stage) { fmt.Fprintln(s.notes, http.NewResponseController(s.ResponseWriter).Flush()) },
			func(s *stage) { s.write("d") },
			func(s *stage) { s.write(strings.Repeat("e", 3000)) },
			func(s *stage) { s.write("f") },
		},
		{
			func(s *stage) { s.set("Content-Length", "9000") },
			func(s *stage) { s.write("a") },
			func(s *stage) { fmt.Fprintln(s.notes, http.NewResponseController(s.ResponseWriter).Flush()) },
			func(s *stage) { s.write(strings.Repeat("b", 2047)) },
			func(s *stage) { s.write(strings.Repeat("c", 2047)) },
			func(s *stage) { s.write(strings.Repeat("d", 2047)) },
			func(s *stage) { s.writeString(strings.Repeat("e", 100)) },
		},
	}
	for _, method := range []string{"GET", "HEAD"} {
		start := method + " / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
		for i, program := range programs {
			for _, taken := range []int{0, 1, 100, 200, 2048, 4000, 4096, 4097, 4300, 6000, 8192, 50000, 90000} {
				handler := func(notes *strings.Builder) http.HandlerFunc {
					return func(w http.ResponseWriter, r *http.Request) {
						for _, step := range program {
							step(&stage{w, r, notes})
						}
					}
				}
				var got, want strings.Builder
				r, _ := http.ReadRequest(bufio.NewReader(strings.NewReader(start)))
				w := newResponse(narrowWire{cutWire{new(wire), &cutConn{left: taken}}}, r)
				handler(&got)(controlled{w}, r)
				w.Finish()
				w.Out()

				l := make(pipes, 1)
				client, server := net.Pipe()
				_ = client.SetDeadline(time.Now().Add(time.Minute))
				l <- &cutConn{Conn: server, left: taken}
				srv := &http.Server{Handler: handler(&want), ErrorLog: log.New(io.Discard, "", 0)}
				var ended sync.WaitGroup
				ended.Go(func() { _ = srv.Serve(l) })
				_, _ = io.WriteString(client, start)
				_, _ = io.ReadAll(client)
				_ = srv.Shutdown(context.Background())
				ended.Wait()
				if got.String() != want.String() {
					t.Errorf("%s, program %d, %d bytes taken: got\n%swant\n%s", method, i, taken, got.String(), want.String())
				}
			}
		}
	}
}

// TestAllocations: the allocations of a request and its answer, including the handler's.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget: run it without -race")
	}
	for _, test := range []struct {
		name, head string
		most       float64 // Request, its parts, text, Header; Response, its Header (two), the handler's value
	}{
		{"bare", bare, 8},
		{"browser", browser, 11}, // and the parts of a larger map
	} {
		c, p := new(quietWire), []byte(test.head)
		got := testing.AllocsPerRun(100, func() {
			copy(p, test.head)
			serveHello(t, c, p)
		})
		if got > test.most {
			t.Errorf("%s: got %v allocations, want %v at most", test.name, got, test.most)
		}
	}
}

// serveHello parses a request and answers it.
func serveHello(t testing.TB, c Conn, p []byte) {
	var h Head
	if h.Scan(p, 4<<10) != Plain {
		t.Fatal("not taken")
	}
	r := new(http.Request)
	_ = h.Request(context.Background(), p, r)
	w := newResponse(c, r)
	hello.ServeHTTP(w, r)
	w.Finish()
	out := w.Out()
	_, _ = c.Write(out)
	ReleaseOut(out)
}

// hello is a handler whose code the compiler can't see.
var hello http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "Hello, world\n")
})

// BenchmarkServe parses a request and answers it, in memory.
func BenchmarkServe(b *testing.B) {
	for _, head := range []struct{ name, text string }{{"bare", bare}, {"browser", browser}} {
		b.Run(head.name, func(b *testing.B) {
			c, p := new(quietWire), []byte(head.text)
			b.ReportAllocs()
			for b.Loop() {
				copy(p, head.text)
				serveHello(b, c, p)
			}
		})
	}
}

// quietWire is a wire that discards everything.
type quietWire struct{ wire }

func (c *quietWire) Write(p []byte) (int, error) { return len(p), nil }

// bare is a request as wrk sends it, browser has ten more fields.
const (
	bare    = "GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
	browser = "GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n" +
		"sec-ch-ua: \"Chromium\";v=\"146\", \"Not-A.Brand\";v=\"24\"\r\nsec-ch-ua-mobile: ?0\r\n" +
		"Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 " +
		"(KHTML, like Gecko) Chrome/146.0.0.0 Safari/537.36\r\nAccept: text/html,application/xhtml+xml,application/xml;" +
		"q=0.9,image/avif,image/webp,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n" +
		"Accept-Language: en-GB,en;q=0.9\r\nCookie: session=0123456789abcdef; theme=dark\r\n\r\n"
)

// stumblingWire is a wire on which one Write fails.
type stumblingWire struct {
	wire
	failed bool
}

func (c *stumblingWire) Write(p []byte) (int, error) {
	if c.failed {
		return c.wire.Write(p)
	}
	c.failed = true
	return 0, net.ErrClosed
}

// If part of an answer could not be sent, nothing follows it, even if the connection works again.
// It does so when the handler moves a deadline.
func TestNothingFollowsFailure(t *testing.T) {
	c := new(stumblingWire)
	w := newResponse(c, &http.Request{Method: "GET"})
	_, _ = w.Write([]byte("lost"))
	w.Flush()
	_, _ = w.Write([]byte("more"))
	w.Flush()
	reusable := w.Finish()
	if out := w.Out(); reusable || len(out) > 0 || c.Len() > 0 {
		t.Errorf("got %t, %q behind %q, want nothing", reusable, out, c.String())
	}
}
