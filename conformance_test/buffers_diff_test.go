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
func (a *actor) writeBuffers(what string, v net.Buffers) {
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

// TestDiffWriteBuffers writes many slices with one call, as net.Buffers does.
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
		name:  "closed connections",
		shows: []string{`"writev".*use of closed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.writeBuffers("closed", net.Buffers{[]byte("text")})
			srv.writeBuffers("closed, nothing", nil)
			srv.writeBuffers("closed, empty", net.Buffers{nil})
		},
	}, {
		name:  "after CloseWrite",
		shows: []string{`"writev".*broken pipe`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.closeWrite()
			srv.writeBuffers("shut down", net.Buffers{[]byte("te"), []byte("xt")})
			srv.writeBuffers("shut down, empty", net.Buffers{nil})
			cli.readAll()
		},
	}, {
		name:  "the peer is gone",
		kinds: onTCP,
		shows: []string{`"writev".*connection reset|"writev".*broken pipe`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.writeBuffers("reset", net.Buffers{[]byte("te"), []byte("xt")})
			srv.writeBuffers("reset again", net.Buffers{[]byte("te"), []byte("xt")})
		},
	}, {
		name:  "deadline passed",
		shows: []string{`WriteBuffers\(late\): 0 .*i/o timeout`, `WriteBuffers\(in time\): 4 nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.deadline("SetWriteDeadline", time.Unix(1, 0))
			srv.writeBuffers("late", net.Buffers{[]byte("te"), []byte("xt")})
			srv.writeBuffers("late, empty", net.Buffers{nil})
			srv.writeBuffers("late, nothing", nil)
			srv.deadline("SetWriteDeadline", time.Time{})
			srv.writeBuffers("in time", net.Buffers{[]byte("te"), []byte("xt")})
			srv.close()
			cli.readAll()
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

// readReady is read, but uses ReadReady and a buffer of the pool if the connection has it.
func (a *actor) readReady(size int) { a.stage.note("%s", a.readReadyOutcome(size)) }

func (a *actor) readReadyOutcome(size int) string {
	c, ok := a.Conn.(*percore.Conn)
	if !ok {
		return a.readOutcome(size)
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
		return fmt.Sprintf("ReadReady has lent the buffer %v, and returned the error %v", b, err)
	}
	return fmt.Sprintf("%s.Read(%d): %d %q %s", a.name, size, len(got), got, describeError(err))
}

func (a *actor) beginReadReady(size int) *pending {
	return a.stage.begin(a.name+".ReadReady", func() string { return a.readReadyOutcome(size) })
}

// TestDiffReadReady reads into buffers of the pool, in situations where package net reads as usual.
func TestDiffReadReady(t *testing.T) {
	defer wantNoBuffers(t)()
	playScripts(t, []script{{
		name:  "reads and the end",
		shows: []string{`Read\(3\): 3 "som"`, `Read\(100\): 7 "e bytes"`, `blocked srv.Read\(9\): 4 "more"`, `Read\(1\): 0 "" io.EOF`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("some bytes")
			srv.awaitReadable(10)
			srv.readReady(3)
			srv.readReady(100)
			blocked := srv.beginReadReady(9)
			blocked.stillBlocked()
			cli.write("more")
			blocked.end()
			cli.closeWrite()
			srv.readReady(1)
			srv.readReady(1 << 20)
		},
	}, {
		name:  "exactly full",
		shows: []string{`Read\(8\): 8 "12345678"`, `blocked srv.Read\(8\): 0 "" io.EOF`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("12345678")
			srv.awaitReadable(8)
			srv.readReady(8)
			blocked := srv.beginReadReady(8)
			blocked.stillBlocked()
			cli.close()
			blocked.end()
		},
	}, {
		name:  "errors",
		shows: []string{`i/o timeout`, `use of closed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.deadline("SetReadDeadline", time.Unix(1, 0))
			srv.readReady(4)
			srv.deadline("SetReadDeadline", time.Time{})
			blocked := srv.beginReadReady(4)
			srv.deadline("SetReadDeadline", time.Unix(1, 0))
			blocked.end()
			srv.deadline("SetReadDeadline", time.Now().Add(2*time.Millisecond))
			srv.readReady(4)
			srv.deadline("SetReadDeadline", time.Time{})
			cli.write("text")
			srv.awaitReadable(4)
			srv.readReady(4)
			blocked = srv.beginReadReady(4)
			srv.close()
			blocked.end()
			srv.readReady(4)
		},
	}, {
		name:  "reset",
		kinds: onTCP,
		shows: []string{`connection reset`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginReadReady(4)
			cli.reset()
			blocked.end()
			srv.readReady(4)
		},
	}, {
		name:  "CloseRead",
		shows: []string{`Read\(4\): 0 "" io.EOF`},
		play: func(s *stage) {
			srv, _ := s.pair()
			blocked := srv.beginReadReady(4)
			srv.closeRead()
			blocked.end()
			srv.readReady(4)
		},
	}})
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
