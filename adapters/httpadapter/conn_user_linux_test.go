//go:build !percore_net

package httpadapter

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
)

// aWay reads some bytes from a hijacked connection: at least one, or it returns an error.
type aWay struct {
	name string
	read func(t *testing.T, nc net.Conn) ([]byte, error)
}

// someBytes is the most that a way reads at once. It is small, so that reading the held bytes takes
// several ways.
const someBytes = 700

// ways are all ways to read from a plain connection.
var ways = []aWay{
	{"Read", func(_ *testing.T, nc net.Conn) ([]byte, error) { return readSome(nc) }},
	{"ReadReady", func(_ *testing.T, nc net.Conn) ([]byte, error) {
		p := make([]byte, someBytes)
		n, err := nc.(*conn).ReadReady(func() []byte { return p }, func() {})
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
			n, err := nc.(*conn).TryRead(p)
			if n > 0 || err != nil {
				return p[:n], err
			}
			if err := awaitReadable(t, nc.(*conn), false); err != nil {
				return nil, err
			}
		}
	}},
	{"OnReadable", func(t *testing.T, nc net.Conn) ([]byte, error) {
		if err := awaitReadable(t, nc.(*conn), false); err != nil {
			return nil, err
		}
		return readSome(nc)
	}},
	{"NotifyReadable", func(t *testing.T, nc net.Conn) ([]byte, error) {
		if err := awaitReadable(t, nc.(*conn), true); err != nil {
			return nil, err
		}
		return readSome(nc)
	}},
	{"NetConn", func(_ *testing.T, nc net.Conn) ([]byte, error) { return readSome(nc.(*conn).NetConn()) }},
	{"SyscallConn", func(t *testing.T, nc net.Conn) (p []byte, err error) {
		c := nc.(*conn)
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		held := c.holdsBack()
		failed := raw.Read(func(fd uintptr) bool {
			p = make([]byte, someBytes)
			var n int
			n, err = syscall.Read(int(fd), p)
			p = p[:max(n, 0)]
			return err != syscall.EAGAIN
		})
		switch {
		case failed == nil && held:
			t.Error("SyscallConn: Read worked, though bytes are held")
		case errors.Is(failed, errHeldBack):
			return readSome(nc)
		case failed != nil:
			return nil, failed
		case len(p) == 0 && err == nil:
			err = io.EOF
		}
		return p, err
	}},
	{"File", func(t *testing.T, nc net.Conn) ([]byte, error) {
		held := nc.(*conn).holdsBack()
		file, err := nc.(*conn).File()
		if file != nil {
			file.Close()
		}
		if held != errors.Is(err, errHeldBack) {
			t.Errorf("File: got %v while bytes are held: %t", err, held)
		}
		return readSome(nc)
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

func awaitReadable(t *testing.T, c *conn, notify bool) error {
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

// longUpgrade returns a request with a long header, which net/http serves, and the tunnel after it.
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

// TestFastTLSHijackedWays: over TLS there is only one way.
func TestFastTLSHijackedWays(t *testing.T) {
	testHijacked(t, func(*rand.Rand) []aWay { return ways[:1] })
}

func testHijacked(t *testing.T, choose func(r *rand.Rand) []aWay) {
	t.Run("fast path", func(t *testing.T) { testHijackedOn(t, startFast, choose) })
	t.Run("parking", func(t *testing.T) { testHijackedOn(t, startParking, choose) })
}

// startParking is like startFast, without the fast path.
func startParking(t *testing.T, handler http.HandlerFunc, configure func(*fixture), opts ...Option) *fixture {
	t.Helper()
	var client *tls.Config
	f := start(t, handler, func(f *fixture) {
		if overTLS(t) {
			f.srv.TLSConfig, client = testnet.TLS(t)
		}
		if configure != nil {
			configure(f)
		}
	}, opts...)
	f.client = client
	return f
}

func testHijackedOn(t *testing.T, start func(*testing.T, http.HandlerFunc, func(*fixture), ...Option) *fixture, choose func(r *rand.Rand) []aWay) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	got := make(chan string, 1)
	var holding atomic.Int32
	var some []aWay
	f := start(t, func(rw http.ResponseWriter, req *http.Request) {
		nc, brw, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer nc.Close()
		var b strings.Builder
		io.CopyN(&b, brw, int64(brw.Reader.Buffered()))
		if c, ok := nc.(*conn); ok && c.holdsBack() {
			holding.Add(1)
		}
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
	if !overTLS(t) && strings.HasSuffix(t.Name(), "fast_path") && holding.Load() == 0 {
		t.Error("no connection held bytes back after Hijack: the test shows nothing")
	}
}

// TestHeldBackCallback: while bytes are held back, a callback is armed as on any connection.
func TestHeldBackCallback(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		first, second := make(told, 2), make(told, 2)
		release := holdLoop(c)
		if err := c.NotifyReadable(first); err != nil {
			t.Errorf("NotifyReadable: %v", err)
		}
		if err := c.OnReadable(second.OnReadable); !errors.Is(err, loop.ErrArmed) {
			t.Errorf("OnReadable while a callback is armed: got %v, want loop.ErrArmed", err)
		}
		if err := c.AttachTo(func(*percore.Conn, []byte) error { return nil }); !errors.Is(err, loop.ErrArmed) {
			t.Errorf("AttachTo while a callback is armed: got %v, want loop.ErrArmed", err)
		}
		if !c.CancelOnReadable() {
			t.Error("CancelOnReadable: got false, want true")
		}
		if c.CancelOnReadable() {
			t.Error("CancelOnReadable again: got true, want false")
		}
		if err := c.OnReadable(second.OnReadable); err != nil {
			t.Errorf("OnReadable: %v", err)
		}
		release()
		if err := testnet.Receive(t, "the callback", second); err != nil {
			t.Errorf("the callback: got %v, want nil", err)
		}
		if len(first) > 0 {
			t.Error("the callback that was cancelled was called")
		}
	})
	f.wait()
}

// TestHeldBackAttach: whatever takes the connection gets the bytes; if it fails, they stay.
func TestHeldBackAttach(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		refused := errors.New("refused")
		held := 0
		if err := c.AttachTo(func(_ *percore.Conn, unread []byte) error { held = len(unread); return refused }); err != refused || held == 0 {
			t.Errorf("AttachTo: got %v with %d bytes, want the callee's error and some", err, held)
		}
		var all []byte
		if err := c.AttachTo(func(pc *percore.Conn, unread []byte) error {
			rest, err := io.ReadAll(pc)
			all = append(bytes.Clone(unread), rest...)
			return err
		}); err != nil {
			t.Errorf("AttachTo: %v", err)
		}
		if !strings.HasSuffix(holdBackTunnel, string(all)) || len(all) < held {
			t.Errorf("AttachTo: got %d bytes that are not the tunnel's last", len(all))
		}
		if c.holdsBack() {
			t.Error("bytes are held after they were given away")
		}
	})
	f.wait()
}

// TestHeldBackClose: bytes held back don't outlive Close.
func TestHeldBackClose(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		c.Close()
		if n, err := c.Read(make([]byte, 10)); n > 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close: got %d, %v, want net.ErrClosed", n, err)
		}
		if n, err := c.WriteTo(io.Discard); n > 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteTo after Close: got %d, %v, want net.ErrClosed", n, err)
		}
	})
	f.wait()
}

// TestHeldBackNetConn: code that unwraps connections as far as it can finds the bytes.
func TestHeldBackNetConn(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		var nc net.Conn = c
		for {
			u, ok := nc.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			nc = u.NetConn()
		}
		all, err := io.ReadAll(nc)
		if err != nil || !strings.HasSuffix(holdBackTunnel, string(all)) || len(all) < 10000 {
			t.Errorf("got %d bytes, %v", len(all), err)
		}
		if _, ok := c.NetConn().(*percore.Conn); !ok {
			t.Errorf("NetConn, once nothing is held: got %T, want a *percore.Conn", c.NetConn())
		}
		if file, err := c.File(); err != nil {
			t.Errorf("File, once nothing is held: %v", err)
		} else {
			file.Close()
		}
	})
	f.wait()
}

// TestHeldBackFailedWrite: bytes that a writer has not taken stay.
func TestHeldBackFailedWrite(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		w := &fullWriter{room: someBytes}
		if n, err := c.WriteTo(w); n != someBytes || err != syscall.ENOSPC {
			t.Errorf("WriteTo: got %d, %v, want %d and the writer's error", n, err, someBytes)
		}
		rest, err := io.ReadAll(c)
		if all := string(w.got) + string(rest); err != nil || !strings.HasSuffix(holdBackTunnel, all) || len(all) < 10000 {
			t.Errorf("got %d bytes, %v", len(all), err)
		}
	})
	f.wait()
}

// fullWriter takes some bytes and then fails.
type fullWriter struct {
	got  []byte
	room int
}

func (w *fullWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.room-len(w.got))
	w.got = append(w.got, p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// TestHeldBackConcurrent: several goroutines may read, as on any connection, and each byte is read
// once.
func TestHeldBackConcurrent(t *testing.T) {
	f := holdBack(t, func(t *testing.T, c *conn) {
		before := len(holdBackTunnel)
		var n atomic.Int64
		done := make(chan struct{})
		for i := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					p, err := ways[i].read(t, c)
					n.Add(int64(len(p)))
					if err != nil {
						return
					}
				}
			}()
		}
		for range 4 {
			testnet.Receive(t, "a reader", done)
		}
		if got := int(n.Load()); got > before || got < 10000 {
			t.Errorf("got %d bytes, want those of the tunnel that were not buffered", got)
		}
	})
	f.wait()
}

var _, holdBackTunnel = longUpgrade("/", 0)

// heldFixture is a fixture in which a handler has hijacked a connection that holds bytes back.
type heldFixture struct {
	*fixture
	done chan struct{}
}

func (f *heldFixture) wait() { testnet.Receive(f, "the handler", f.done) }

// holdBack calls f with such a connection. All bytes and the end of the stream are on their way.
func holdBack(t *testing.T, play func(t *testing.T, c *conn)) *heldFixture {
	t.Helper()
	h := &heldFixture{done: make(chan struct{}, 1)}
	again := make(chan bool, 1)
	h.fixture = startFast(t, func(rw http.ResponseWriter, req *http.Request) {
		nc, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer nc.Close()
		if !nc.(*conn).holdsBack() { // the bytes have come late
			again <- true
			return
		}
		again <- false
		play(t, nc.(*conn))
		h.done <- struct{}{}
	}, nil)
	request, tunnel := longUpgrade("/", 9000)
	for range 100 {
		c := h.dial()
		c.send(request + tunnel)
		c.closeWrite()
		if !testnet.Receive(t, "Hijack", again) {
			return h
		}
		c.Close()
	}
	t.Fatal("no connection held bytes back")
	return nil
}

// holdLoop keeps the connection's loop busy until release is called.
func holdLoop(c *conn) (release func()) {
	held, released := make(chan struct{}), make(chan struct{})
	c.Conn.Loop().Submit(func() {
		close(held)
		<-released
	})
	<-held
	return func() { close(released) }
}
