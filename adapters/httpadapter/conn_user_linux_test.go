//go:build !percore_net

package httpadapter

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// userConn has the methods of a hijacked connection that read.
type userConn interface {
	net.Conn
	syscall.Conn
	NetConn() net.Conn
	ReadReady(lend func() []byte, release func()) (int, error)
	TryRead(p []byte) (int, error)
	OnReadable(f func(error)) error
	NotifyReadable(h percore.ReadableHandler) error
}

// aWay reads some bytes from a hijacked connection: at least one, or it returns an error.
type aWay struct {
	name string
	read func(t *testing.T, nc net.Conn) ([]byte, error)
}

// someBytes is the most that a way reads at once. It is small, so that reading the tunnel takes several
// ways.
const someBytes = 700

// ways are all ways to read from a plain connection.
var ways = []aWay{
	{"Read", func(_ *testing.T, nc net.Conn) ([]byte, error) { return readSome(nc) }},
	{"ReadReady", func(_ *testing.T, nc net.Conn) ([]byte, error) {
		p := make([]byte, someBytes)
		n, err := nc.(userConn).ReadReady(func() []byte { return p }, func() {})
		return p[:n], err
	}},
	{"WriteTo", func(_ *testing.T, nc net.Conn) ([]byte, error) {
		var w bytes.Buffer
		if _, err := nc.(io.WriterTo).WriteTo(&w); err != nil {
			return w.Bytes(), err
		}
		return w.Bytes(), io.EOF
	}},
	{"TryRead", func(t *testing.T, nc net.Conn) ([]byte, error) {
		p := make([]byte, someBytes)
		for {
			n, err := nc.(userConn).TryRead(p)
			if n > 0 || err != nil {
				return p[:n], err
			}
			if err := awaitReadable(t, nc.(userConn), false); err != nil {
				return nil, err
			}
		}
	}},
	{"OnReadable", func(t *testing.T, nc net.Conn) ([]byte, error) {
		if err := awaitReadable(t, nc.(userConn), false); err != nil {
			return nil, err
		}
		return readSome(nc)
	}},
	{"NotifyReadable", func(t *testing.T, nc net.Conn) ([]byte, error) {
		if err := awaitReadable(t, nc.(userConn), true); err != nil {
			return nil, err
		}
		return readSome(nc)
	}},
	{"NetConn", func(_ *testing.T, nc net.Conn) ([]byte, error) { return readSome(nc.(userConn).NetConn()) }},
	{"SyscallConn", func(t *testing.T, nc net.Conn) (p []byte, err error) {
		c := nc.(userConn)
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		failed := raw.Read(func(fd uintptr) bool {
			p = make([]byte, someBytes)
			var n int
			n, err = syscall.Read(int(fd), p)
			p = p[:max(n, 0)]
			return err != syscall.EAGAIN
		})
		switch {
		case failed != nil:
			return nil, failed
		case len(p) == 0 && err == nil:
			err = io.EOF
		}
		return p, err
	}},
}

func readSome(r io.Reader) ([]byte, error) {
	p := make([]byte, someBytes)
	n, err := r.Read(p)
	if n > 0 {
		err = nil
	}
	return p[:n], err
}

// told receives the calls of a readiness callback.
type told chan error

func (c told) OnReadable(err error) { c <- err }

func awaitReadable(t *testing.T, c userConn, notify bool) error {
	called := make(told, 1)
	var err error
	if notify {
		err = c.NotifyReadable(called)
	} else {
		err = c.OnReadable(called.OnReadable)
	}
	if err != nil {
		return err
	}
	return testnet.Receive(t, "the callback", called)
}

// hijackedStream plays one connection. It sends the request and the tunnel, cut at the given place,
// and returns the bytes of the tunnel that the reader got.
func (f *fixture) hijackedStream(request, tunnel string, cut int, got <-chan string) string {
	c := f.dial()
	text := request + tunnel
	c.send(text[:cut])
	if cut < len(text) {
		runtime.Gosched()
		c.send(text[cut:])
	}
	c.closeWrite()
	s := testnet.Receive(f, "the tunnel's end", got)
	c.Close()
	return s
}

// longUpgrade returns a request with a long header, and the tunnel after it.
func longUpgrade(path string, size int) (request, tunnel string) {
	request = "GET " + path + " HTTP/1.1\r\nHost: test\r\nX-Long: " + strings.Repeat("a", size) +
		"\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
	var b strings.Builder
	for i := 0; b.Len() < 20000; i++ {
		fmt.Fprintf(&b, "<%d>", i)
	}
	return request, b.String()
}

// TestHijackedWays: each way to read from a hijacked connection, and each mixture of ways, gets all
// bytes after the request, once and in order, wherever the stream is cut.
func TestHijackedWays(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testHijacked(t, func(*rand.Rand) []aWay { return []aWay{way} })
		})
	}
	t.Run("mixed", func(t *testing.T) {
		testHijacked(t, func(r *rand.Rand) []aWay {
			var some []aWay
			for range 64 {
				some = append(some, ways[r.IntN(len(ways))])
			}
			return some
		})
	})
}

// TestHTTP1TLSHijackedWays: over TLS there is only one way.
func TestHTTP1TLSHijackedWays(t *testing.T) {
	testHijacked(t, func(*rand.Rand) []aWay { return ways[:1] })
}

func testHijacked(t *testing.T, choose func(r *rand.Rand) []aWay) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	got := make(chan string, 1)
	var some []aWay
	f := startOurs(t, func(rw http.ResponseWriter, req *http.Request) {
		nc, brw, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer nc.Close()
		var b strings.Builder
		io.CopyN(&b, brw, int64(brw.Reader.Buffered()))
		for i := 0; ; i++ {
			p, err := some[i%len(some)].read(t, nc)
			b.Write(p)
			if err != nil {
				if err != io.EOF {
					t.Errorf("%s: got %v after %d bytes, want the end of the stream", some[i%len(some)].name, err, b.Len())
				}
				break
			}
		}
		got <- b.String()
	}, nil)
	for _, size := range []int{0, 4000, 5000, 9000} {
		request, tunnel := longUpgrade("/", size)
		for _, cut := range []int{len(request) + len(tunnel), len(request), len(request) + 5000, 1 + r.IntN(len(request)), len(request) + r.IntN(len(tunnel))} {
			some = choose(r)
			if s := f.hijackedStream(request, tunnel, cut, got); s != tunnel {
				t.Errorf("header of %d bytes, cut at %d: got %d bytes, want %d: %.80q", size, cut, len(s), len(tunnel), s)
			}
		}
	}
}
