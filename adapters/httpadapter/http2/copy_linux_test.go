//go:build !percore_net

package http2

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// long is a body that WriteTo takes pooled memory for.
var long = strings.Repeat("0123456789abcdef", 200<<10/16)

// longAnswers are answers with that body, or a part of it.
var longAnswers = map[string]string{
	"counted": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long),
	"trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: " + strings.Repeat("b", 5000) + "\r\n\r\n",
	"chunked": fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n%x\r\n%s\r\n0\r\nA: b\r\n\r\n", len(long), long),
	"endless": "HTTP/1.1 200 OK\r\n\r\n" + long,
	"cut":     fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long)+1, long),
	"cut off": fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(long)+1, long),
}

// failingWriter takes so many bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	if w.left -= n; n < len(p) {
		return n, errors.New("the writer is full")
	}
	return n, nil
}

// destinations open what a body is copied to; file is the name of one. got returns what has come there.
var destinations = map[string]func(t *testing.T, file string) (w io.Writer, got func() string){
	"nothing": func(*testing.T, string) (io.Writer, func() string) {
		return io.Discard, func() string { return "" }
	},
	"memory": func(*testing.T, string) (io.Writer, func() string) {
		var b bytes.Buffer
		return &b, b.String
	},
	"a writer": func(*testing.T, string) (io.Writer, func() string) {
		var b strings.Builder
		return &b, b.String
	},
	"a failing writer": func(*testing.T, string) (io.Writer, func() string) {
		return &failingWriter{left: 50_000}, func() string { return "" }
	},
	"a file": func(t *testing.T, file string) (io.Writer, func() string) {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		return f, func() string {
			f.Close()
			p, _ := os.ReadFile(f.Name())
			return string(p)
		}
	},
	"a closed file": func(t *testing.T, file string) (io.Writer, func() string) {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return f, func() string { return "" }
	},
	"a connection": func(t *testing.T, _ string) (io.Writer, func() string) {
		return peered(t, net.Listen)
	},
	"an engine's": func(t *testing.T, _ string) (io.Writer, func() string) {
		return peered(t, percore.Listen)
	},
}

// peered returns a connection that a listener has accepted. got returns what its other end has read.
func peered(t *testing.T, listen testnet.ListenFunc) (w io.Writer, got func() string) {
	c, peer := testnet.Connect(t, testnet.Listen(t, listen, testnet.TCP4))
	all := make(chan string, 1)
	go func() {
		defer peer.Close()
		p, _ := io.ReadAll(peer)
		all <- string(p)
	}()
	return c, func() string {
		c.Close()
		return testnet.Receive(t, "the end of the copy", all)
	}
}

// TestCopies: io.Copy of a body counts, delivers and fails as with http.Transport, whatever it copies
// to, and the connection is used again or not as there.
func TestCopies(t *testing.T) {
	quiet(t)
	for name, answer := range longAnswers {
		for to, open := range destinations {
			t.Run(name+" to "+to, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "file")
				both(t, plainBase, func(t *testing.T, rt http.RoundTripper) string {
					h := newHostile(t, func(c net.Conn, _ string) bool {
						_, _ = io.WriteString(c, answer)
						return name == "counted" || name == "chunked"
					})
					var s strings.Builder
					for range 2 {
						resp, err := rt.RoundTrip(newGet(t, h.url()))
						if err != nil {
							return describe(err)
						}
						w, got := open(t, file)
						n, err := io.Copy(w, resp.Body)
						again, errAgain := io.Copy(io.Discard, resp.Body)
						if strings.HasPrefix(to, "a failing") || strings.HasPrefix(to, "a closed") {
							again, errAgain = 0, nil // the rest, without what the writer didn't take
						}
						resp.Body.Close()
						text := got()
						fmt.Fprintf(&s, "%d bytes, %s; %d, %x; then %d, %s; %v\n", n, describe(err), len(text),
							sha256.Sum256([]byte(text)), again, describe(errAgain), resp.Trailer)
					}
					return fmt.Sprintf("%s%d connections", &s, h.Accepted())
				})
			})
		}
	}
}

// TestShortCopy: a copy of a short body to any writer takes no more memory than the body has.
func TestShortCopy(t *testing.T) {
	h := newHostile(t, answerHello)
	resp, err := newTestTransport(t).RoundTrip(newGet(t, h.url()))
	if err != nil {
		t.Fatal(err)
	}
	var kept keeper
	if n, err := io.Copy(&kept, resp.Body); n != 5 || err != nil || len(kept) != 1 || cap(kept[0]) > 8 {
		t.Errorf("got %d bytes, %v, in %d pieces, the first with room for %d", n, err, len(kept), cap(kept[0]))
	}
}

// TestCopyIsClosed: Close ends a copy that waits for the server, and a read.
func TestCopyIsClosed(t *testing.T) {
	h := newHostile(t, says(longAnswers["cut"], true))
	tr := newTestTransport(t)
	for _, copies := range []bool{true, false} {
		resp, err := tr.RoundTrip(newGet(t, h.url()))
		if err != nil {
			t.Fatal(err)
		}
		var from io.Reader = resp.Body
		if !copies {
			from = onlyReader{from}
		}
		if _, err := io.CopyN(io.Discard, resp.Body, int64(len(long))); err != nil {
			t.Fatal(err)
		}
		copied := make(chan error, 1)
		testnet.GoBlocked(t, "the copy", func() {
			_, err := io.Copy(io.Discard, from)
			copied <- err
		})
		resp.Body.Close()
		if err := testnet.Receive(t, "the copy's end", copied); err == nil {
			t.Error("the copy ended without an error")
		}
	}
	awaitEmpty(t, tr)
}

// TestKeptMemory: a writer that keeps what it is given never sees bytes of another answer there.
func TestKeptMemory(t *testing.T) {
	h := newHostile(t, func(c net.Conn, request string) bool {
		letter := strings.Fields(request)[1][1:]
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 100<<10, strings.Repeat(letter, 100<<10))
		return true
	})
	tr := newTestTransport(t)
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			var kept keeper
			for range 10 {
				for _, w := range []io.Writer{&kept, io.Discard} {
					resp, err := tr.RoundTrip(newGet(t, h.url()+letter))
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := io.Copy(w, resp.Body); err != nil {
						t.Error(err)
					}
				}
			}
			for _, p := range kept {
				if bytes.Count(p, []byte(letter)) != len(p) {
					t.Errorf("the memory of %q has other bytes", letter)
					return
				}
			}
		})
	}
	wg.Wait()
}

// keeper keeps the memory that it is given. It is a careless writer.
type keeper [][]byte

func (k *keeper) Write(p []byte) (int, error) {
	*k = append(*k, p)
	return len(p), nil
}
