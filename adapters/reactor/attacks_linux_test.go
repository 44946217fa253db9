//go:build !percore_net

package reactor

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/adapters/reactor/frame"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// An attack is what hostile peers do, each on a connection of its own. They read nothing, except
// for those whose messages go to all.
type attack struct {
	name    string
	conns   int
	config  Config
	handler func(a *arena) Handler
	play    func(a *arena, c net.Conn)   // what each peer does
	server  func(a *arena)               // what the server does until all are at their worst, or nil
	worst   func(a *arena, c *Conn) bool // the connection has got as far as it can
	heap    int                          // bytes for each connection, both ends included, without the loops' buffers
}

// arena is what an attack happens in.
type arena struct {
	server *Server
	calls  atomic.Int64 // counted by the handler
	stop   chan bool    // closed at the end

	mu    sync.Mutex
	conns []*Conn // opened
}

func (a *arena) open(c *Conn) {
	smallBuffer(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, c)
}

// opened returns the connections.
func (a *arena) opened() []*Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conns
}

// answering returns a handler that answers each byte with an answer, one per call of Data.
func answering(answer int) func(a *arena) Handler {
	return func(a *arena) Handler {
		p := make([]byte, answer)
		return &handler{open: a.open, data: func(c *Conn, _ []byte) int {
			c.Write(p)
			return 1
		}}
	}
}

// kept returns a handler that waits for more of a message.
func kept(a *arena) Handler {
	return &handler{open: a.open, data: func(*Conn, []byte) int { return 0 }}
}

// hasKept says that n bytes are kept.
func hasKept(n int) func(a *arena, c *Conn) bool {
	return func(_ *arena, c *Conn) bool { return keptBytes(c) == n }
}

// keptBytes asks the connection's loop.
func keptBytes(c *Conn) int {
	n := make(chan int, 1)
	if c.loop.Submit(func() {
		if c.unused == nil {
			n <- 0
		} else {
			n <- len(c.unused.Bytes())
		}
	}) != nil {
		return 0
	}
	return <-n
}

// sending returns a peer that sends n bytes once, as far as the server takes them.
func sending(n int) func(a *arena, c net.Conn) {
	return func(a *arena, c net.Conn) { c.Write(zeros[:n]) }
}

var zeros [4 * mib]byte

const (
	kib = 1 << 10
	mib = 1 << 20
)

// attacks has the attacks of docs/LIMITS.md's table. The bounds of memory are about twice what was
// measured.
var attacks = []attack{
	{name: "silence", conns: 200, heap: 4 * kib,
		handler: func(a *arena) Handler { return &handler{open: a.open} },
		worst:   func(*arena, *Conn) bool { return true }},
	{name: "answers that are not read", conns: 20, heap: 300 * kib, handler: answering(kib), play: sending(mib),
		worst: func(_ *arena, c *Conn) bool { return c.Unsent() > 64*kib }},
	{name: "long answers that are not read", conns: 5, heap: 4 * mib, handler: answering(mib), play: sending(1000),
		worst: func(_ *arena, c *Conn) bool { return c.Unsent() > 64*kib }},
	{name: "answers of a byte that are not read", conns: 5, heap: 300 * kib, handler: answering(1), play: sending(4 * mib),
		worst: func(_ *arena, c *Conn) bool { return c.Unsent() > 64*kib }},
	{name: "messages to all, not read", conns: 20, heap: 600 * kib, config: Config{WriteHardLimit: 256 * kib},
		handler: func(a *arena) Handler { return &told{handler: handler{open: a.open}} },
		server: func(a *arena) {
			for range 50 {
				a.server.Broadcast(zeros[:1000], func(*Conn) { a.calls.Add(1) })
			}
			for a.server.broadcasts.bytes.Load() > 0 { // or it would be they that take the memory
				time.Sleep(time.Millisecond)
			}
		},
		worst: func(a *arena, c *Conn) bool { return a.calls.Load() > 0 && c.Unsent() > 200*kib }},
	{name: "messages to all without end", conns: 20, heap: 600 * kib, config: Config{WriteHardLimit: 256 * kib},
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(_ *Conn, p []byte) int {
				a.calls.Add(1)
				line := p[:min(len(p), 1000)]
				a.server.Broadcast(line, func(*Conn) {})
				return len(line)
			}}
		},
		play: func(a *arena, c net.Conn) {
			go io.Copy(io.Discard, c)
			for err := error(nil); err == nil; {
				_, err = c.Write(zeros[:])
			}
		},
		worst: func(a *arena, _ *Conn) bool { return a.calls.Load() > 20_000 }},
	{name: "messages of a byte to all, not read", conns: 5, heap: 200 * kib, config: Config{WriteHardLimit: 64 * kib},
		handler: func(a *arena) Handler { return &told{handler: handler{open: a.open}} },
		server: func(a *arena) {
			for _, c := range a.opened() {
				for range 100_000 {
					p := zeros[:1]
					if c.Unsent() == 0 {
						p = zeros[:1000] // to fill the sockets, which takes no memory of ours
					}
					if _, err := c.Write(p); err != nil {
						a.calls.Add(1)
						break // each refused write tries the socket
					}
				}
			}
		},
		worst: func(a *arena, c *Conn) bool { return a.calls.Load() > 0 && c.Unsent() > 60*kib }},
	{name: "shared buffers, not read", conns: 5, heap: 600 * kib, config: Config{WriteHardLimit: 256 * kib},
		handler: func(a *arena) Handler { return &told{handler: handler{open: a.open}} },
		server: func(a *arena) {
			for _, size := range []int{100, 5000} {
				for range 500 {
					b := pool.Get(size)
					for _, c := range a.opened() {
						if c.WriteShared(b) != nil {
							a.calls.Add(1)
						}
					}
					b.Release()
				}
			}
		},
		worst: func(a *arena, c *Conn) bool { return a.calls.Load() > 0 && c.Unsent() > 200*kib }},
	{name: "bytes to a paused connection", conns: 50, heap: 4 * kib,
		handler: func(a *arena) Handler {
			return &handler{open: func(c *Conn) { a.open(c); c.Pause() }, data: func(*Conn, []byte) int { a.calls.Add(1); return 0 }}
		},
		play: sending(mib), worst: func(a *arena, _ *Conn) bool { return a.calls.Load() == 0 }},
	{name: "bytes to a connection paused with a part", conns: 20, heap: 80 * kib,
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(c *Conn, p []byte) int { c.Pause(); return 0 }}
		},
		play: sending(mib), worst: func(_ *arena, c *Conn) bool { return c.asked.Load()&askPause != 0 && keptBytes(c) > 0 }},
	{name: "a byte of a message", conns: 200, heap: 8 * kib, handler: kept, play: sending(1), worst: hasKept(1)},
	{name: "half a message", conns: 50, heap: 20 * kib, handler: kept, play: sending(5000), worst: hasKept(5000)},
	{name: "a message almost as long as ReadBufferMax", conns: 5, heap: 3 * mib, handler: kept, play: sending(mib - 1), worst: hasKept(mib - 1)},
	{name: "a length of 1 MiB alone", conns: 50, heap: 8 * kib,
		handler: func(a *arena) Handler { return &handler{open: a.open, data: framesOf(mib)} },
		play:    func(_ *arena, c net.Conn) { c.Write(append(binary.BigEndian.AppendUint32(nil, mib), 1)) }, worst: hasKept(5)},
	{name: "functions of Go", conns: 5, heap: 100 * kib, config: Config{Workers: 1, WaitingMax: 100},
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(c *Conn, p []byte) int {
				c.Go(func() { a.calls.Add(1); <-a.stop })
				return 1
			}}
		},
		play: sending(mib), worst: func(_ *arena, c *Conn) bool { return c.asked.Load()&askWork != 0 }},
	{name: "timers that are moved", conns: 5, heap: 16 * kib,
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(c *Conn, p []byte) int {
				c.SetTimeout(ReadIdleTimeout(time.Hour))
				if t, ok := c.User().(*Timer); ok {
					t.Stop()
				}
				c.SetUser(c.AfterFunc(time.Hour, func() {}))
				a.calls.Add(1)
				return 1
			}}
		},
		play: sending(20 * kib), worst: func(a *arena, _ *Conn) bool { return a.calls.Load() == 5*20*kib }},
	{name: "held connections whose peers have left", conns: 100, heap: 8 * kib,
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(c *Conn, p []byte) int { c.Hold(); return len(p) }}
		},
		play:  func(_ *arena, c net.Conn) { c.Write([]byte("x")); c.(*net.TCPConn).CloseWrite() },
		worst: func(_ *arena, c *Conn) bool { return c.asked.Load()&askEnd != 0 }},
	{name: "closed connections whose peers don't read", conns: 5, heap: 3 * mib,
		handler: func(a *arena) Handler {
			return &handler{open: a.open, data: func(c *Conn, p []byte) int { c.Write(zeros[:mib]); c.Close(); return len(p) }}
		},
		play: sending(1), worst: func(_ *arena, c *Conn) bool { return c.asked.Load()&askEnd != 0 && c.Unsent() > mib/2 }},
}

// framesOf is a Data for messages with their length in front.
func framesOf(most int) func(c *Conn, p []byte) int {
	format := frame.Prefix{Bytes: 4, Limit: most}
	return func(c *Conn, p []byte) int {
		_, used, err := format.Next(p)
		if err != nil {
			c.Abort()
		}
		return used
	}
}

// The memory of each attack stays within a bound, and another connection is served meanwhile.
func TestAttacks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { a.test(t) })
	}
}

func (a *attack) test(t *testing.T) {
	testnet.NoLeaks(t)
	in := &arena{stop: make(chan bool)}
	s, dial := serve(t, a.handler(in), a.config)
	in.server = s
	defer close(in.stop)
	_, dialOther := serve(t, &handler{data: echo})
	other := dialOther()
	before := testnet.HeapBytes()

	var playing sync.WaitGroup
	for range a.conns {
		c := dial()
		defer c.Close()
		if a.play != nil {
			playing.Go(func() { a.play(in, c) })
		}
	}
	testnet.Eventually(t, "all are open", func() bool { return len(in.opened()) == a.conns })
	testnet.Eventually(t, "all are at their worst", func() bool {
		if a.server != nil {
			a.server(in)
		}
		for _, c := range in.opened() {
			if !a.worst(in, c) {
				return false
			}
		}
		return true
	})
	if _, err := other.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
		t.Errorf("another connection: %v", err)
	}
	per := (testnet.HeapBytes() - before - loopBytes(s)) / a.conns
	t.Logf("%d connections take %d bytes of heap each", a.conns, per)
	if per > a.heap && !race.Enabled && !invariants.Enabled {
		t.Errorf("a connection takes %d bytes of heap, want %d at most", per, a.heap)
	}
	runtime.KeepAlive(in)
	for _, c := range in.opened() {
		c.Abort() // so that peers that wait to write end, too
	}
	testnet.Within(t, "the peers", playing.Wait)
}

// A connection that is ending is closed when its peer takes nothing for long.
func TestEndingConnection(t *testing.T) {
	testnet.NoLeaks(t)
	defer func(d time.Duration) { endingTime = d }(endingTime)
	endingTime = 20 * time.Millisecond
	for _, byPeer := range []bool{false, true} {
		end, ended := closes()
		s, dial := serve(t, &handler{open: smallBuffer, close: end, data: func(c *Conn, p []byte) int {
			c.Write(zeros[:mib])
			if !byPeer {
				c.Close()
			}
			return len(p)
		}}, Config{WriteHighWaterMark: 2 * mib})
		c := dial()
		c.(*net.TCPConn).SetReadBuffer(socketBytes)
		c.Write([]byte("x"))
		if byPeer {
			c.(*net.TCPConn).CloseWrite()
		}
		if err := testnet.Receive(t, "Close", ended); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
		}
		c.Close()
		s.Close()
	}
}
