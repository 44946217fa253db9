package http2

import (
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

// play writes the frames of a program, as a client or as a server does. Many header blocks are valid, so
// that streams make progress.
func (p *peer) play(prog *testnet.Program, server bool) {
	for len(*prog) > 0 {
		op, stream := prog.Next(), uint32(prog.Next()%12)
		flags := uint8(prog.Next())
		switch op %= 16; {
		case op < 2 && server:
			p.reply(stream, flags&1 != 0, ":status", fmt.Sprint(100+10*int(prog.Next()%50)))
		case op < 5 && server:
			p.reply(stream, flags&1 != 0, "x-a", "b")
		case op < 2:
			p.get(stream)
		case op < 4:
			p.post(stream, "content-length", fmt.Sprint(prog.Next()))
		case op == 4:
			p.post(stream)
		case op < 7:
			p.frame(typeData, flags&(flagEndStream|flagPadded), stream, prog.Take(prog.Next()%40))
		case op == 7:
			p.windowUpdate(stream, uint32(prog.Next()))
		case op == 8:
			p.windowUpdate(stream, maxWindowBytes-uint32(prog.Next()))
		case op == 9:
			p.reset(stream)
		case op == 10:
			p.settings(uint32(prog.Next())%10, uint32(prog.Next())<<(flags%32))
		case op == 11 && server:
			p.frame(typeGoAway, 0, 0, append(u32(stream), 0, 0, 0, flags%14))
		case op == 11:
			p.frame(typeHeaders, 5, stream, p.block("x-a", "b"))
		case op == 12:
			p.frame(typeHeaders, flags, stream, prog.Take(prog.Next()%30))
		case op == 13:
			p.frame(typeContinuation, flags, stream, prog.Take(prog.Next()%30))
		default:
			p.frame(frameType(prog.Next()%17), flags, stream, prog.Take(prog.Next()%30))
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
		sameCut(t, seed, func(cut func(n int) int) *peer {
			p := newPeer(t, fuzzConfig())
			program := testnet.Program(prog)
			p.play(&program, false)
			p.cut = cut
			return p.feed()
		})
	})
}

// sameCut compares what peers log whose frames are whole, and cut anywhere.
func sameCut(t *testing.T, seed uint64, play func(cut func(n int) int) *peer) {
	whole := play(nil)
	rnd := rand.New(rand.NewPCG(seed, 0))
	cut := play(func(n int) int { return 1 + rnd.IntN(min(n, 1+int(seed%64))) })
	got, want := strings.Join(joinData(cut.log), "\n"), strings.Join(joinData(whole.log), "\n")
	if got != want {
		t.Fatalf("cut:\n%s\nwhole:\n%s", got, want)
	}
	if n := cut.c.reader.restBytes(); n > 2*(maxFrameBytes+headerBytes) {
		t.Fatalf("got %d bytes held", n)
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
