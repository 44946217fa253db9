package http2

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestAttacks plays each attack that a core can see. The connection must end with
// ENHANCE_YOUR_CALM before the attack has had more rounds than its limit allows, which is twice its
// limit if streams are refused first. It must hold no more memory than the case allows.
func TestAttacks(t *testing.T) {
	cfg := func(set func(*Config)) *Config {
		c := DefaultConfig()
		set(c)
		return c
	}
	small := cfg(func(c *Config) { c.Resets, c.Idle = Budget{20, 0}, Budget{30, 0} })
	smallPriorities := cfg(func(c *Config) { c.Resets, c.Idle, c.Priorities = Budget{20, 0}, Budget{30, 0}, ServePriorities })
	for _, test := range []struct {
		name   string
		cfg    *Config
		round  func(p *peer, i int)
		rounds int // at most, until the end
		code   ErrCode
		memory int // bytes
	}{
		{"rapid reset, CVE-2023-44487", small, func(p *peer, i int) { p.get(id(i)).reset(id(i)) }, 41, EnhanceYourCalm, 8 << 10},
		{"made you reset by WINDOW_UPDATE, CVE-2025-8671", small, func(p *peer, i int) { p.get(id(i)).windowUpdate(id(i), 0) }, 41, EnhanceYourCalm, 8 << 10},
		{"made you reset by a full window", small, func(p *peer, i int) { p.get(id(i)).windowUpdate(id(i), maxWindowBytes) }, 41, EnhanceYourCalm, 8 << 10},
		{"made you reset by DATA behind the end", small, func(p *peer, i int) { p.get(id(i)).data(id(i), "x", true) }, 41, EnhanceYourCalm, 8 << 10},
		{"made you reset by HEADERS behind the end", small, func(p *peer, i int) { p.get(id(i)).get(id(i)) }, 41, EnhanceYourCalm, 8 << 10},
		{"made you reset by wrong requests", small, func(p *peer, i int) { p.get(id(i), "A", "") }, 41, EnhanceYourCalm, 8 << 10},
		{"PRIORITY of itself", small, func(p *peer, i int) { p.frame(typePriority, 0, 1, []byte{0, 0, 0, 1, 0}) }, 41, EnhanceYourCalm, 4 << 10},
		{"more streams than allowed", cfg(func(c *Config) { c.Streams, c.Resets = 10, Budget{20, 0} }), func(p *peer, i int) { p.get(id(i)) }, 51, EnhanceYourCalm, 16 << 10},
		{"CONTINUATION, CVE-2023-45288", nil, func(p *peer, i int) {
			if i == 0 {
				p.frame(typeHeaders, flagEndStream, 1, p.block(get...))
			}
			p.frame(typeContinuation, 0, 1, []byte{0, 1, 'a', 1, 'b'})
		}, 101, EnhanceYourCalm, 64 << 10},
		{"empty CONTINUATION", nil, func(p *peer, i int) {
			if i == 0 {
				p.frame(typeHeaders, flagEndStream, 1, nil)
			}
			p.frame(typeContinuation, 0, 1, nil)
		}, 101, EnhanceYourCalm, 4 << 10},
		{"CONTINUATION behind a list that is full", nil, func(p *peer, i int) {
			if i == 0 {
				p.frame(typeHeaders, flagEndStream, 1, nil)
			}
			p.frame(typeContinuation, 0, 1, append([]byte{0, 1, 'a'}, appendLong(10000)...))
		}, 101, EnhanceYourCalm, 256 << 10},
		{"PING, CVE-2019-9512", small, func(p *peer, i int) { p.frame(typePing, 0, 0, make([]byte, 8)) }, 31, EnhanceYourCalm, 4 << 10},
		{"SETTINGS, CVE-2019-9515", small, func(p *peer, i int) { p.settings(settingMaxStreams, uint32(i)) }, 31, EnhanceYourCalm, 4 << 10},
		{"SETTINGS of the initial window, CVE-2026-78669", small, func(p *peer, i int) { p.settings(settingInitialWindow, uint32(i)) }, 31, EnhanceYourCalm, 4 << 10},
		{"PRIORITY, CVE-2019-9513", small, func(p *peer, i int) { p.frame(typePriority, 0, id(i), make([]byte, 5)) }, 31, EnhanceYourCalm, 4 << 10},
		{"PRIORITY_UPDATE", smallPriorities, func(p *peer, i int) { p.update(id(i), "u=1") }, 31, EnhanceYourCalm, 4 << 10},
		{"PRIORITY_UPDATE that is ignored", cfg(func(c *Config) { c.Priorities, c.Idle = IgnorePriorities, Budget{30, 0} }),
			func(p *peer, i int) { p.update(id(i), "(") }, 31, EnhanceYourCalm, 4 << 10},
		{"PRIORITY_UPDATE of a type that is unknown", small, func(p *peer, i int) { p.update(id(i), "(") }, 31, EnhanceYourCalm, 4 << 10},
		{"made you reset by PRIORITY_UPDATE", smallPriorities, func(p *peer, i int) { p.get(id(i)).update(id(i), "(") }, 31, EnhanceYourCalm, 8 << 10},
		{"empty DATA, CVE-2019-9518", small, func(p *peer, i int) {
			if i == 0 {
				p.post(1)
			}
			p.data(1, "", false)
		}, 71, EnhanceYourCalm, 4 << 10},
		{"DATA of padding alone", small, func(p *peer, i int) {
			if i == 0 {
				p.post(1)
			}
			p.frame(typeData, flagPadded, 1, []byte{1, 0})
		}, 71, EnhanceYourCalm, 4 << 10},
		{"WINDOW_UPDATE", small, func(p *peer, i int) { p.windowUpdate(0, 1) }, 31, EnhanceYourCalm, 4 << 10},
		{"unknown frames", small, func(p *peer, i int) { p.frame(0x77, 0, 0, nil) }, 31, EnhanceYourCalm, 4 << 10},
		{"RST_STREAM of streams that have ended", small, func(p *peer, i int) {
			if i == 0 {
				p.get(1)
			}
			p.reset(1)
		}, 72, EnhanceYourCalm, 8 << 10},
		{"GOAWAY", small, func(p *peer, i int) { p.frame(typeGoAway, 0, 0, make([]byte, 8)) }, 31, EnhanceYourCalm, 4 << 10},
		{"requests behind GOAWAY", small, func(p *peer, i int) { p.c.GoAway(NoError, ""); p.get(id(i)) }, 31, EnhanceYourCalm, 8 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The rest of the process may allocate a few KiB in between. The memory of an attacked
			// connection shows up every time.
			held := test.memory + 1
			for try := 0; held > test.memory && try < 10 && !t.Failed(); try++ {
				before := testnet.HeapBytes()
				p := newPeer(t, test.cfg)
				p.returns = true
				n := 0
				for ; p.err == nil && n < 200; n++ {
					test.round(p, n)
					p.feed()
					p.log, p.streams = nil, make(map[uint32]*Stream)
				}
				end, _ := p.err.(*ConnError)
				if end == nil || end.Code != test.code || n > test.rounds {
					t.Fatalf("got %v in round %d, want %v in round %d at most", p.err, n, test.code, test.rounds)
				}
				p.f, p.list, p.in = Frame{}, hpack.List{}, nil
				held = testnet.HeapBytes() - before
				runtime.KeepAlive(p)
			}
			if held > test.memory && !race.Enabled {
				t.Errorf("got %d bytes held, want %d at most", held, test.memory)
			}
		})
	}
}

func id(i int) uint32 { return uint32(2*i + 1) }

// appendLong returns a string of n bytes as HPACK sends it.
func appendLong(n int) []byte {
	b := []byte{0x7f}
	for n -= 127; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	b = append(b, byte(n))
	return append(b, bytes.Repeat([]byte("v"), 10000)...)
}

// TestControlFramesWait: there is a limit to the frames that a peer makes the connection send but
// doesn't read. A client's is ten times as high.
func TestControlFramesWait(t *testing.T) {
	limited := func() *Config {
		cfg := DefaultConfig()
		cfg.ControlFrames, cfg.Idle.Burst = 50, 1<<20
		return cfg
	}
	for name, send := range map[string]func(*peer){
		"PING":     func(p *peer) { p.ping() },
		"SETTINGS": func(p *peer) { p.settings() },
		"resets":   func(p *peer) { p.frame(typePriority, 0, 1, []byte{0, 0, 0, 1, 0}) },
	} {
		client := newServer(t, limited())
		client.begin(true)
		client.c.TakeOutput()
		for most, p := range map[int]*peer{50: newPeer(t, limited()), 500: client} {
			for range most + 10 {
				send(p)
			}
			p.feedAtOnce()
			if n := len(p.c.Output()); p.err == nil || n > (most+2)*17 || !strings.Contains(p.err.Error(), "wait for the peer to read them") {
				t.Errorf("%s: got %v and %d bytes of output, want an end behind %d frames", name, p.err, n, most+1)
			}
		}
	}
}

// TestOwnResetsWait: ten times as many streams that we have reset ourselves may wait to be sent.
func TestOwnResetsWait(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ControlFrames, cfg.Streams = 5, 100
	for n, want := range map[int]bool{49: true, 51: false} {
		p := newPeer(t, cfg)
		for i := range n {
			p.get(uint32(2*i + 1))
		}
		p.feed()
		p.c.TakeOutput()
		for _, st := range p.streams {
			p.c.Reset(st, Cancel)
		}
		p.frame(typePriority, 0, 1, make([]byte, 5))
		p.feedAtOnce()
		if ok := p.err == nil; ok != want {
			t.Errorf("%d resets: got %v, want the connection to go on: %t", n, p.err, want)
		}
	}
}

// TestBudgetsComeBack: a client that does the same slowly, or along with requests, may go on.
func TestBudgetsComeBack(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Resets, cfg.Idle = Budget{3, 10}, Budget{12, 10}
	p := newPeer(t, cfg)
	p.returns = true
	for i := range 1000 {
		p.get(id(i)).reset(id(i)).feed()
		p.c.Advance(50 * time.Millisecond)
		p.c.Advance(50 * time.Millisecond)
	}
	for i := range 1000 {
		p.get(id(1000+i)).frame(typePing, 0, 0, make([]byte, 8)).windowUpdate(0, 1).feed()
		must(t, p.c.Headers(p.streams[id(1000+i)], 200, nil, true))
	}
	p.c.Advance(-time.Second)
	p.c.Advance(1 << 62)
	if p.err != nil || p.c.budgets.idle > idleSaved*cfg.Idle.start() || p.c.budgets.resets > cfg.Resets.start() {
		t.Errorf("got %v, and budgets of %d and %d", p.err, p.c.budgets.idle, p.c.budgets.resets)
	}
}

// TestHeaderLimits: a list that exceeds a limit is a problem of the request only. The connection
// goes on, and the table stays in step.
func TestHeaderLimits(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HeaderListBytes, cfg.HeaderFields = 4000, 50
	crumbs := func(n int) (fields []string) {
		for range n {
			fields = append(fields, "cookie", "a=b")
		}
		return fields
	}
	for _, test := range []struct {
		name   string
		fields []string
		large  bool
	}{
		{"46 crumbs", crumbs(46), false},
		{"47 crumbs", crumbs(47), true},
		{"long", []string{"a", strings.Repeat("v", 3700)}, false},
		{"too long", []string{"a", strings.Repeat("v", 3990)}, true},
		{"50 declared trailers", []string{"trailer", "a" + strings.Repeat(",a", 29), "trailer", "a" + strings.Repeat(",a", 19)}, false},
		{"51 declared trailers", []string{"trailer", "a" + strings.Repeat(",a", 50)}, true},
	} {
		p := newPeer(t, cfg)
		p.get(1, test.fields...).get(3, "x-a", "b").feed()
		if len(p.log) != 2 || strings.Contains(p.log[0], " problem 1") != test.large || !strings.HasSuffix(p.log[1], " x-a=b end") {
			t.Errorf("%s: got %q", test.name, p.log)
		}
	}
	p := newPeer(t, cfg)
	p.post(1).frame(typeHeaders, 5, 1, p.block(crumbs(50)...)).feed()
	p.post(3).frame(typeHeaders, 5, 3, p.block(crumbs(51)...)).get(5).feed()
	if n := len(p.log); n != 6 || !strings.HasPrefix(p.log[1], "trailers 1 ") || p.log[3] != "reset 3 PROTOCOL_ERROR local" || !strings.HasSuffix(p.log[4], " end") {
		t.Errorf("50 and 51 trailers: got %q", p.log)
	}
}

// TestHeaderBomb: indexed fields take one byte each, but count as the 4 KiB of their entry
// (CVE-2026-49975). They cost no more than the limits allow, and share the string.
func TestHeaderBomb(t *testing.T) {
	p := newPeer(t, nil)
	p.returns = true
	bomb := append(p.block(get...), p.block("x-bomb", strings.Repeat("b", 900))...)
	bomb = append(bomb, bytes.Repeat([]byte{0xbe}, 15000)...)
	before := testnet.HeapBytes()
	p.frame(typeHeaders, 5, 1, bomb).feed()
	if len(p.log) != 1 || !strings.Contains(p.log[0], "problem 1") {
		t.Fatalf("got %d events, want a request that is too large", len(p.log))
	}
	p.log, p.list = nil, hpack.List{}
	if n := len(p.f.list.Fields); n > DefaultConfig().HeaderFields {
		t.Errorf("got %d fields, want %d at most", n, DefaultConfig().HeaderFields)
	}
	if after := testnet.HeapBytes(); after > before+64<<10 && !race.Enabled {
		t.Errorf("got %d bytes held", after-before)
	}
	runtime.KeepAlive(p)
}

// TestSlowFrames: a frame that arrives byte by byte holds only the bytes that have arrived,
// whatever length it announces.
func TestSlowFrames(t *testing.T) {
	p := newPeer(t, nil)
	header := appendHeader(nil, typeHeaders, 5, 1, maxFrameBytes)
	p.feedPart(append(header, 0x82))
	if n := p.c.reader.restBytes(); n > 64 {
		t.Errorf("got %d bytes held for a frame of which one has come", n)
	}
	p = newPeer(t, nil)
	p.post(1).feed()
	p.feedPart(append(appendHeader(nil, typeData, 0, 1, maxFrameBytes), make([]byte, 5000)...))
	if n := p.c.reader.restBytes(); n > 0 {
		t.Errorf("got %d bytes held of a DATA frame", n)
	}
}

// TestIdleMemory: a waiting connection holds only a Conn and its tables.
func TestIdleMemory(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > 500 {
		t.Errorf("got a Conn of %d bytes, want 500 at most", n)
	}
	if n := unsafe.Sizeof(Stream{}); n > 96 {
		t.Errorf("got a Stream of %d bytes, want 96 at most", n)
	}
	p := newPeer(t, nil)
	p.get(1).post(3).data(3, "x", true).feed()
	for _, st := range p.streams {
		must(t, p.c.Headers(st, 200, []hpack.Field{field("server", "percore")}, true))
	}
	p.feed()
	p.c.Rest()
	r := &p.c.reader
	if p.c.Streams() != 0 || p.c.writer.out != nil || r.rest != nil || r.block != nil || p.c.streams.buckets != nil {
		t.Error("an idle connection holds a buffer")
	}
}

// TestAllocations: a request through the core allocates nothing.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	g := newGetter(t)
	if n := testing.AllocsPerRun(1000, g.get); n > 0 {
		t.Errorf("got %.2f allocations for a request, want none", n)
	}
}

// A getter is a client with a warm table that sends one request after the other, and a server that
// answers.
type getter struct {
	t      testing.TB
	c      *Conn
	f      Frame
	ev     Event
	st     Stream
	out    []byte
	in     []byte // HEADERS; only the identifier changes
	id     uint32
	fields []hpack.Field
	body   []byte
}

var browserFields = []string{
	"sec-ch-ua", `"Chromium";v="140", "Not=A?Brand";v="24"`, "sec-ch-ua-mobile", "?0", "sec-ch-ua-platform", `"Linux"`,
	"user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
	"accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
	"accept-encoding", "gzip, deflate, br, zstd", "accept-language", "en-US,en;q=0.9", "x-session", "session=0123456789abcdef0123456789abcdef",
}

func newGetter(t testing.TB) *getter {
	p := newPeer(t, nil)
	p.get(1, browserFields...).feed()
	must(t, p.c.Headers(p.streams[1], 200, nil, true))
	p.c.TakeOutput()
	g := &getter{t: t, c: p.c, id: 1, out: make([]byte, 0, 4096), body: []byte("Hello, World!")}
	p.frame(typeHeaders, 5, 3, p.block(append(append([]string(nil), get...), browserFields...)...))
	g.in = p.in
	g.fields = []hpack.Field{field("content-type", "text/plain; charset=utf-8"), field("content-length", "13"), field("date", "Mon, 23 Nov 2026 04:00:00 GMT")}
	return g
}

// get plays one request and its answer.
func (g *getter) get() {
	g.id += 2
	copy(g.in[5:], []byte{byte(g.id >> 24), byte(g.id >> 16), byte(g.id >> 8), byte(g.id)})
	g.c.LendOutput(g.out)
	n, ok := g.c.Parse(g.in, &g.f)
	ev := &g.ev
	if err := g.c.Apply(&g.f, ev); err != nil || !ok || n != len(g.in) || ev.Kind != RequestStarted || len(ev.Fields) != 8 {
		g.t.Fatalf("got %v, %+v", err, *ev)
	}
	g.st = Stream{}
	g.c.Open(&g.st, ev)
	if err := g.c.Headers(&g.st, 200, g.fields, false); err != nil {
		g.t.Fatal(err)
	}
	if n, err := g.c.Data(&g.st, g.body, true); n != len(g.body) || err != nil {
		g.t.Fatal(fmt.Sprint(n, err))
	}
	g.c.Returned()
	g.c.TakeOutput()
	g.c.send.conn, g.c.recv.avail = 1<<20, g.c.cfg.ConnWindowBytes
}

// BenchmarkGet sends a GET with the twelve fields of a browser, from a warm table, and gets a small
// answer.
func BenchmarkGet(b *testing.B) {
	b.ReportAllocs()
	g := newGetter(b)
	for b.Loop() {
		g.get()
	}
}

// BenchmarkPost sends a body of 16 KiB in one frame, and returns its credit.
func BenchmarkPost(b *testing.B) {
	b.ReportAllocs()
	p := newPeer(b, nil)
	p.post(1).feed()
	frame := append(appendHeader(nil, typeData, 0, 1, maxFrameBytes), make([]byte, maxFrameBytes)...)
	out := make([]byte, 0, 1024)
	ev := new(Event)
	for b.Loop() {
		p.c.LendOutput(out)
		if _, ok := p.c.Parse(frame, &p.f); !ok || p.c.Apply(&p.f, ev) != nil || len(ev.Data) != maxFrameBytes {
			b.Fatal(*ev)
		}
		p.c.Consumed(ev.Stream, len(ev.Data))
		p.c.TakeOutput()
	}
}
