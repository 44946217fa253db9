package main

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestServeHTTP(t *testing.T) {
	s := startServers(t)
	writeFile(t, s.dir, "hello.txt", "hello, file")
	writeFile(t, s.dir, "sub/a#b?.txt", "odd name")
	testFiles(t, s)
	testEcho(t, s)
	testClock(t, s)
	testDownload(t, s)
	s.stop()
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// check fetches a page, and checks the status and the body.
func (s *servers) check(method, path string, header http.Header, body io.Reader, wantStatus int, want string) *http.Response {
	s.t.Helper()
	resp, got := s.fetch(method, path, header, body)
	if resp.StatusCode != wantStatus || got != want {
		s.t.Errorf("%s %.40s: got %s and body %.40q, want %d and %.40q", method, path, resp.Status, got, wantStatus, want)
	}
	return resp
}

func testFiles(t *testing.T, s *servers) {
	s.check("GET", "/hello.txt", nil, nil, 200, "hello, file")
	s.check("GET", "/hello.txt", http.Header{"Range": {"bytes=7-"}}, nil, 206, "file")
	s.check("HEAD", "/hello.txt", nil, nil, 200, "")
	s.check("GET", "/sub/"+url.PathEscape("a#b?.txt"), nil, nil, 200, "odd name")
	for _, path := range []string{"/missing", "/hello.txt/deeper", "/hello.txt%00", "/" + strings.Repeat("n", 300)} {
		if resp, _ := s.fetch("GET", path, nil, nil); resp.StatusCode != 404 {
			t.Errorf("%.20s: got %s, want 404", path, resp.Status)
		}
	}
	resp, body := s.fetch("GET", "/sub/", nil, nil)
	if resp.StatusCode != 200 || !strings.Contains(body, "a%23b%3F.txt") {
		t.Errorf("a subdirectory: got %s and body %q, want 200 and a listing", resp.Status, body)
	}
}

func testEcho(t *testing.T, s *servers) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "FROB"} {
		resp := s.check(method, "/echo", http.Header{"Content-Type": {"text/x-test"}}, strings.NewReader("hello"), 200, "hello")
		if got := resp.Header.Get("Content-Type"); got != "text/x-test" {
			t.Errorf("%s: Content-Type: got %q, want the request's", method, got)
		}
	}
	s.check("POST", "/echo", nil, nil, 200, "")
	_, body := s.fetch("GET", "/echo?q=1", http.Header{"X-Test": {"seen"}}, nil)
	for _, want := range []string{"GET /echo?q=1 HTTP/1.1\r\n", "X-Test: seen\r\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("GET without a body: got %q, want %q in it", body, want)
		}
	}
}

func testClock(t *testing.T, s *servers) {
	resp := s.do("GET", "/clock", nil, nil)
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	var last time.Time
	for ticks := 0; ticks < 2; {
		if !in.Scan() {
			t.Fatalf("after %d events: %v", ticks, in.Err())
		}
		if text, ok := strings.CutPrefix(in.Text(), "data:"); ok {
			now, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(text))
			if err != nil || !now.After(last) {
				t.Errorf("event %d: got %q, %v, want a time after %v", ticks, text, err, last)
			}
			last = now
			ticks++
		}
	}
}

func testDownload(t *testing.T, s *servers) {
	if resp := s.check("HEAD", "/download", nil, nil, 200, ""); resp.ContentLength != 1<<30 {
		t.Errorf("the default: got %d bytes, want %d", resp.ContentLength, 1<<30)
	}
	s.check("GET", "/download?size=3145728", nil, nil, 200, strings.Repeat("\x00", 3<<20))
	s.check("GET", "/download?size=0", nil, nil, 200, "")
	s.check("GET", "/download?size=1099511627776", http.Header{"Range": {"bytes=-7"}}, nil, 206, strings.Repeat("\x00", 7))
	for _, size := range []string{"huge", "-1", "1.5", "9223372036854775808"} {
		if resp, _ := s.fetch("GET", "/download?size="+url.QueryEscape(size), nil, nil); resp.StatusCode != 400 {
			t.Errorf("size=%s: got %s, want 400", size, resp.Status)
		}
	}
}

// TestNothingOutside asks for files above the served directory in every spelling. Requests are raw:
// clients clean their paths.
func TestNothingOutside(t *testing.T) {
	above := t.TempDir()
	dir, secret := filepath.Join(above, "served"), filepath.Join(above, "secret")
	writeFile(t, above, "secret", "top secret")
	writeFile(t, dir, "sub/hello.txt", "hello, file")
	if err := errors.Join(os.Symlink(secret, filepath.Join(dir, "link")), os.Symlink("..", filepath.Join(dir, "up"))); err != nil {
		t.Skip("no symbolic links here; set TMPDIR to a file system that has them: ", err)
	}
	d, err := newDemo(serveOptions{dir: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	for _, target := range []string{
		"/../secret", "/..%2fsecret", "/%2e%2e/secret", "/%2e%2e%2fsecret", "/sub/../../secret",
		"/..\\secret", "/sub/%2e%2e/%2e%2e/secret", "//" + secret, "/%2f" + secret, secret, "/./../secret",
		"/link", "/up/secret", "/up/", "/sub/../link",
	} {
		rec := httptest.NewRecorder()
		d.handler().ServeHTTP(rec, httptest.NewRequest("GET", target, nil))
		body := rec.Body.String()
		if strings.Contains(body, "top secret") || strings.Contains(body, "hello, file") || rec.Code == 200 || rec.Code >= 500 {
			t.Errorf("GET %s: got %d and %q, want it refused", target, rec.Code, body)
		}
	}
}
