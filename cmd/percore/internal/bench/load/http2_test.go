package load

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// http2Server serves h over HTTP/2, in clear or over TLS, and returns its address.
func http2Server(t *testing.T, tls bool, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.Protocols.SetHTTP2(true)
	if tls {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// openHTTP2 opens a session of a job.
func openHTTP2(t *testing.T, job Job) *http2Session {
	t.Helper()
	s, err := http2Opener(job)(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	s.setDeadline(time.Now().Add(testnet.HangTimeout))
	return s.(*http2Session)
}

// TestHTTP2 sends requests of each kind to net/http's server, which must see all of them, and
// nothing else.
func TestHTTP2(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 200<<10)
	for _, c := range []struct {
		name string
		job  Job
	}{
		{"one at a time", Job{}},
		{"many", Job{Streams: 50}},
		{"TLS", Job{Streams: 2, TLS: true}},
		{"a browser", Job{Browser: true}},
		{"uploads", Job{Payload: 300 << 10, Streams: 7, Path: "/up"}},
		{"small uploads over TLS", Job{Payload: 1, TLS: true}},
		{"downloads", Job{Path: "/long", Streams: 3}},
		{"small windows", Job{Path: "/long", Streams: 3, Window: 1 << 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var requests atomic.Int64
			c.job.Addr = http2Server(t, c.job.TLS, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				body, err := io.ReadAll(r.Body)
				if err != nil || len(body) != c.job.Payload || r.ProtoMajor != 2 || r.Host != c.job.Addr {
					t.Errorf("got %s for %s with %d bytes, %v; want %d", r.Proto, r.Host, len(body), err, c.job.Payload)
				}
				if browser := r.Header.Get("User-Agent") != ""; browser != c.job.Browser || browser && len(r.Header) != 11 {
					t.Errorf("got the fields %q", r.Header)
				}
				if r.URL.Path == "/long" {
					w.Write(long)
				}
			})
			s := openHTTP2(t, c.job)
			for range 2 {
				if err := s.op(); err != nil {
					t.Fatal(err)
				}
			}
			left, recorded := 20, 0
			stop := func() bool { left--; return left < 0 }
			record := func(d time.Duration) {
				if recorded++; d < 0 || d > testnet.HangTimeout {
					t.Errorf("a request took %v", d)
				}
			}
			if err := s.loop(stop, record); err != nil {
				t.Fatal(err)
			}
			if err := s.send(); err != nil {
				t.Fatal(err)
			}
			if err := s.receive(); err != nil {
				t.Fatal(err)
			}
			if recorded != 21 { // the first is not for stop to decide
				t.Errorf("%d requests were recorded, want 21", recorded)
			}
			if got, want := requests.Load(), int64(2+21+max(1, c.job.Streams)); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
			if c.name == "downloads" && s.content != len(long) {
				t.Errorf("%d bytes of an answer, want %d", s.content, len(long))
			}
		})
	}
}

// endingServer ends its side of each connection at once, and takes what comes. It returns its address.
func endingServer(t *testing.T) string {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	return ln.Addr().String()
}

// TestHTTP2Refusals: wrong answers are errors.
func TestHTTP2Refusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler func(n int, w http.ResponseWriter)
		want    string
	}{
		{"status", func(_ int, w http.ResponseWriter) { w.WriteHeader(404) }, "unexpected answer"},
		{"reset", func(int, http.ResponseWriter) { panic(http.ErrAbortHandler) }, "has reset stream 1: code 2"},
		{"length", func(n int, w http.ResponseWriter) { w.Write(make([]byte, n)) }, "an answer of 2 bytes after one of 1"},
		{"no HTTP/2", nil, "read answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var n atomic.Int64
			h := func(w http.ResponseWriter, r *http.Request) { c.handler(int(n.Add(1)), w) }
			job := Job{Addr: http2Server(t, false, h)}
			if c.handler == nil {
				job.Addr = endingServer(t)
			}
			s := openHTTP2(t, job)
			err := s.op()
			if err == nil {
				err = s.op()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	testnet.NoLeaks(t)
	addr := http2Server(t, false, nil)
	if _, err := http2Opener(Job{Addr: addr, TLS: true})(0); err == nil || !strings.Contains(err.Error(), "TLS handshake") {
		t.Errorf("TLS with a server in clear: error %v", err)
	}
}

// feed is a connection whose reads return what a server sends, in pieces.
type feed struct {
	net.Conn
	pieces
	sent []byte
}

func (f *feed) Read(p []byte) (int, error) { return f.pieces.Read(p) }

func (f *feed) Write(p []byte) (int, error) {
	f.sent = append(f.sent, p...)
	return len(p), nil
}

// TestHTTP2Pieces cuts what a server sends everywhere.
func TestHTTP2Pieces(t *testing.T) {
	var b []byte
	b = append(appendFrame(b, frameSettings, 0, 0, 6), 0, settingInitialWindow, 0, 0, 0, 9)
	b = append(appendFrame(b, framePing, 0, 0, 8), "12345678"...)
	b = append(appendFrame(b, frameHeaders, flagEndHeaders, 1, 5), 0x3f, 0xe1, 0x1f, 0x20, 0x88)
	b = appendWindowUpdate(b, 0, 5)
	b = append(appendFrame(b, frameData, 0, 1, 3), "abc"...)
	b = append(appendFrame(b, 0xee, 0, 0, 2000), make([]byte, 2000)...) // of a type that doesn't exist
	b = append(appendFrame(b, frameData, flagEndStream, 1, 2), "de"...)
	b = appendFrame(b, frameSettings, flagAck, 0, 0)
	tail := appendFrame(nil, framePing, flagAck, 0, 8)
	req := newHTTP2Request(Job{Addr: "h:1"})
	want := ""
	for n := 1; n < len(b); n++ {
		c := &feed{pieces: pieces{t, string(b), n}}
		s := newHTTP2Session(c, req, 1)
		if err := s.op(); err != nil {
			t.Fatalf("pieces of %d: %v", n, err)
		}
		if s.content != 5 || s.window != http2Window+5 || s.streamWindow != 9 {
			t.Fatalf("pieces of %d: %d bytes of a body, windows of %d and %d", n, s.content, s.window, s.streamWindow)
		}
		if want == "" {
			want = string(c.sent)
		}
		if string(c.sent) != want || !bytes.HasPrefix(c.sent, req.hello) || !bytes.Contains(c.sent, []byte("12345678")) {
			t.Fatalf("pieces of %d: it has sent %q", n, c.sent)
		}
	}
	for _, bad := range []struct {
		frames []byte
		want   string
	}{
		{append(appendFrame(nil, frameData, 0, 3, 0), tail...), "DATA of stream 3"},
		{append(appendFrame(nil, frameHeaders, flagEndHeaders, 3, 1), 0x88), "HEADERS of stream 3"},
		{append(appendFrame(nil, frameHeaders, 0, 1, 1), 0x88), "HEADERS of stream 1 with the flags 0x0"},
		{append(appendFrame(nil, frameGoAway, 0, 0, 10), "\x00\x00\x00\x01\x00\x00\x00\x0bno"...), `goes away: code 11, "no"`},
		{appendFrame(nil, frameData, flagEndStream, 1, 0), "without a header"},
	} {
		s := newHTTP2Session(&feed{pieces: pieces{t, string(bad.frames), 100}}, req, 1)
		if err := s.op(); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: error %v, want one with %q", bad.frames, err, bad.want)
		}
	}
}

// TestAppendString has lengths around those that take another byte.
func TestAppendString(t *testing.T) {
	for n, want := range map[int]string{0: "\x00", 126: "\x7e", 127: "\x7f\x00", 254: "\x7f\x7f", 255: "\x7f\x80\x01", 16639: "\x7f\x80\x81\x01"} {
		s := strings.Repeat("s", n)
		if got := appendString(nil, s); string(got) != want+s {
			t.Errorf("%d bytes begin with %q, want %q", n, fmt.Sprintf("%.4s", got), want)
		}
	}
}
