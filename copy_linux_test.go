//go:build !percore_net

package percore

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

type (
	readerFunc func(p []byte) (int, error)
	writerFunc func(p []byte) (int, error)
)

func (f readerFunc) Read(p []byte) (int, error)  { return f(p) }
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// receiving reads everything from far on a separate goroutine.
func receiving(far io.Reader) func() []byte {
	ch := make(chan []byte, 1)
	go func() {
		got, _ := io.ReadAll(far)
		ch <- got
	}()
	return func() []byte { return <-ch }
}

// feed writes data in several pieces and ends.
func feed(c io.WriteCloser, data []byte) {
	go func() {
		for piece := range slices.Chunk(data, 1+len(data)/5) {
			c.Write(piece)
		}
		c.Close()
	}()
}

// A hoard holds the slices that careless readers and writers have kept.
type hoard struct {
	mu   sync.Mutex
	kept [][]byte
}

func (h *hoard) keep(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, p[:cap(p)])
}

// scribble writes to all its slices, as an abandoned Read does when its data arrives.
func (h *hoard) scribble() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.kept {
		for i := range p {
			p[i] = 'X'
		}
	}
}

// has reports whether p is in it.
func (h *hoard) has(p []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kept := range h.kept {
		if &kept[0] == &p[:1][0] {
			return true
		}
	}
	return false
}

// carelessEnds are the ways in which a Read or Write may end with its slice still in use. The
// second call ends this way.
var carelessEnds = []struct {
	name string
	end  func(p []byte) (int, error)
}{
	{"an error", func([]byte) (int, error) { return 0, context.Canceled }},
	{"EOF", func([]byte) (int, error) { return 0, io.EOF }},
	{"success", func(p []byte) (int, error) { return len(p), nil }},
	{"a part and an error", func(p []byte) (int, error) { return len(p) / 2, context.Canceled }},
	{"nothing", func([]byte) (int, error) { return 0, nil }},
	{"an impossible count", func(p []byte) (int, error) { return len(p) + 1, nil }},
	{"a panic", func([]byte) (int, error) { panic("careless") }},
	{"Goexit", func([]byte) (int, error) { runtime.Goexit(); return 0, nil }},
}

// carelessly runs f on a separate goroutine and survives its panic.
func carelessly(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	testnet.Receive(t, "the end of a careless copy", done)
}

// TestCopiesShareNothing makes unknown readers and writers keep their slices, whichever way they
// end, and looks for these slices in later copies of other connections.
func TestCopiesShareNothing(t *testing.T) {
	defer features.Splice.Force(false)()
	for _, c := range carelessEnds {
		t.Run("a reader ends with "+c.name, func(t *testing.T) {
			var h hoard
			for range 4 {
				conn, peer := accepted(t, testnet.TCP4)
				go io.Copy(io.Discard, peer)
				calls := 0
				carelessly(t, func() {
					conn.ReadFrom(readerFunc(func(p []byte) (int, error) {
						h.keep(p)
						switch calls++; calls {
						case 1:
							return len(p), nil
						case 2:
							return c.end(p)
						}
						return 0, io.EOF
					}))
				})
			}
			wantUntouched(t, &h)
		})
		t.Run("a writer ends with "+c.name, func(t *testing.T) {
			var h hoard
			for range 4 {
				conn, peer := accepted(t, testnet.TCP4)
				go func() {
					peer.Write(make([]byte, 3*copyBytes))
					peer.Close()
				}()
				calls := 0
				carelessly(t, func() {
					conn.WriteTo(writerFunc(func(p []byte) (int, error) {
						h.keep(p)
						if calls++; calls == 2 {
							return c.end(p)
						}
						return len(p), nil
					}))
				})
				conn.Close()
			}
			wantUntouched(t, &h)
		})
	}
}

// wantUntouched makes all kinds of copies of other connections while the hoard is written to.
func wantUntouched(t *testing.T, h *hoard) {
	t.Helper()
	data := bytes.Repeat([]byte("public "), 1000)
	for range 4 {
		// From an unknown reader.
		conn, peer := accepted(t, testnet.TCP4)
		rest := bytes.NewReader(data)
		received := receiving(peer)
		if _, err := conn.ReadFrom(readerFunc(func(p []byte) (int, error) {
			n, err := rest.Read(p)
			h.scribble()
			return n, err
		})); err != nil {
			t.Error(err)
		}
		conn.Close()
		if got := received(); !bytes.Equal(got, data) {
			t.Fatalf("a client got %.40q..., want what its own reader had: memory of another copy was lent to this one", got)
		}

		// To an unknown writer.
		conn, peer = accepted(t, testnet.TCP4)
		feed(peer, data)
		var got []byte
		if _, err := conn.WriteTo(writerFunc(func(p []byte) (int, error) {
			h.scribble()
			got = append(got, p...)
			return len(p), nil
		})); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("a writer got %.40q..., want what its own client had sent: memory of another copy was lent to this one", got)
		}

		// The pool that event handlers and gRPC use.
		for _, n := range []int{smallCopyBytes, copyBytes} {
			b := pool.Get(n)
			if h.has(b.Bytes()) {
				t.Fatal("the pool has memory that unknown code has held")
			}
			defer b.Release()
		}
	}
}

// pairs returns a function that makes connections over one listener.
func pairs(t testing.TB, listen testnet.ListenFunc, kind testnet.Kind) func() (near, far net.Conn) {
	ln := testnet.Listen(t, listen, kind)
	return func() (near, far net.Conn) {
		far, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		near, err = ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
}

// overTLS puts TLS on both ends of the connections that pair makes.
func overTLS(t testing.TB, pair func() (near, far net.Conn)) func() (near, far net.Conn) {
	server, client := testnet.TLS(t)
	return func() (near, far net.Conn) {
		a, b := pair()
		near, far = tls.Server(a, server), tls.Client(b, client)
		shaken := make(chan error, 1)
		go func() { shaken <- far.(*tls.Conn).Handshake() }()
		if err := errors.Join(near.(*tls.Conn).Handshake(), <-shaken); err != nil {
			t.Fatal(err)
		}
		return near, far
	}
}

// asUnknown hides a connection's type.
func asUnknown(pair func() (near, far net.Conn)) func() (near, far net.Conn) {
	return func() (near, far net.Conn) {
		near, far = pair()
		return struct{ net.Conn }{near}, far
	}
}

// idleCopies is how many copies of each kind wait at once.
func idleCopies() int {
	if race.Enabled || testing.Short() {
		return 80
	}
	return 800
}

// TestIdleCopiesHoldNothing makes many copies carry a message each, and checks the pool while all
// of them wait for the next one.
func TestIdleCopiesHoldNothing(t *testing.T) {
	testnet.NoLeaks(t)
	ours, unix := pairs(t, Listen, testnet.TCP4), pairs(t, Listen, testnet.Unix)
	nets, netsUnix := pairs(t, net.Listen, testnet.TCP4), pairs(t, net.Listen, testnet.Unix)
	for _, c := range []struct {
		name     string
		splice   bool
		from, to func() (near, far net.Conn)
	}{
		{"to unknown code", true, ours, asUnknown(nets)},
		{"from a unix socket to unknown code", true, unix, asUnknown(nets)},
		{"from unknown code", true, asUnknown(nets), ours},
		{"to a connection", false, ours, ours},
		{"to a unix socket", false, ours, unix},
		{"to net's", false, ours, nets},
		{"to a unix socket of net's", false, unix, netsUnix},
		{"from net's", false, nets, ours},
		{"into TLS", true, ours, overTLS(t, ours)},
		{"out of TLS", true, overTLS(t, ours), ours},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer features.Splice.Force(c.splice)()
			message := noise(3*copyBytes + 100)
			before := pool.ReadStats()
			var ends []net.Conn
			var copies sync.WaitGroup
			for i := range idleCopies() {
				from, feeder := c.from()
				to, peer := c.to()
				ends = append(ends, from, feeder, to, peer)
				copies.Go(func() { io.Copy(to, from) })
				p := message[:100]
				if i%2 == 0 {
					p = message
				}
				go feeder.Write(p)
				got := make([]byte, len(p))
				if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, p) {
					t.Fatalf("copy %d: got another message than was sent, %v", i, err)
				}
			}
			testnet.Eventually(t, "the copies holding nothing", func() bool {
				now := pool.ReadStats()
				return now.BuffersInUse <= before.BuffersInUse && now.BytesInUse <= before.BytesInUse
			})
			for _, c := range ends {
				c.Close()
			}
			testnet.Within(t, "the copies' end", copies.Wait)
		})
	}
}

// TestIdleCopyIsGarbage: while the copy waits, the garbage collector may free the memory that
// unknown code got. It is used again as long as it is still there.
func TestIdleCopyIsGarbage(t *testing.T) {
	conn, peer := accepted(t, testnet.TCP4)
	message := noise(copyBytes / 2)
	seen := make(chan weak.Pointer[byte])
	rest := len(message)
	go conn.WriteTo(writerFunc(func(p []byte) (int, error) {
		n := len(p)
		if rest -= n; rest == 0 {
			rest = len(message)
			seen <- weak.Make(&p[0])
		}
		return n, nil
	}))
	var first weak.Pointer[byte]
	for range 4 {
		if _, err := peer.Write(message); err != nil {
			t.Fatal(err)
		}
		first = testnet.Receive(t, "a message", seen)
	}
	testnet.Eventually(t, "the memory being collected", func() bool {
		runtime.GC()
		return first.Value() == nil
	})
}

// TestCopyMemory follows the memory that is lent to unknown code, read by read.
func TestCopyMemory(t *testing.T) {
	m := &copyMemory{shown: true}
	read := func(n, wantLent int) {
		t.Helper()
		if got := len(m.lend()); got != wantLent {
			t.Errorf("before a read of %d: got %d bytes lent, want %d", n, got, wantLent)
		}
		m.adapt(n)
		if kept := m.lent != nil; kept != (n == copyBytes) {
			t.Errorf("after a read of %d: got memory held %t, want it only when there is more to come", n, kept)
		}
	}
	read(100, smallCopyBytes)
	read(smallCopyBytes, smallCopyBytes)
	for range 3 {
		read(copyBytes, copyBytes)
		for range smallReadsMax {
			read(100, copyBytes)
		}
		read(100, smallCopyBytes)
		read(smallCopyBytes, smallCopyBytes)
	}
	m.lend()
	m.takeBack()
	m.takeBack()
	if m.lent != nil {
		t.Error("after takeBack: got memory held, want none")
	}
}

// TestCopyOfBytesInMemory: bytes in memory go through pooled memory, both as http.ServeContent
// passes them and on their own, and none of that memory is left.
func TestCopyOfBytesInMemory(t *testing.T) {
	data := noise(3*copyBytes + 100)
	for name, source := range map[string]func() io.Reader{
		"bytes.Reader":   func() io.Reader { return bytes.NewReader(data) },
		"bytes.Buffer":   func() io.Reader { return bytes.NewBuffer(slices.Clone(data)) },
		"strings.Reader": func() io.Reader { return strings.NewReader(string(data)) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := accepted(t, testnet.TCP4)
			received := receiving(peer)
			before := pool.ReadStats()
			if n, err := conn.ReadFrom(source()); n != int64(len(data)) || err != nil {
				t.Errorf("got %d, %v, want %d", n, err, len(data))
			}
			r := &io.LimitedReader{R: source(), N: copyBytes + 1}
			if n, err := conn.ReadFrom(r); n != copyBytes+1 || r.N != 0 || err != nil {
				t.Errorf("limited: got %d, %d left, %v, want %d", n, r.N, err, copyBytes+1)
			}
			after := pool.ReadStats()
			if after.Gets == before.Gets || after.BuffersInUse > before.BuffersInUse {
				t.Errorf("got %+v after %+v, want buffers used and released", after, before)
			}
			conn.Close()
			wantReceived(t, received(), append(slices.Clone(data), data[:copyBytes+1]...))
		})
	}
}

// TestCopyFaultsOfWriters: a writer's errors and wrong counts are returned as io.Copy returns them.
func TestCopyFaultsOfWriters(t *testing.T) {
	for _, c := range []struct {
		name string
		ends func(p []byte) (int, error)
	}{
		{"short", func(p []byte) (int, error) { return len(p) - 1, nil }},
		{"too much", func(p []byte) (int, error) { return len(p) + 1, nil }},
		{"negative", func(p []byte) (int, error) { return -1, nil }},
		{"negative and an error", func(p []byte) (int, error) { return -1, io.ErrClosedPipe }},
		{"all and an error", func(p []byte) (int, error) { return len(p), io.ErrClosedPipe }},
		{"EOF", func(p []byte) (int, error) { return 0, io.EOF }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var results []string
			for _, pair := range []func() (near, far net.Conn){pairs(t, net.Listen, testnet.TCP4), pairs(t, Listen, testnet.TCP4)} {
				near, far := pair()
				if _, err := far.Write([]byte("message")); err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(writerFunc(c.ends), near)
				var op *net.OpError
				text := fmt.Sprint(err)
				if errors.As(err, &op) {
					text = op.Op + ": " + op.Err.Error()
				}
				results = append(results, fmt.Sprint(n, " ", text))
			}
			if results[0] != results[1] {
				t.Errorf("got %s, want %s as from net", results[1], results[0])
			}
		})
	}
}
