package conformance

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// writeBuffersOutcome writes the slices of v at once. It uses WriteBuffers if the connection has
// it. Otherwise it uses v.WriteTo, which package net's connections turn into one call.
func (a *actor) writeBuffersOutcome(v *net.Buffers) (int64, error) {
	if w, ok := a.Conn.(interface {
		WriteBuffers(*net.Buffers) (int64, error)
	}); ok {
		return w.WriteBuffers(v)
	}
	return v.WriteTo(a.Conn)
}

// writeBuffers notes its result and the rest of v.
func (a *actor) writeBuffers(what string, v net.Buffers) error {
	all := v
	n, err := a.writeBuffersOutcome(&v)
	left := 0
	for _, b := range v {
		left += len(b)
	}
	gone := 0
	for _, b := range all {
		if b == nil {
			gone++
		}
	}
	a.note("WriteBuffers(%s): %d %s; left: %d slices, %d bytes; nil: %d of %d", what, n, describeError(err), len(v), left, gone, len(all))
	return err
}

// beginCutWriteBuffers is beginCutWrite with WriteBuffers. The bytes written and the rest must
// together be muchData.
func (a *actor) beginCutWriteBuffers(peer *actor) *pending {
	p := a.stage.begin(a.name+".WriteBuffers", func() string {
		v := cut(pattern(muchData), 100_000)
		n, err := a.writeBuffersOutcome(&v)
		for _, b := range v {
			n += int64(len(b))
		}
		return fmt.Sprintf("%s.WriteBuffers(much): written and left: %d; some left: %t %s", a.name, n, len(v) > 0, describeError(err))
	})
	peer.awaitReadable(1)
	return p
}

// cut cuts data into slices of size bytes; the last one has the remainder.
func cut(data []byte, size int) (v net.Buffers) {
	for len(data) > size {
		v = append(v, data[:size])
		data = data[size:]
	}
	return append(v, data)
}

// TestDiffWriteBuffers writes many slices with one call, as net.Buffers does. Random programs write few.
func TestDiffWriteBuffers(t *testing.T) {
	playScripts(t, []script{{
		name:  "shapes",
		shows: []string{`no slices\): 0 nil`, `empty slices\): 0 nil; left: 3`, `some empty\): 6 nil; left: 0 slices`, `1025 slices\): 1025 nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			reading := cli.beginReadAll()
			srv.writeBuffers("nil", nil)
			srv.writeBuffers("no slices", net.Buffers{})
			srv.writeBuffers("empty slices", net.Buffers{nil, {}, nil})
			srv.writeBuffers("one", net.Buffers{[]byte("one, ")})
			srv.writeBuffers("some empty", net.Buffers{nil, []byte("tw"), {}, []byte("o"), []byte("..."), nil, {}})
			srv.writeBuffers("1024 slices", cut(pattern(1024), 1))
			srv.writeBuffers("1025 slices", cut(pattern(1025), 1))
			srv.writeBuffers("5000 slices", cut(pattern(5000*3), 3))
			srv.writeBuffers("much", cut(pattern(muchData), 123_457))
			srv.writeBuffers("one large slice between small ones", net.Buffers{[]byte("<"), pattern(3 << 20), []byte(">")})
			srv.close()
			reading.end()
		},
	}, {
		name:  "cut by a deadline",
		shows: []string{`written and left: 16777216; some left: true .*i/o timeout`},
		play: func(s *stage) {
			srv, cli := s.pair()
			writing := srv.beginCutWriteBuffers(cli)
			srv.deadline("SetWriteDeadline", time.Unix(1, 0))
			writing.end()
		},
	}, {
		name:  "cut by Close",
		shows: []string{`written and left: 16777216; some left: true .*use of closed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			writing := srv.beginCutWriteBuffers(cli)
			srv.close()
			writing.end()
		},
	}, {
		name:  "cut by the peer",
		kinds: onTCP,
		shows: []string{`written and left: 16777216; some left: true .*"writev"`},
		play: func(s *stage) {
			srv, cli := s.pair()
			writing := srv.beginCutWriteBuffers(cli)
			cli.reset()
			writing.end()
		},
	}})
}

// readReady is readOnce, but uses ReadReady and a buffer of the pool if the connection has it.
func (a *actor) readReady(size int) (n int, line string) {
	c, ok := a.Conn.(*percore.Conn)
	if !ok {
		return a.readOnce(size)
	}
	var b *pool.Buffer
	n, err := c.ReadReady(func() []byte {
		b = pool.Get(size)
		return b.Bytes()
	}, func() {
		b.Release()
		b = nil
	})
	var got []byte
	if b != nil {
		got = b.Bytes()[:n]
		defer b.Release()
	}
	if (b == nil) != (err != nil) {
		return n, fmt.Sprintf("ReadReady has lent the buffer %v, and returned the error %v", b, err)
	}
	return n, fmt.Sprintf("%s.Read(%d): %d %s %s", a.name, size, len(got), digest(got), describeError(err))
}

// wantNoBuffers returns a function that fails the test unless all buffers of the pool have been
// released. Buffers that earlier tests left to the garbage collector don't count: grpc-go leaves
// some when streams are cancelled.
func wantNoBuffers(t *testing.T) (check func()) {
	before := percore.ReadStats().Pool.Leaked
	return func() {
		t.Helper()
		testnet.Eventually(t, "the buffers' release", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
		if n := percore.ReadStats().Pool.Leaked - before; n > 0 {
			t.Errorf("%d buffers were garbage-collected without being released", n)
		}
	}
}
