//go:build !percore_net

package percore

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// wantNoBuffers waits until all buffers of the pool are released.
func wantNoBuffers(t *testing.T, when string) {
	t.Helper()
	testnet.Eventually(t, "all buffers are released "+when, func() bool { return pool.ReadStats().BuffersInUse == 0 })
	if err := pool.CheckLeaks(); err != nil {
		t.Error(err)
	}
}

// readPooled reads up to n bytes into a buffer from the pool, which it takes when there is
// something to read.
func readPooled(c *Conn, n int) (*pool.Buffer, error) {
	var b *pool.Buffer
	read, err := c.ReadReady(func() []byte {
		b = pool.Get(n)
		return b.Bytes()
	}, func() {
		b.Release()
		b = nil
	})
	if err != nil {
		return nil, err
	}
	b.SetLen(read)
	return b, nil
}

// TestBufferAllocs checks that none of the calls allocates.
func TestBufferAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's sync.Pool allocates: run it without -race")
	}
	if invariants.Enabled {
		t.Skip("the checking build keeps a stack of each acquire and release")
	}
	testnet.NoLeaks(t)
	ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
	c, client := connect(t, ln)
	go io.Copy(io.Discard, client)
	p := make([]byte, 4096)
	slices := make(net.Buffers, 16)
	if n := testing.AllocsPerRun(200, func() {
		for i := range slices {
			slices[i] = p[:200]
		}
		left := slices
		if _, err := c.WriteBuffers(&left); err != nil {
			t.Errorf("WriteBuffers: %v", err)
		}
	}); n >= 1 { // below 1: memory that is allocated once
		t.Errorf("WriteBuffers: got %v allocations, want none", n)
	}

	c, client = connect(t, ln)
	go io.Copy(client, onlyReader{client})
	if n := testing.AllocsPerRun(200, func() {
		if _, err := c.Write(p[:64]); err != nil {
			t.Error(err)
		}
		b, err := readPooled(c, 100)
		if err != nil {
			t.Errorf("ReadReady: %v", err)
			return
		}
		b.Release()
	}); n >= 1 {
		t.Errorf("ReadReady: got %v allocations, want none", n)
	}
}

// onlyReader hides all other methods, so that package net copies as usual.
type onlyReader struct{ io.Reader }

// A connection that waits in ReadReady has no buffer. If it got no buffer, it returns none.
func TestReadReadyHoldsNone(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		c, client := connect(t, listenKindIn(t, ListenConfig{Group: newGroup(t, 1)}, kind))
		for _, text := range []string{"first", "second, which fills it"} {
			type result struct {
				b   *pool.Buffer
				err error
			}
			reading := make(chan result, 1)
			testnet.GoBlocked(t, "ReadReady", func() {
				b, err := readPooled(c, len("second, which fills it"))
				reading <- result{b, err}
			})
			// Perhaps a moment later: it may be checking again and again.
			testnet.Eventually(t, "a ReadReady that waits holds no buffer", func() bool { return pool.ReadStats().BuffersInUse == 0 })
			io.WriteString(client, text)
			r := testnet.Receive(t, "ReadReady", reading)
			if r.err != nil || string(r.b.Bytes()) != text {
				t.Fatalf("%s: got %v, %v, want %q", kind, r.b, r.err, text)
			}
			r.b.Release()
		}
		client.Close()
		if b, err := readPooled(c, 10); b != nil || err != io.EOF {
			t.Errorf("%s: at the end: got %v, %v, want no buffer, EOF", kind, b, err)
		}
		wantNoBuffers(t, "at the end")
	}
}

// TestZeroConnBuffers: TestDiffUnusableValues has the methods that package net has, too.
func TestZeroConnBuffers(t *testing.T) {
	var none *Conn
	if n, err := none.ReadReady(nil, nil); n != 0 || err != syscall.EINVAL {
		t.Errorf("ReadReady: got %d, %v, want 0, EINVAL", n, err)
	}
	if n, err := none.WriteBuffers(nil); n != 0 || err != syscall.EINVAL {
		t.Errorf("WriteBuffers: got %d, %v, want 0, EINVAL", n, err)
	}
}
