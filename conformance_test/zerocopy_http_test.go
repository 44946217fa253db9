package conformance

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/zerocopy"
)

// moved holds the counters of moved bytes.
type moved struct{ sendfile, splice, copied uint64 }

// movedSince returns the bytes that moved since before.
func movedSince(before zerocopy.Stats) moved {
	now := percore.ReadStats().ZeroCopy
	return moved{now.SendfileBytes - before.SendfileBytes, now.SpliceBytes - before.SpliceBytes, now.CopiedBytes - before.CopiedBytes}
}

// wantMoved fails the test unless the engine, if there is one, moved bytes as wanted.
func wantMoved(t *testing.T, e engine, before zerocopy.Stats, want moved) {
	t.Helper()
	if e.name == netEngine.name || percoreIsNet() {
		want = moved{}
	}
	// The last count is updated after the last byte has been sent.
	testnet.Eventually(t, "counting", func() bool {
		got := movedSince(before)
		return got.sendfile >= want.sendfile && got.splice >= want.splice
	})
	if got := movedSince(before); got != want {
		t.Errorf("moved: got %+v, want %+v", got, want)
	}
}

// sniffBytes is how much of a response net/http writes itself before it lets the connection read
// the rest from the file.
const sniffBytes = 512

// TestZeroCopyFiles serves files with http.FileServer and http.ServeContent. All bytes except the
// ones that net/http itself writes are sent with sendfile, and nothing is copied.
func TestZeroCopyFiles(t *testing.T) {
	const size = 3 << 20
	data := pattern(size)
	modified := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		t.Run(string(kind), func(t *testing.T) {
			onEachEngine(t, func(t *testing.T, e engine) {
				dir := testnet.ShortTempDir(t)
				name := filepath.Join(dir, "file")
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(name, modified, modified); err != nil {
					t.Fatal(err)
				}
				mux := http.NewServeMux()
				mux.Handle("/served/", http.StripPrefix("/served/", http.FileServer(http.Dir(dir))))
				mux.HandleFunc("/content/file", func(rw http.ResponseWriter, r *http.Request) {
					f, err := os.Open(name)
					if err != nil {
						t.Errorf("opening: %v", err)
						return
					}
					defer f.Close()
					http.ServeContent(rw, r, "file", modified, f)
				})
				w := startWeb(t, e, protocol{"HTTP1", kind, 1, false}, mux)
				for _, c := range []struct {
					name, method string
					header       map[string]string
					status       int
					body         []byte
				}{
					{"whole", "GET", nil, 200, data},
					{"HEAD", "HEAD", nil, 200, nil},
					{"a range", "GET", map[string]string{"Range": "bytes=100-999999"}, 206, data[100:1000000]},
					{"the end", "GET", map[string]string{"Range": "bytes=-1000"}, 206, data[size-1000:]},
					{"a byte", "GET", map[string]string{"Range": "bytes=7-7"}, 206, data[7:8]},
					{"a range that can't be", "GET", map[string]string{"Range": "bytes=99999999-"}, 416, []byte("invalid range: failed to overlap\n")},
					{"If-Range, unchanged", "GET", map[string]string{"Range": "bytes=0-99999", "If-Range": modified.Format(http.TimeFormat)}, 206, data[:100000]},
					{"If-Range, changed", "GET", map[string]string{"Range": "bytes=0-99999", "If-Range": modified.Add(-time.Hour).Format(http.TimeFormat)}, 200, data},
					{"not modified", "GET", map[string]string{"If-Modified-Since": modified.Format(http.TimeFormat)}, 304, nil},
				} {
					for _, path := range []string{"/served/file", "/content/file"} {
						t.Run(c.name+path, func(t *testing.T) {
							req, err := http.NewRequest(c.method, w.url+path, nil)
							if err != nil {
								t.Fatal(err)
							}
							for key, value := range c.header {
								req.Header.Set(key, value)
							}
							before := percore.ReadStats().ZeroCopy
							resp, err := w.client.Do(req)
							if err != nil {
								t.Fatal(err)
							}
							got, err := io.ReadAll(resp.Body)
							resp.Body.Close()
							if resp.StatusCode != c.status || err != nil || !bytes.Equal(got, c.body) {
								t.Errorf("got %s, %s, %v, want %d, %s", resp.Status, digest(got), err, c.status, digest(c.body))
							}
							want := moved{}
							if c.status < 300 && len(c.body) > sniffBytes {
								want.sendfile = uint64(len(c.body) - sniffBytes)
							}
							wantMoved(t, e, before, want)
						})
					}
				}
			})
		})
	}
}

// TestZeroCopyReverseProxy: httputil's proxy connects a client and a server that have switched
// protocols. The bytes of both directions move with splice.
func TestZeroCopyReverseProxy(t *testing.T) {
	for _, e := range append(slices.Clone(engines), dialedByPercore()) {
		onEngine(t, e, zeroCopyReverseProxy)
	}
}

func zeroCopyReverseProxy(t *testing.T, e engine) {
	const size = 4 << 20
	plain := protocols[0]
	backend := startWeb(t, e, plain, http.HandlerFunc(upgradeToSpliceEcho))
	front := startWeb(t, e, plain, backend.proxy(t))

	before := percore.ReadStats().ZeroCopy
	body := upgrade(t, front)
	sum := sha256.New()
	received := make(chan error, 1)
	go func() {
		_, err := io.CopyN(sum, body, size)
		received <- err
	}()
	if _, err := body.Write(pattern(size)); err != nil {
		t.Fatalf("writing: %v", err)
	}
	if err := testnet.Receive(t, "the echo", received); err != nil {
		t.Fatalf("reading: %v", err)
	}
	if got, want := fmt.Sprintf("%x", sum.Sum(nil)), fmt.Sprintf("%x", sha256.Sum256(pattern(size))); got != want {
		t.Errorf("echoed: got %s, want %s", got, want)
	}
	body.Close()
	// The bytes pass through the proxy in both directions, and through the server that echoes.
	wantMoved(t, e, before, moved{splice: 3 * size})
}

// upgradeToSpliceEcho answers an Upgrade by copying the connection to itself. Its client doesn't
// send before the answer, so that nothing has been read ahead.
func upgradeToSpliceEcho(rw http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	io.Copy(conn, conn)
}

// upgrade switches protocols and returns the connection.
func upgrade(t *testing.T, w *web) io.ReadWriteCloser {
	t.Helper()
	req, err := http.NewRequest("GET", w.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %s, want it to switch protocols", resp.Status)
	}
	body := resp.Body.(io.ReadWriteCloser)
	t.Cleanup(func() { body.Close() })
	return body
}
