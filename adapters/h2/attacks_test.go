package h2

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// An attack is what a hostile client does on one connection, until the server ends it or doesn't
// let it make more.
type attack struct {
	name   string
	config Config
	// play sends until it fails, or is done. It reads nothing.
	play func(p *frames.Peer, send func() bool)
	ends bool // the server ends the connection
	heap int  // bytes that the server may hold meanwhile, besides the buffers of the test
}

// until calls add with odd identifiers until that many frames were sent, or the connection ends.
func until(n int, add func(p *frames.Peer, id uint32)) func(p *frames.Peer, send func() bool) {
	return func(p *frames.Peer, send func() bool) {
		for i := range n {
			add(p, uint32(2*i+1))
			if len(p.Out) > 16<<10 && !send() {
				return
			}
		}
		send()
	}
}

// attacks has the attacks of SECURITY.md's table, each over a real connection.
var attacks = []attack{
	{name: "rapid reset, CVE-2023-44487", ends: true, heap: 2 << 20,
		play: until(20000, func(p *frames.Peer, id uint32) { p.Request(id, true).Reset(id, Cancel) })},
	{name: "made you reset, CVE-2025-8671", ends: true, heap: 2 << 20,
		play: until(20000, func(p *frames.Peer, id uint32) { p.Request(id, true).Window(id, 0) })},
	{name: "CONTINUATION, CVE-2023-45288", ends: true, heap: 1 << 20, play: func(p *frames.Peer, send func() bool) {
		p.Frame(frames.Headers, 0, 1, []byte{0x82})
		for range 5000 {
			p.Frame(9, 0, 1, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 100))
			if !send() {
				return
			}
		}
	}},
	{name: "fields of one byte, CVE-2026-49975", heap: 4 << 20, play: func(p *frames.Peer, send func() bool) {
		p.Request(1, true, "x-bomb", strings.Repeat("b", 3000))
		block := append([]byte{0x82, 0x86, 0x84}, bytes.Repeat([]byte{0xbe}, 16000)...)
		for i := range 200 {
			p.Frame(frames.Headers, frames.EndHeaders|frames.End, uint32(2*i+3), block)
			if !send() {
				return
			}
		}
	}},
	{name: "PING, CVE-2019-9512", ends: true, heap: 1 << 20,
		play: until(50000, func(p *frames.Peer, _ uint32) { p.Frame(frames.Ping, 0, 0, make([]byte, 8)) })},
	{name: "SETTINGS, CVE-2019-9515", ends: true, heap: 1 << 20,
		play: until(50000, func(p *frames.Peer, _ uint32) { p.Frame(frames.Settings, 0, 0, nil) })},
	{name: "SETTINGS of the initial window, CVE-2026-78669", ends: true, heap: 2 << 20, play: func(p *frames.Peer, send func() bool) {
		for id := uint32(1); id < 500; id += 2 {
			p.Request(id, false)
		}
		until(50000, func(p *frames.Peer, id uint32) {
			p.Frame(frames.Settings, 0, 0, []byte{0, 4, 0, byte(id >> 16), byte(id >> 8), byte(id)})
		})(p, send)
	}},
	{name: "PRIORITY, CVE-2019-9513", ends: true, heap: 1 << 20,
		play: until(50000, func(p *frames.Peer, id uint32) { p.Frame(frames.Priority, 0, id, make([]byte, 5)) })},
	{name: "empty DATA, CVE-2019-9518", ends: true, heap: 1 << 20, play: func(p *frames.Peer, send func() bool) {
		p.Request(1, false)
		until(50000, func(p *frames.Peer, _ uint32) { p.Data(1, "", false) })(p, send)
	}},
	{name: "MAX_FRAME_SIZE 0, CVE-2026-33814", ends: true, heap: 1 << 20,
		play: until(10, func(p *frames.Peer, _ uint32) { p.Frame(frames.Settings, 0, 0, []byte{0, 5, 0, 0, 0, 0}) })},
	{name: "a body that is not read", heap: 4 << 20, play: func(p *frames.Peer, send func() bool) {
		p.Request(1, false)
		until(200, func(p *frames.Peer, _ uint32) { p.Data(1, strings.Repeat("x", 16000), false) })(p, send)
	}},
	{name: "answers that are not read, CVE-2019-9511", config: Config{WriteTimeout: 500 * time.Millisecond}, ends: true, heap: 8 << 20,
		play: func(p *frames.Peer, send func() bool) {
			p.Frame(frames.Settings, 0, 0, []byte{0, 4, 0x7f, 0xff, 0xff, 0xff}).Window(0, 1<<31-65536)
			for id := uint32(1); id < 400; id += 2 {
				p.Headers(id, true, ":method", "GET", ":scheme", "http", ":path", "/big", ":authority", "x")
			}
			send()
		}},
	{name: "a preface that does not come, CVE-2026-56853", config: Config{BeginTimeout: time.Second}, ends: true, heap: 1 << 20,
		play: func(p *frames.Peer, send func() bool) { p.Out = p.Out[:10]; send() }},
}

// TestAttacks plays each attack from outside, on a connection of its own. The server's memory stays
// within a bound, and it serves another client meanwhile and afterwards.
func TestAttacks(t *testing.T) {
	big := make([]byte, 4<<20)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			stop := make(chan bool)
			handler := HandlerFunc(func(s *Stream, r *Request) {
				switch {
				case r.Path == "/big":
					_ = s.Send(Message{Status: 200, Body: big, End: true})
				case !r.End:
					<-stop
				default:
					hello(s, r)
				}
			})
			f := serve(t, handler, a.config)
			defer close(stop)
			before := heapInUse()
			attacker := f.peer()
			c := attacker.Conn
			played := make(chan bool)
			go func() {
				defer close(played)
				a.play(attacker, func() bool {
					_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // the server may not read on
					_, err := c.Write(attacker.Out)
					attacker.Out = attacker.Out[:0]
					return err == nil
				})
			}()
			testnet.Receive(t, "the end of the attack", played)
			other := f.peer()
			for id := uint32(1); id < 20; id += 2 {
				other.Request(id, true).Flush().Want(fmt.Sprintf("headers %d :status=200 content-type=text/plain", id), fmt.Sprintf(`data %d "Hello, World!" end`, id))
			}
			if held := heapInUse() - before; held > a.heap && !race.Enabled {
				t.Errorf("got %d bytes held, want %d at most", held, a.heap)
			}
			if a.ends {
				testnet.Eventually(t, "the end of the attacker's connection", func() bool { return f.server.connCount() == 1 })
			}
			runtime.KeepAlive(other)
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		})
	}
}

func (s *Server) connCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.conns
}

func heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
