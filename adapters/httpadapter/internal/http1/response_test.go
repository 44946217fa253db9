package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is a Conn in memory.
type wire struct {
	bytes.Buffer
	body io.Reader
	log  *bytes.Buffer
}

func (c *wire) KeepAlives() bool { return true }

func (c *wire) FinishBody() (reusable, tooLong bool) {
	n, err := io.CopyN(io.Discard, c.body, 256<<10+1)
	return errors.Is(err, io.EOF), n > 256<<10
}

func (c *wire) Logf(format string, args ...any) { fmt.Fprintf(c.log, format+"\n", args...) }

// A step is one thing that a handler does.
type step func(w http.ResponseWriter, note func(format string, args ...any))

// steps are what a program of the tests is made of.
var steps = []step{
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Content-Type", "text/x") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("X-One", "1\r\nX-Injected: 2") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Add("A-Many", " a ") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header()["odd name"] = []string{"x"} },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header()["lower"] = []string{"x", "y"} },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header()["Date"] = nil },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header()["Content-Type"] = nil },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Content-Length", "5") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Content-Length", "none") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Content-Encoding", "gzip") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Transfer-Encoding", "identity") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Transfer-Encoding", "chunked") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Connection", "close") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("Connection", "Close, x") },
	func(w http.ResponseWriter, _ func(string, ...any)) {
		w.Header().Set("Trailer", "X-T, Content-Length,, x-u")
	},
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set("X-T", "t") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.Header().Set(http.TrailerPrefix+"X-P", "p") },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(200) },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(204) },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(304) },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(404) },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(599) },
	func(w http.ResponseWriter, _ func(string, ...any)) { w.WriteHeader(103) },
	func(w http.ResponseWriter, note func(string, ...any)) { noteWrite(w, note, "", false) },
	func(w http.ResponseWriter, note func(string, ...any)) { noteWrite(w, note, "hello", false) },
	func(w http.ResponseWriter, note func(string, ...any)) { noteWrite(w, note, "<html>", true) },
	func(w http.ResponseWriter, note func(string, ...any)) {
		noteWrite(w, note, strings.Repeat("x", 2000), false)
	},
	func(w http.ResponseWriter, note func(string, ...any)) {
		noteWrite(w, note, strings.Repeat("y", 2048), true)
	},
	func(w http.ResponseWriter, note func(string, ...any)) {
		noteWrite(w, note, strings.Repeat("z", 9000), false)
	},
	func(w http.ResponseWriter, note func(string, ...any)) {
		note("flush %v", http.NewResponseController(w).Flush())
	},
	func(w http.ResponseWriter, note func(string, ...any)) {
		n, err := io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("c", 3000)), 3000))
		note("copied %d %v", n, err)
	},
	func(w http.ResponseWriter, note func(string, ...any)) { http.Error(w, "no", 500) },
	func(w http.ResponseWriter, note func(string, ...any)) { w.Header().Set("Upgrade", "x") },
}

func noteWrite(w http.ResponseWriter, note func(string, ...any), s string, asString bool) {
	var n int
	var err error
	if asString {
		n, err = io.WriteString(w, s)
	} else {
		n, err = w.Write([]byte(s))
	}
	note("wrote %d %v", n, err)
}

// program is a handler that takes steps, one for each byte, and what it notes.
func program(code []byte, notes *strings.Builder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			fmt.Fprint(w, "the end")
			return
		}
		for _, op := range code {
			steps[int(op)%len(steps)](w, func(format string, args ...any) { fmt.Fprintf(notes, format+"\n", args...) })
		}
	}
}

// outcome is what came of a program: the bytes on the wire, the handler's notes, the error log.
type outcome struct{ wire, notes, log string }

var dates = regexp.MustCompile(`(?m)^Date: .*\r$`)

// here serves the requests by this package.
func here(t testing.TB, input []byte, code []byte) outcome {
	t.Helper()
	var notes strings.Builder
	c := &wire{log: new(bytes.Buffer)}
	handler := program(code, &notes)
	for len(input) > 0 {
		var h Head
		if v := h.Scan(input, 4<<10); v != Plain {
			t.Fatalf("%q: got %v, want plain", input, v)
		}
		r, _ := h.Request(context.Background(), input, new(Message))
		input = input[h.Bytes:]
		body := bytes.NewReader(input[:h.ContentLength])
		input = input[h.ContentLength:]
		c.body = body
		r.Body = io.NopCloser(body)
		w := NewResponse(c, r, nil)
		handler(w, r)
		reusable := w.Finish()
		_, _ = c.Write(w.Out())
		if !reusable {
			break
		}
	}
	return outcome{dates.ReplaceAllString(c.String(), "Date: now\r"), notes.String(), callers.ReplaceAllString(c.log.String(), "")}
}

// callers matches the part of a log line that says where a call came from.
var callers = regexp.MustCompile(` from .*`)

// onNetHTTP serves the requests by net/http.
func onNetHTTP(t testing.TB, input []byte, code []byte) outcome {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		notes strings.Builder
		lines bytes.Buffer
		ended sync.WaitGroup
	)
	srv := &http.Server{Handler: program(code, &notes), ErrorLog: log.New(&lines, "", 0)}
	ended.Go(func() { _ = srv.Serve(ln) })
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	if _, err := nc.Write(input); err != nil {
		t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Fatalf("reading net/http's answer: %v", err)
	}
	nc.Close()
	_ = srv.Shutdown(context.Background())
	ended.Wait()
	return outcome{dates.ReplaceAllString(string(got), "Date: now\r"), notes.String(), callers.ReplaceAllString(lines.String(), "")}
}

// starts are the requests that programs answer.
var starts = []string{
	"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
}

// wantSameAnswer runs a program both ways.
func wantSameAnswer(t testing.TB, start byte, code []byte) {
	t.Helper()
	if len(code) > 12 {
		code = code[:12]
	}
	input := []byte(starts[int(start)%len(starts)] + "GET /end HTTP/1.1\r\nHost: h\r\n\r\n")
	if got, want := here(t, input, code), onNetHTTP(t, input, code); got != want {
		t.Errorf("%q, steps %v:\n got %+q\nwant %+q", input, code, got, want)
	}
}

// TestSameAnswer: each step by itself, each pair of steps, and some triples.
func TestSameAnswer(t *testing.T) {
	for start := range starts {
		wantSameAnswer(t, byte(start), nil)
		for a := range steps {
			wantSameAnswer(t, byte(start), []byte{byte(a)})
		}
	}
	for a := range steps {
		for b := range steps {
			wantSameAnswer(t, byte(a+b), []byte{byte(a), byte(b), 24})
		}
	}
}

func FuzzSameAnswer(f *testing.F) {
	f.Add(byte(0), []byte{14, 24, 29, 15})
	f.Add(byte(1), []byte{7, 24})
	f.Add(byte(3), []byte{26, 26, 16, 28})
	f.Fuzz(func(t *testing.T, start byte, code []byte) { wantSameAnswer(t, start, code) })
}

// TestAfterFinish: a handler's stray calls reach nothing.
func TestAfterFinish(t *testing.T) {
	c := &wire{log: new(bytes.Buffer)}
	r, _ := http.NewRequest("GET", "/", nil)
	w := NewResponse(c, r, nil)
	_, _ = w.Write([]byte("answer"))
	w.Finish()
	_, _ = c.Write(w.Out())
	before := c.Len()
	if n, err := w.Write([]byte("stray")); n != 0 || err == nil {
		t.Errorf("Write: got %d, %v, want an error", n, err)
	}
	w.Flush()
	w.WriteHeader(500)
	_, _ = w.ReadFrom(strings.NewReader("stray"))
	if c.Len() != before || len(w.Out()) > 0 {
		t.Errorf("stray calls: got %q, want nothing", c.String()[before:])
	}
}

func BenchmarkResponse(b *testing.B) {
	b.ReportAllocs()
	r, _ := http.NewRequest("GET", "/", nil)
	c := &wire{log: new(bytes.Buffer)}
	out := make([]byte, 0, 4096)
	hello := []byte("Hello, world\n")
	for b.Loop() {
		w := NewResponse(c, r, out[:0])
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(hello)
		w.Finish()
		out = w.Out()
	}
}
