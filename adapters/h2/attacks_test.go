package h2

import (
	"bytes"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
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
	// play adds the frames, and calls send each time that they are many. It reads nothing.
	play     func(p *frames.Peer, send func())
	ends     bool // the server ends the connection
	heap     int  // bytes that the server may hold meanwhile, besides the buffers of the test
	begun    int  // handlers that have begun before the second part is sent
	handlers int  // that may be called
	cost     int  // CPU time that client and server may use together, in that of a plain request
}

// after sends something first, and then as frames.Until does.
func after(first func(p *frames.Peer), n int, add func(p *frames.Peer, id uint32)) func(p *frames.Peer, send func()) {
	return func(p *frames.Peer, send func()) {
		first(p)
		send()
		frames.Until(n, add)(p, send)
	}
}

// upload begins a body that no handler reads.
func upload(p *frames.Peer) { p.Request(1, false) }

// setting adds SETTINGS with values.
func setting(p *frames.Peer, values ...uint32) {
	var b []byte
	for i := 0; i < len(values); i += 2 {
		b = binary.BigEndian.AppendUint16(b, uint16(values[i]))
		b = binary.BigEndian.AppendUint32(b, values[i+1])
	}
	p.Frame(frames.Settings, 0, 0, b)
}

// priority adds PRIORITY.
func priority(p *frames.Peer, id, dependsOn uint32) {
	p.Frame(frames.Priority, 0, id, append(binary.BigEndian.AppendUint32(nil, 1<<31|dependsOn), 255))
}

// The settings that attacks use.
const (
	tableSize     = 1
	initialWindow = 4
	maxFrameSize  = 5
)

// block adds a request whose header block is given, behind the pseudo-header fields of "GET /".
func block(p *frames.Peer, id uint32, b ...[]byte) {
	p.Frame(frames.Headers, frames.EndHeaders|frames.End, id, append([]byte{0x82, 0x86, 0x84}, slices.Concat(b...)...))
}

// many is how many frames a flood has: more than any limit lets pass.
const many = 50000

// fewResets keeps an attack short that ends when its resets are spent: more come with time.
var fewResets = Config{Resets: 500}

// attacks has attacks of docs/LIMITS.md's table, each over a real connection. The core's attacks are
// more: those that are not here spend the same budgets.
// The costs are five to ten times what was measured.
var attacks = []attack{
	{name: "rapid reset, CVE-2023-44487", config: fewResets, ends: true, heap: 2 << 20, handlers: 5100, cost: 15000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, true).Reset(id, Cancel) })},
	{name: "rapid reset of requests with bodies", config: fewResets, ends: true, heap: 4 << 20, handlers: 250, cost: 15000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, false).Data(id, "body", false).Reset(id, Cancel) })},
	{name: "rapid reset of handlers that go on", config: fewResets, ends: true, heap: 4 << 20, begun: 250, handlers: 250, cost: 15000,
		play: after(func(p *frames.Peer) {
			for id := uint32(1); id < 500; id += 2 {
				p.Request(id, false)
			}
		}, many, func(p *frames.Peer, id uint32) { p.Reset(id, Cancel).Request(id+500, false) })},
	{name: "made you reset, CVE-2025-8671", config: fewResets, ends: true, heap: 2 << 20, handlers: 5100, cost: 15000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, true).Window(id, 0) })},
	{name: "made you reset by a body that is too long", config: fewResets, ends: true, heap: 2 << 20, handlers: 5100, cost: 15000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, false, "content-length", "1").Data(id, "xx", true) })},
	{name: "requests without names, CVE-2019-9516", config: fewResets, ends: true, heap: 2 << 20, cost: 8000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, true, "", "") })},
	{name: "requests that are malformed, CVE-2019-9514", config: fewResets, ends: true, heap: 2 << 20, cost: 8000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, true, "x-a", "b\r\nx: y") })},
	{name: "more streams than allowed", config: fewResets, ends: true, heap: 8 << 20, handlers: 250, cost: 8000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { p.Request(id, false) })},
	{name: "CONTINUATION, CVE-2023-45288", ends: true, heap: 1 << 20, cost: 2000, play: func(p *frames.Peer, send func()) {
		p.Frame(frames.Headers, 0, 1, []byte{0x82})
		frames.Until(5000, func(p *frames.Peer, _ uint32) { p.Frame(9, 0, 1, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 100)) })(p, send)
	}},
	{name: "empty CONTINUATION", ends: true, heap: 1 << 20, cost: 2000, play: func(p *frames.Peer, send func()) {
		p.Frame(frames.Headers, 0, 1, nil)
		frames.Until(many, func(p *frames.Peer, _ uint32) { p.Frame(9, 0, 1, nil) })(p, send)
	}},
	{name: "fields of one byte, CVE-2026-49975", heap: 4 << 20, cost: 30000, play: func(p *frames.Peer, send func()) {
		p.Request(1, true, "x-bomb", strings.Repeat("b", 3000))
		frames.Until(200, func(p *frames.Peer, id uint32) { block(p, id+2, bytes.Repeat([]byte{0xbe}, 16000)) })(p, send)
	}, handlers: 201},
	{name: "cookies of one byte, CVE-2026-49975", heap: 4 << 20, cost: 30000, play: func(p *frames.Peer, send func()) {
		p.Request(1, true, "cookie", "a=b")
		frames.Until(200, func(p *frames.Peer, id uint32) { block(p, id+2, bytes.Repeat([]byte{0xbe}, 16000)) })(p, send)
	}, handlers: 201},
	{name: "long Huffman codes, CVE-2022-41723", heap: 4 << 20, cost: 30000, handlers: 200,
		// 15,000 bytes of zeros are 24,000 times the code of '0'. 127 + 15000 - 127 is their length.
		play: frames.Until(200, func(p *frames.Peer, id uint32) {
			block(p, id, []byte{0, 1, 'x', 0xff, 0x80 | (15000-127)&0x7f, (15000 - 127) >> 7}, make([]byte, 15000))
		})},
	{name: "table sizes in a header block", heap: 1 << 20, cost: 30000, handlers: 200,
		play: frames.Until(200, func(p *frames.Peer, id uint32) {
			p.Frame(frames.Headers, frames.EndHeaders|frames.End, id, append(bytes.Repeat([]byte{0x20}, 16000), 0x82, 0x86, 0x84))
		})},
	{name: "table sizes in SETTINGS", ends: true, heap: 8 << 20, cost: 6000, handlers: 10000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) {
			if id%16 == 1 {
				p.Request(id, true)
			}
			setting(p, tableSize, 1<<31*(id>>1&1))
		})},
	{name: "PING, CVE-2019-9512", ends: true, heap: 1 << 20, cost: 2000,
		play: frames.Until(many, func(p *frames.Peer, _ uint32) { p.Frame(frames.Ping, 0, 0, make([]byte, 8)) })},
	{name: "SETTINGS, CVE-2019-9515", ends: true, heap: 1 << 20, cost: 2000,
		play: frames.Until(many, func(p *frames.Peer, _ uint32) { p.Frame(frames.Settings, 0, 0, nil) })},
	{name: "SETTINGS of the initial window, CVE-2026-78669", ends: true, heap: 4 << 20, begun: 250, handlers: 250, cost: 2000,
		play: after(func(p *frames.Peer) {
			for id := uint32(1); id < 500; id += 2 {
				p.Request(id, false)
			}
		}, many, func(p *frames.Peer, id uint32) { setting(p, initialWindow, id) })},
	{name: "PRIORITY in circles, CVE-2019-9513", ends: true, heap: 1 << 20, cost: 2000,
		play: frames.Until(many, func(p *frames.Peer, id uint32) { priority(p, id%100, (id+2)%100) })},
	{name: "empty DATA, CVE-2019-9518", ends: true, heap: 1 << 20, begun: 1, handlers: 1, cost: 2000,
		play: after(upload, many, func(p *frames.Peer, _ uint32) { p.Data(1, "", false) })},
	{name: "MAX_FRAME_SIZE 0, CVE-2026-33814", ends: true, heap: 1 << 20, cost: 2000,
		play: frames.Until(10, func(p *frames.Peer, _ uint32) { setting(p, maxFrameSize, 0) })},
	{name: "a frame of 16 MiB", ends: true, heap: 1 << 20, cost: 2000,
		play: func(p *frames.Peer, send func()) {
			p.Out = append(p.Out, 0xff, 0xff, 0xff, frames.Headers, frames.EndHeaders, 0, 0, 0, 1)
			frames.Until(100, func(p *frames.Peer, _ uint32) { p.Out = append(p.Out, make([]byte, 16<<10)...) })(p, send)
		}},
	{name: "a body that is not read", heap: 4 << 20, begun: 1, handlers: 1, cost: 4000,
		play: after(upload, 200, func(p *frames.Peer, _ uint32) { p.Data(1, strings.Repeat("x", 16000), false) })},
	{name: "a body of single bytes", heap: 1 << 20, begun: 1, handlers: 1, cost: 8000,
		play: after(upload, many, func(p *frames.Peer, _ uint32) { p.Data(1, "x", false) })},
	{name: "windows that stay closed", heap: 8 << 20, handlers: 250, cost: 4000,
		play: after(func(p *frames.Peer) { setting(p, initialWindow, 0) }, 249, func(p *frames.Peer, id uint32) { big(p, id) })},
	{name: "windows of single bytes, CVE-2019-9511", ends: true, heap: 8 << 20, begun: 100, handlers: 100, cost: 4000,
		play: after(func(p *frames.Peer) {
			setting(p, initialWindow, 0)
			for id := uint32(1); id < 200; id += 2 {
				big(p, id)
			}
		}, many, func(p *frames.Peer, id uint32) { p.Window(id%200, 1) })},
	{name: "answers that are not read, CVE-2019-9517", config: Config{WriteTimeout: 500 * time.Millisecond}, ends: true, heap: 8 << 20, handlers: 200, cost: 10000,
		play: after(func(p *frames.Peer) { setting(p, initialWindow, 1<<31-1); p.Window(0, 1<<31-65536) }, 200, func(p *frames.Peer, id uint32) { big(p, id) })},
	{name: "a preface that does not come, CVE-2026-56853", config: Config{BeginTimeout: time.Second}, ends: true, heap: 1 << 20, cost: 5000,
		play: func(p *frames.Peer, send func()) { p.Out = p.Out[:10]; send() }},
}

// big adds a request for a long body.
func big(p *frames.Peer, id uint32) {
	p.Headers(id, true, ":method", "GET", ":scheme", "http", ":path", "/big", ":authority", "x")
}

// plainCost returns the CPU time of a plain request and its answer, for the client and the server.
func plainCost(t *testing.T) time.Duration {
	f := serve(t, HandlerFunc(hello), Config{})
	p := f.peer()
	const rounds, streams = 30, 100
	begin := testnet.CPUTime()
	for i := range rounds {
		for j := range streams {
			p.Request(uint32(2*(i*streams+j)+1), true)
		}
		p.Flush()
		for ended := 0; ended < streams; {
			if strings.HasSuffix(p.Next(), " end") {
				ended++
			}
		}
	}
	end := testnet.CPUTime()
	return max((end-begin)/(rounds*streams), 1)
}

// TestAttacks plays each attack from outside, on a connection of its own. The server's memory stays
// within a bound, and so do the handlers that it calls and the CPU time. It serves another client
// meanwhile and afterwards.
func TestAttacks(t *testing.T) {
	plain := plainCost(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			cost := int(a.attempt(t) / plain)
			// The time that a virtual machine doesn't run may count as CPU time. That doesn't happen
			// again and again.
			for range 4 {
				if cost > a.cost && !race.Enabled {
					cost = min(cost, int(a.attempt(t)/plain))
				}
			}
			if cost > a.cost && !race.Enabled {
				t.Errorf("got the CPU time of %d requests, %v each, want %d at most", cost, plain, a.cost)
			} else {
				t.Logf("the CPU time of %d requests", cost)
			}
		})
	}
}

// attempt plays the attack, and returns the CPU time that it took.
func (a *attack) attempt(t *testing.T) time.Duration {
	body := make([]byte, 4<<20)
	stop := make(chan bool)
	var called, others atomic.Int32
	handler := HandlerFunc(func(s *Stream, r *Request) {
		switch called.Add(1); {
		case r.Path == "/big":
			_ = s.Send(Message{Status: 200, Body: body, End: true})
		case r.Path == "/other":
			others.Add(1)
			hello(s, r)
		case !r.End:
			<-stop
		default:
			hello(s, r)
		}
	})
	f := serve(t, handler, a.config)
	defer close(stop)
	attacker := f.peer()
	c := attacker.Conn
	var parts [][]byte
	a.play(attacker, func() {
		parts = append(parts, attacker.Out)
		attacker.Out = nil
	})
	before := testnet.HeapBytes()
	begin := testnet.CPUTime()
	for i, p := range parts {
		if i == 1 {
			testnet.Eventually(t, "the handlers' begin", func() bool { return int(called.Load()) >= a.begun })
		}
		if _, err := c.Write(p); err != nil { // the server has closed the connection
			break
		}
	}
	if !a.ends {
		attacker.Frame(frames.Ping, 0, 0, []byte("the last")).Flush()
		for line := ""; line != "pong 746865206c617374"; {
			if line = attacker.Next(); line == "end" || strings.HasPrefix(line, "error") {
				t.Fatalf("the connection has ended: %s", line)
			}
		}
	}
	other := f.peer()
	for id := uint32(1); id < 20; id += 2 {
		other.Headers(id, true, ":method", "GET", ":scheme", "http", ":path", "/other", ":authority", "x").Flush()
		other.Want(helloTo(id)...)
	}
	if a.ends {
		testnet.Eventually(t, "the end of the attacker's connection", func() bool { return f.server.serving() == 1 })
	}
	end := testnet.CPUTime()
	if held := testnet.HeapBytes() - before; held > a.heap && !race.Enabled {
		t.Errorf("got %d bytes held, want %d at most", held, a.heap)
	} else {
		t.Logf("%d bytes held", held)
	}
	if n := int(called.Load() - others.Load()); n > a.handlers {
		t.Errorf("got %d handlers called, want %d at most", n, a.handlers)
	} else {
		t.Logf("%d handlers", n)
	}
	runtime.KeepAlive(other)
	runtime.KeepAlive(parts)
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	return end - begin
}

// serving returns how many connections take frames.
func (s *Server) serving() (n int) {
	for _, c := range s.conns() {
		c.mu.Lock()
		if c.phase == alive {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// TestPacketsWhileStreamsWait: what a packet costs doesn't depend on how many streams wait for their
// windows.
func TestPacketsWhileStreamsWait(t *testing.T) {
	if testnet.CPUTime() == 0 || race.Enabled {
		t.Skip("it compares CPU times")
	}
	const packets = 1000
	cost := func(streams uint32) time.Duration {
		f := serve(t, HandlerFunc(func(s *Stream, _ *Request) {
			_ = s.Send(Message{Status: 200, Body: []byte("waits"), End: true})
		}), Config{Streams: 10000})
		p := f.peer(initialWindow, 0)
		for i := range streams {
			p.Request(2*i+1, true)
		}
		p.Flush()
		for answered := uint32(0); answered < streams; {
			switch line := p.Next(); {
			case strings.HasPrefix(line, "headers"):
				answered++
			case line == "end" || strings.HasPrefix(line, "error"):
				t.Fatal(line)
			}
		}
		begin := testnet.CPUTime()
		for range packets {
			p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
		}
		end := testnet.CPUTime()
		if n := f.server.Stats().Stalled; n != int(streams) {
			t.Errorf("got %d streams that wait, want %d", n, streams)
		}
		f.server.Close()
		return (end - begin) / packets
	}
	few, many := cost(1), cost(10000)
	for range 4 { // see TestAttacks
		if many > 3*few {
			few, many = max(few, cost(1)), min(many, cost(10000))
		}
	}
	if many > 3*few {
		t.Errorf("a packet costs %v while 10,000 streams wait, and %v while one does", many, few)
	} else {
		t.Logf("%v, and %v while one stream waits", many, few)
	}
}
