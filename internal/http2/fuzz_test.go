package http2

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/testnet"
)

// fuzzConfig returns limits that a short program can reach.
func fuzzConfig() *Config {
	cfg := DefaultConfig()
	cfg.Streams, cfg.HeaderListBytes, cfg.HeaderFields, cfg.Continuations = 5, 500, 10, 3
	cfg.StreamWindowBytes, cfg.ConnWindowBytes = 300, 65535
	cfg.ControlFrames = 1000
	return cfg
}

// play writes the frames of a program. Many header blocks are valid, so that streams make progress.
func (p *peer) play(prog *testnet.Program) {
	for len(*prog) > 0 {
		op, stream := prog.Next(), uint32(prog.Next()%12)
		flags := uint8(prog.Next())
		switch op % 16 {
		case 0, 1:
			p.get(stream)
		case 2, 3:
			p.post(stream, "content-length", fmt.Sprint(prog.Next()))
		case 4:
			p.post(stream)
		case 5, 6:
			p.frame(typeData, flags&(flagEndStream|flagPadded), stream, prog.Take(prog.Next()%40))
		case 7:
			p.windowUpdate(stream, uint32(prog.Next()))
		case 8:
			p.windowUpdate(stream, maxWindowBytes-uint32(prog.Next()))
		case 9:
			p.reset(stream)
		case 10:
			p.settings(uint32(op/16)%10, uint32(prog.Next())<<(flags%32))
		case 11:
			p.frame(typeHeaders, 5, stream, p.block("x-a", "b"))
		case 12:
			p.frame(typeHeaders, flags, stream, prog.Take(prog.Next()%30))
		case 13:
			p.frame(typeContinuation, flags, stream, prog.Take(prog.Next()%30))
		default:
			p.frame(frameType(op/16), flags, stream, prog.Take(prog.Next()%30))
		}
	}
}

// FuzzCut feeds the frames of a program whole, and cut anywhere: the events and the answers must be
// the same.
func FuzzCut(f *testing.F) {
	for i := range 16 {
		f.Add([]byte{byte(i), 1, 5, 9, 2, 3, byte(i + 1), 3, 0, 1, 5, 6, 7, 1, 1, 40, 9, 1, 0}, uint64(i))
	}
	f.Fuzz(func(t *testing.T, prog []byte, seed uint64) {
		whole := newPeer(t, fuzzConfig())
		p := testnet.Program(prog)
		whole.play(&p)
		in := whole.in
		whole.feed()

		rnd := rand.New(rand.NewPCG(seed, 0))
		cut := newPeer(t, fuzzConfig())
		cut.cut = func(n int) int { return 1 + rnd.IntN(min(n, 1+int(seed%64))) }
		cut.in = in
		cut.feed()
		got, want := strings.Join(joinData(cut.log), "\n"), strings.Join(joinData(whole.log), "\n")
		if got != want {
			t.Fatalf("cut:\n%s\nwhole:\n%s", got, want)
		}
		if n := cut.c.reader.restBytes(); n > 2*(maxFrameBytes+headerBytes) {
			t.Fatalf("got %d bytes held", n)
		}
	})
}

// A client is the peer's model of the connection. It has a window for each stream, and loops over
// all windows where the RFC does.
type client struct {
	*peer
	initial, conn int64            // windows for what the server sends
	windows       map[uint32]int64 // of streams that the server may send on
	connLeft      int64            // what the client may send
	left          map[uint32]int64
}

// FuzzWindows plays a program of calls on both sides, and compares the frames with the client's
// model.
func FuzzWindows(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x02\x06\x02\x40\x03\x01\x10\x07\x02\x09\x02\x08\x03\x04\x50"))
	f.Add([]byte("\x01\x01\x02\x20\x02\x20\x05\x10\x02\x20\x06\x01\x07\x01\x0a\x01\x03\x05\x04\x06\x08\x07\x09\x01"))
	f.Fuzz(func(t *testing.T, prog []byte) {
		cfg := fuzzConfig()
		cfg.Idle.Burst = 1 << 20 // a long program of SETTINGS alone is no attack here
		c := &client{peer: newPeer(t, cfg), initial: initialWindowBytes, conn: initialWindowBytes, windows: make(map[uint32]int64),
			connLeft: 65535, left: make(map[uint32]int64)}
		p := testnet.Program(prog)
		for last := uint32(1); len(p) > 0 && c.err == nil; {
			last = c.step(&p, last)
			checkInvariants(t, c.c)
		}
		// At the end, read all bodies and reset all streams: all credit must be given back.
		for id, st := range c.streams {
			c.c.Consumed(st, int(st.unread))
			c.c.Reset(st, Cancel)
			if !st.Ended() {
				t.Fatalf("stream %d is %v behind its reset", id, st.state)
			}
		}
		c.check()
		if got := c.c.recv.avail + c.c.recv.unsent; c.err == nil && got != 65535 {
			t.Fatalf("got credit of %d bytes in the end, want 65535", got)
		}
	})
}

// step plays a call. A client that keeps the rules must not see an error.
func (c *client) step(p *testnet.Program, last uint32) uint32 {
	op, n := p.Next(), p.Next()
	id := uint32(2*(n%6)+1) + max(last, 11) - 11
	st := c.streams[id]
	body := strings.Repeat("b", p.Next())
	switch op % 12 {
	case 0, 1:
		if c.c.Streams() < 5 {
			last += 2
			if c.windows[last], c.left[last] = c.initial, 300; op%12 == 0 {
				c.get(last)
				delete(c.left, last)
			} else {
				c.post(last)
			}
			if n%4 == 0 {
				c.c.Returned()
			}
		}
	case 2, 3:
		if left, ok := c.left[id]; ok && int64(len(body)) <= min(left, c.connLeft) {
			end := op%12 == 3
			c.data(id, body, end)
			c.connLeft -= int64(len(body))
			if c.left[id] -= int64(len(body)); end {
				delete(c.left, id)
			}
		}
	case 4:
		for id := range c.windows {
			c.windows[id] += int64(n*10) - c.initial
		}
		c.initial = int64(n * 10)
		c.settings(settingInitialWindow, uint32(n*10))
	case 5:
		c.conn += int64(n + 1)
		c.windowUpdate(0, uint32(n+1))
	case 6:
		if _, ok := c.windows[id]; ok && st != nil {
			c.windows[id] += int64(len(body) + 1)
			c.windowUpdate(id, uint32(len(body)+1))
		}
	case 7:
		if st != nil {
			_ = c.c.Headers(st, 200, []hpack.Field{hpack.MakeField("server", body)}, n > 200)
		}
	case 8, 9:
		if st != nil {
			_, _ = c.c.Data(st, []byte(body), op%12 == 9)
		}
	case 10:
		if st != nil {
			c.c.Consumed(st, min(len(body), int(st.unread)))
		}
	default:
		if st != nil && n < 20 {
			c.reset(id)
			delete(c.windows, id)
			delete(c.left, id)
		} else if st != nil && n < 40 {
			c.c.Reset(st, Cancel)
		} else if st != nil {
			c.c.Discarded(st, min(len(body), int(st.unread)))
		}
	}
	c.check()
	return last
}

// check feeds the client's frames, and compares the server's frames with the model. The frames of
// earlier calls come first, since they were sent before the client's frames arrived.
func (c *client) check() {
	c.frames()
	in := c.in
	c.in = nil
	c.feedPart(in)
	c.frames()
	if c.err != nil {
		c.t.Fatalf("got %v for a client that keeps the rules", c.err)
	}
}

func (c *client) frames() {
	out := c.c.TakeOutput()
	for len(out) > 0 {
		h := parseHeader(out)
		p := out[headerBytes : headerBytes+h.length]
		out = out[headerBytes+h.length:]
		window, open := c.windows[h.id]
		switch h.typ {
		case typeData, typeHeaders:
			if !open {
				c.t.Fatalf("got frame type %d on stream %d, which is closed", h.typ, h.id)
			}
			if h.typ == typeHeaders {
				c.list.Reset(1<<20, 100)
				if err := c.dec.Decode(p, true, &c.list); err != nil {
					c.t.Fatal(err)
				}
			} else if n := int64(h.length); n > 0 && (n > window || n > c.conn) {
				c.t.Fatalf("got %d bytes on stream %d, whose window is %d, and the connection's %d", n, h.id, window, c.conn)
			} else {
				c.windows[h.id] -= n
				c.conn -= n
			}
			if h.has(flagEndStream) {
				delete(c.windows, h.id)
			}
		case typeRSTStream:
			delete(c.windows, h.id)
			delete(c.left, h.id)
		case typeWindowUpdate:
			n := int64(binary.BigEndian.Uint32(p))
			if h.id == 0 {
				c.connLeft += n
			} else if _, ok := c.left[h.id]; ok {
				c.left[h.id] += n
			}
			if c.left[h.id] > 300 || c.connLeft > 65535 || n == 0 {
				c.t.Fatalf("got credit of %d bytes on stream %d: %d, %d", n, h.id, c.left[h.id], c.connLeft)
			}
		}
	}
}

// FuzzBytes feeds arbitrary bytes after the preface: nothing panics, and the sums hold.
func FuzzBytes(f *testing.F) {
	p := &peer{enc: hpack.MakeEncoder(4096)}
	f.Add(p.get(1).post(3).data(3, "abc", true).windowUpdate(1, 5).reset(1).settings(4, 9).in, uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, n uint8) {
		p := newPeer(t, fuzzConfig())
		p.cut = func(left int) int { return min(left, 1+int(n)) }
		p.in = in
		p.feed()
		for _, st := range p.streams {
			_, _ = p.c.Data(st, in, true)
			p.c.Consumed(st, int(st.unread))
		}
		checkInvariants(t, p.c)
	})
}
