//go:build !percore_net

package handover

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// fakeListener moves a listener, and keeps the connections that it adopts.
type fakeListener struct {
	seam.Listener

	mu        sync.Mutex
	paused    bool
	closed    bool
	unlink    bool
	pauses    int
	adopted   []adopted
	adoptFail error
	unsettled func() bool // if not nil: reports whether the listener has settled
}

type adopted struct {
	fd int
	seam.ConnInfo
}

var (
	fakesMu sync.Mutex
	fakes   map[net.Listener]*fakeListener
)

// useFakes has the package move fake listeners until the test ends, which may leave nothing behind.
func useFakes(t *testing.T) {
	t.Helper()
	testnet.NoLeaks(t)
	was := listenerOf
	fakes = make(map[net.Listener]*fakeListener)
	listenerOf = func(l net.Listener) seam.Listener {
		if f := fakeOf(l); f != nil {
			return f
		}
		return nil
	}
	t.Cleanup(func() {
		for l, f := range fakes {
			for _, a := range f.adopted {
				if a.fd >= 0 {
					sys.Close(a.fd)
				}
			}
			l.Close()
		}
		listenerOf = was
	})
}

func fakeOf(l net.Listener) *fakeListener {
	fakesMu.Lock()
	defer fakesMu.Unlock()
	moving := seam.ListenerOf(l)
	if moving == nil {
		return nil
	}
	if fakes[l] == nil {
		fakes[l] = &fakeListener{Listener: moving, unlink: true}
	}
	return fakes[l]
}

func (f *fakeListener) Pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = true
	f.pauses++
}

func (f *fakeListener) Resume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = false
}

func (f *fakeListener) Settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unsettled == nil || f.unsettled() {
		f.unsettled = nil
		return true
	}
	return false
}

func (f *fakeListener) UnlinkOnClose() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unlink
}

func (f *fakeListener) SetUnlinkOnClose(unlink bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlink = unlink
}

func (f *fakeListener) IsOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed
}

func (f *fakeListener) Adopt(fd int, a seam.ConnInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adoptFail != nil {
		sys.Close(fd)
		return f.adoptFail
	}
	f.adopted = append(f.adopted, adopted{fd, a})
	return nil
}

func (f *fakeListener) AdoptAside(fd int, a seam.ConnInfo) (net.Conn, error) {
	if err := f.Adopt(fd, a); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adopted[len(f.adopted)-1].fd = -1
	file := os.NewFile(uintptr(fd), "adopted")
	defer file.Close()
	return net.FileConn(file)
}

// state returns the listener's state in words.
func (f *fakeListener) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("paused=%t unlink=%t adopted=%d", f.paused, f.unlink, len(f.adopted))
}

// fakeSource has connections, which it gives in batches.
type fakeSource struct {
	ln    net.Listener // if not nil: what HandOver must get
	mu    sync.Mutex
	conns []percore.WaitingConn
	busy  chan struct{} // if not nil: HandOver waits for it, after all others have moved
	batch int

	before func(left int) // if not nil: is called before each batch
}

func (s *fakeSource) HandOver(ctx context.Context, l net.Listener, give func([]percore.WaitingConn) error) error {
	if s.ln != nil && l != s.ln {
		return fmt.Errorf("a source got the listener %v instead of %v", l.Addr(), s.ln.Addr())
	}
	for {
		s.mu.Lock()
		batch := slices.Clone(s.conns[:min(len(s.conns), s.batch)])
		s.mu.Unlock()
		if len(batch) == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.before != nil {
			s.before(s.left())
		}
		if err := give(batch); err != nil {
			return err
		}
		s.mu.Lock()
		s.conns = s.conns[len(batch):]
		s.mu.Unlock()
		for _, c := range batch {
			c.Conn.Close()
		}
	}
	if s.busy == nil {
		return nil
	}
	select {
	case <-s.busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *fakeSource) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// predecessor is a server with connections.
type predecessor struct {
	ln      net.Listener
	fake    *fakeListener
	source  *fakeSource
	clients []net.Conn
}

// newPredecessor returns a server with n connections.
func newPredecessor(t *testing.T, kind testnet.Kind, n int) *predecessor {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, kind)
	p := &predecessor{ln: ln, fake: fakeOf(ln), source: &fakeSource{ln: ln, batch: descriptorsMax}}
	for range n {
		server, client := testnet.Connect(t, ln)
		p.source.conns = append(p.source.conns, percore.WaitingConn{Conn: server, Served: true})
		p.clients = append(p.clients, client)
	}
	return p
}

func (p *predecessor) server(name string) server { return serverOf(name, p.ln, p.source) }

// serverOf returns a listener and its connections as a Service gives them.
func serverOf(name string, ln net.Listener, from source) server {
	return server{name: name, listener: ln, moving: listenerOf(ln), source: from}
}

// pair returns both ends of a wire.
func pair(t *testing.T) (giver, taker *net.UnixConn) {
	t.Helper()
	giver, f, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	taker = c.(*net.UnixConn)
	t.Cleanup(func() { giver.Close(); taker.Close() })
	return giver, taker
}

// shortSteps has processes give up soon that begin to wait for a message from now on. They, and a
// stranger, have as long to send a message, and this machine may stop them meanwhile.
func shortSteps(t *testing.T) {
	old := stepNanoseconds.Swap(int64(400 * time.Millisecond))
	t.Cleanup(func() { stepNanoseconds.Store(old) })
}

// goGive runs give.
func goGive(ctx context.Context, c *net.UnixConn, servers ...server) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- give(ctx, c, testnet.HangTimeout, nil, servers...) }()
	return ch
}

// meet has a successor get the offer of servers that are given to it.
func meet(t *testing.T, servers ...server) (a *successor, gave <-chan error) {
	t.Helper()
	giving, taking := pair(t)
	gave = goGive(t.Context(), giving, servers...)
	a, err := take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	return a, gave
}

// goTake takes on a goroutine of its own.
func goTake(t *testing.T, taking *net.UnixConn) <-chan error {
	took := make(chan error, 1)
	go func() {
		_, err := take(t.Context(), taking)
		took <- err
	}()
	return took
}

// talk proves that an adopted connection works, and closes it.
func talk(t *testing.T, client net.Conn, a *adopted) {
	t.Helper()
	f := os.NewFile(uintptr(a.fd), "adopted")
	c, err := net.FileConn(f)
	f.Close()
	a.fd = -1
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, client, c)
}

func exchange(t *testing.T, client, server net.Conn) {
	t.Helper()
	buf := make([]byte, 10)
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		ends[1].SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		if _, err := ends[0].Write([]byte("hello")); err != nil {
			t.Fatalf("writing: %v", err)
		}
		if n, err := ends[1].Read(buf); err != nil || string(buf[:n]) != "hello" {
			t.Fatalf("reading: got %q, %v", buf[:n], err)
		}
	}
}

// mustTake is take, and returns the listener that is named web.
func mustTake(t *testing.T, taking *net.UnixConn) (*successor, net.Listener) {
	t.Helper()
	s, err := take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	return s, mustOpen(t, s, "web")
}

// mustOpen opens a listener of the predecessor's.
func mustOpen(t *testing.T, s *successor, name string) net.Listener {
	t.Helper()
	ln, err := s.offer(name).open(new(percore.ListenConfig).FileListeners)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// logTo collects what is logged until the test ends.
func logTo(t *testing.T) *testnet.Log {
	t.Helper()
	log := new(testnet.Log)
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return log
}
