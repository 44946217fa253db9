package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestServeHTTP(t *testing.T) {
	s := startServers(t)
	writeFile(t, s.dir, "hello.txt", "hello, file")
	writeFile(t, s.dir, "sub/a#b?.txt", "odd name")
	for name, test := range map[string]func(*testing.T, *servers){
		"files":    testFiles,
		"echo":     testEcho,
		"clock":    testClock,
		"download": testDownload,
		"outside":  testNothingOutside,
	} {
		t.Run(name, func(t *testing.T) { test(t, s.in(t)) })
	}
	s.stop()
}

// in is s for a subtest t.
func (s *servers) in(t *testing.T) *servers {
	c, cmd := *s, *s.command
	cmd.t, c.command = t, &cmd
	return &c
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

// checkBody checks the status and the body of a response.
func checkBody(t *testing.T, what string, resp *http.Response, body string, wantStatus int, wantBody string) {
	t.Helper()
	if resp.StatusCode != wantStatus || body != wantBody {
		t.Errorf("%s: got %d and body %q, want %d and %q", what, resp.StatusCode, body, wantStatus, wantBody)
	}
}

func testFiles(t *testing.T, s *servers) {
	resp, body := s.fetch("GET", "/hello.txt", nil, nil)
	checkBody(t, "a file", resp, body, 200, "hello, file")
	resp, body = s.fetch("GET", "/hello.txt", http.Header{"Range": {"bytes=7-"}}, nil)
	checkBody(t, "a range of a file", resp, body, 206, "file")
	resp, body = s.fetch("HEAD", "/hello.txt", nil, nil)
	checkBody(t, "HEAD of a file", resp, body, 200, "")
	resp, body = s.fetch("GET", "/sub/"+url.PathEscape("a#b?.txt"), nil, nil)
	checkBody(t, "a file with an odd name", resp, body, 200, "odd name")
	for _, path := range []string{"/missing", "/hello.txt/deeper", "/hello.txt%00", "/" + strings.Repeat("n", 300)} {
		if resp, _ = s.fetch("GET", path, nil, nil); resp.StatusCode != 404 {
			t.Errorf("%.20s: got %s, want 404", path, resp.Status)
		}
	}
	resp, body = s.fetch("GET", "/sub/", nil, nil)
	if resp.StatusCode != 200 || !strings.Contains(body, "a%23b%3F.txt") {
		t.Errorf("a subdirectory: got %s and body %q, want 200 and a listing", resp.Status, body)
	}
}

func testEcho(t *testing.T, s *servers) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "FROB"} {
		resp, body := s.fetch(method, "/echo", http.Header{"Content-Type": {"text/x-test"}}, strings.NewReader("hello"))
		checkBody(t, method, resp, body, 200, "hello")
		if got := resp.Header.Get("Content-Type"); got != "text/x-test" {
			t.Errorf("%s: Content-Type: got %q, want the request's", method, got)
		}
	}
	resp, body := s.fetch("POST", "/echo", nil, nil)
	checkBody(t, "POST of nothing", resp, body, 200, "")
	_, body = s.fetch("GET", "/echo?q=1", http.Header{"X-Test": {"seen"}}, nil)
	for _, want := range []string{"GET /echo?q=1 HTTP/1.1\r\n", "X-Test: seen\r\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("GET without a body: got %q, want %q in it", body, want)
		}
	}
	t.Run("large", func(t *testing.T) { testEchoLarge(t, s.in(t)) })
	t.Run("streaming", func(t *testing.T) { testEchoStreaming(t, s.in(t)) })
	t.Run("cut", func(t *testing.T) { testEchoCut(t, s.in(t)) })
}

// testEchoLarge sends more than all the buffers on the way hold, with a known
// and an unknown length.
func testEchoLarge(t *testing.T, s *servers) {
	content := make([]byte, 5<<20+3)
	fillGenerated(content, 0)
	for name, body := range map[string]io.Reader{
		"fixed":   bytes.NewReader(content),
		"chunked": iotest.OneByteReader(bytes.NewReader(content[:1000])),
		"piped":   struct{ io.Reader }{bytes.NewReader(content)},
	} {
		want := content
		if name == "chunked" {
			want = content[:1000]
		}
		resp, got := s.fetch("POST", "/echo", nil, body)
		if resp.StatusCode != 200 || got != string(want) {
			t.Errorf("%s: got %s and %d bytes, want 200 and the %d bytes that were sent", name, resp.Status, len(got), len(want))
		}
	}
}

// testEchoStreaming holds a conversation within one request.
func testEchoStreaming(t *testing.T, s *servers) {
	upload, echoed := s.openEcho()
	in := bufio.NewReader(echoed)
	for i := range 10 {
		want := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(upload, want); err != nil {
			t.Fatalf("sending: %v", err)
		}
		if got, err := in.ReadString('\n'); err != nil || got != want {
			t.Fatalf("got %q, %v, want %q, nil", got, err, want)
		}
	}
	_ = upload.Close()
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after the last line: got %q, %v, want nothing, nil", rest, err)
	}
}

// testEchoCut breaks a request off in the middle: the answer must not look
// complete.
func testEchoCut(t *testing.T, s *servers) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.baseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testnet.HangTimeout))
	fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("reading the response: %v", err)
	}
	defer resp.Body.Close()
	got := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "hello" {
		t.Fatalf("the first chunk: got %q, %v, want %q, nil", got, err, "hello")
	}
	fmt.Fprintf(conn, "no chunk\r\n")
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("after the broken chunk: got %q and an orderly end, want the connection cut", rest)
	}
}

func testClock(t *testing.T, s *servers) {
	resp := s.do("GET", "/clock?interval=1ms", nil, nil)
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type: got %q, want text/event-stream", got)
	}
	in := bufio.NewReader(resp.Body)
	var last time.Time
	for id := 1; id <= 5; id++ {
		now := readTick(t, in, id)
		if !now.After(last) {
			t.Errorf("event %d: got %v, want a time after %v", id, now, last)
		}
		last = now
	}
	_ = resp.Body.Close() // the server's handler ends, or stop would report it cut off

	_, body := s.fetch("GET", "/clock?interval=1ms&count=2", nil, nil)
	counted := bufio.NewReader(strings.NewReader(body))
	readTick(t, counted, 1)
	readTick(t, counted, 2)
	if rest, _ := io.ReadAll(counted); len(rest) > 0 {
		t.Errorf("count=2: got %q after the second event, want the end", rest)
	}
	resp, body = s.fetch("HEAD", "/clock", nil, nil)
	checkBody(t, "HEAD", resp, body, 200, "")
	for _, query := range []string{"interval=soon", "interval=0s", "interval=-1s", "interval=2h", "count=-1", "count=x"} {
		if resp, _ := s.fetch("GET", "/clock?"+query, nil, nil); resp.StatusCode != 400 {
			t.Errorf("%s: got %s, want 400", query, resp.Status)
		}
	}
}

// readTick reads one event of the clock and returns its time.
func readTick(t *testing.T, in *bufio.Reader, id int) time.Time {
	t.Helper()
	var lines [3]string
	for i := range lines {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("event %d: %v", id, err)
		}
		lines[i] = strings.TrimSuffix(line, "\n")
	}
	now, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(lines[1], "data: "))
	if lines[0] != fmt.Sprintf("id: %d", id) || err != nil || lines[2] != "" {
		t.Fatalf("event %d: got %q (%v), want an id, a time and an empty line", id, lines, err)
	}
	return now
}

func testDownload(t *testing.T, s *servers) {
	resp, _ := s.fetch("HEAD", "/download", nil, nil)
	if resp.StatusCode != 200 || resp.ContentLength != 1<<30 {
		t.Errorf("the default: got %s and %d bytes, want 200 and %d", resp.Status, resp.ContentLength, 1<<30)
	}
	const size = 3<<20 + 5
	want := make([]byte, size)
	fillGenerated(want, 0)
	path := fmt.Sprintf("/download?size=%d", size)
	resp, body := s.fetch("GET", path, nil, nil)
	if resp.StatusCode != 200 || body != string(want) {
		t.Errorf("%s: got %s and %d bytes, want 200 and the %d generated ones", path, resp.Status, len(body), size)
	}
	etag := resp.Header.Get("Etag")
	for _, tt := range []struct{ ranges, want string }{
		{"bytes=0-0", string(want[:1])},
		{"bytes=13-1000012", string(want[13:1000013])},
		{"bytes=-7", string(want[size-7:])},
		{fmt.Sprintf("bytes=%d-", size-1), string(want[size-1:])},
	} {
		resp, body := s.fetch("GET", path, http.Header{"Range": {tt.ranges}, "If-Range": {etag}}, nil)
		if resp.StatusCode != 206 || body != tt.want {
			t.Errorf("Range: %s: got %s and %d bytes, want 206 and %d of the generated ones",
				tt.ranges, resp.Status, len(body), len(tt.want))
		}
	}
	if resp, _ := s.fetch("GET", path, http.Header{"Range": {"bytes=99999999-"}}, nil); resp.StatusCode != 416 {
		t.Errorf("a range past the end: got %s, want 416", resp.Status)
	}
	resp, body = s.fetch("GET", "/download?size=0", nil, nil)
	checkBody(t, "size=0", resp, body, 200, "")
	if resp, _ := s.fetch("GET", "/download?size=huge", nil, nil); resp.StatusCode != 400 {
		t.Errorf("size=huge: got %s, want 400", resp.Status)
	}
}

// testNothingOutside asks for files above the served directory in every
// spelling. Raw requests, since a well-behaved client cleans its paths.
func testNothingOutside(t *testing.T, s *servers) {
	secret := filepath.Join(filepath.Dir(s.dir), "secret")
	if err := os.WriteFile(secret, []byte("top secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(s.dir, "up")); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"/../secret", "/..%2fsecret", "/%2e%2e/secret", "/%2e%2e%2fsecret", "/sub/../../secret",
		"/..\\secret", "/sub/%2e%2e/%2e%2e/secret", "//" + secret, "/%2f" + secret, secret, "/./../secret",
		"/link", "/up/secret", "/up/", "/sub/../link",
	} {
		status, body := rawGet(t, s.baseURL, target)
		if strings.Contains(body, "top secret") || strings.Contains(body, "hello, file") || status == 200 || status >= 500 {
			t.Errorf("GET %s: got %d and %q, want it refused", target, status, body)
		}
	}
}

// rawGet asks for target as it is, and follows no redirect.
func rawGet(t *testing.T, baseURL, target string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(baseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testnet.HangTimeout))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("GET %s: %v", target, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", target, err)
	}
	return resp.StatusCode, string(content)
}

// net/http sends a file by sendfile only if it sees the *os.File itself.
func TestRootFSHandsOutBareFiles(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "f", "content")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := rootFS{root}.Open("/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := f.(*os.File); !ok {
		t.Errorf("got a %T, want an *os.File", f)
	}
}

func TestParseByteSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"0", 0}, {"1", 1}, {"17b", 17}, {"2k", 2048}, {"2K", 2048}, {"2KiB", 2048}, {"2kB", 2000},
		{"1MiB", 1 << 20}, {"1MB", 1e6}, {"3g", 3 << 30}, {"1GiB", 1 << 30}, {"1TiB", 1 << 40}, {"5TB", 5e12},
		{"9223372036854775807", 1<<63 - 1}, {"8388607TiB", 8388607 << 40},
	} {
		if got, err := parseByteSize(tt.text); got != tt.want || err != nil {
			t.Errorf("%q: got %d, %v, want %d, nil", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"", "k", "-1", "+1", "1.5k", "1 k", "1kk", "1x", "0x10", "9223372036854775808", "8388608TiB"} {
		if got, err := parseByteSize(text); err == nil {
			t.Errorf("%q: got %d, nil, want an error", text, got)
		}
	}
}

// The content is part of /download's promise: it stays the same.
func TestGeneratedWordIsSplitMix64(t *testing.T) {
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := generatedWord(uint64(i)); got != want {
			t.Errorf("word %d: got %#x, want %#x", i, got, want)
		}
	}
}

// generatedByte is the content in the plainest way.
func generatedByte(offset int64) byte {
	return byte(generatedWord(uint64(offset/8)) >> (offset % 8 * 8))
}

func TestGeneratedIsItsBytes(t *testing.T) {
	const size = 1003
	want := make([]byte, size)
	for i := range want {
		want[i] = generatedByte(int64(i))
	}
	if err := iotest.TestReader(io.NewSectionReader(generated{}, 0, size), want); err != nil {
		t.Error(err)
	}
	g := io.NewSectionReader(generated{}, 0, size)
	for range 2000 {
		offset, length := rand.Int64N(size+10), rand.IntN(40)
		if _, err := g.Seek(offset, io.SeekStart); err != nil {
			t.Fatalf("Seek(%d): %v", offset, err)
		}
		p := make([]byte, length)
		n, err := io.ReadFull(g, p)
		expected := want[min(offset, size):min(offset+int64(length), size)]
		if !bytes.Equal(p[:n], expected) || (err == nil) != (n == length) {
			t.Fatalf("%d bytes from %d on: got %x, %v, want %x", length, offset, p[:n], err, expected)
		}
	}
}

func TestGeneratedSeeksFar(t *testing.T) {
	g := io.NewSectionReader(generated{}, 0, 1<<62)
	if offset, err := g.Seek(-3, io.SeekEnd); offset != 1<<62-3 || err != nil {
		t.Fatalf("Seek(-3, SeekEnd): got %d, %v, want %d, nil", offset, err, int64(1<<62-3))
	}
	got, err := io.ReadAll(g)
	want := []byte{generatedByte(1<<62 - 3), generatedByte(1<<62 - 2), generatedByte(1<<62 - 1)}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the last bytes: got %x, %v, want %x, nil", got, err, want)
	}
}

func BenchmarkGenerated(b *testing.B) {
	p := make([]byte, 32<<10) // as much as io.Copy asks for
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		fillGenerated(p, 3)
	}
}
