package http2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/testnet"
)

// newServer returns a peer that plays the server of a client's connection, and has sent its settings.
func newServer(t testing.TB, cfg *Config) *peer {
	p := newStranger(t, clientConfig(cfg))
	p.settings().frame(typeSettings, flagAck, 0, nil).feed()
	p.log = nil
	return p
}

func clientConfig(cfg *Config) *Config {
	if cfg == nil {
		cfg = DefaultConfig()
	}
	cfg.ForClient()
	return cfg
}

var target = Request{Method: "GET", Scheme: "http", Authority: "example.com", Path: "/"}

// begin opens a stream of the client.
func (p *peer) begin(end bool) *Stream {
	p.t.Helper()
	st := new(Stream)
	if err := p.c.Begin(st, &target, nil, end); err != nil {
		p.t.Fatalf("Begin: %v", err)
	}
	p.streams[st.ID()] = st
	return st
}

// reply sends the header of an answer.
func (p *peer) reply(id uint32, end bool, fields ...string) *peer {
	flags := uint8(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	return p.frame(typeHeaders, flags, id, p.block(fields...))
}

// TestClientGreets compares a client's first frames.
func TestClientGreets(t *testing.T) {
	p := newStranger(t, clientConfig(nil))
	p.begin(true)
	if out := string(p.c.Output()); !strings.HasPrefix(out, Preface) {
		t.Fatalf("got %q, want the preface first", out)
	}
	p.readOutput()
	p.want("> settings 000500004000000200000000000600010000000100001000000400100000",
		"> window 0 983041",
		"> headers 1 :authority=example.com :method=GET :path=/ :scheme=http end")
}

// TestClientRules has a case for each rule that a server can break or use. Streams 1 and 3 are open, 1
// with its request complete.
func TestClientRules(t *testing.T) {
	const protocol, errProtocol = "> goaway 0 PROTOCOL_ERROR", "error http2: PROTOCOL_ERROR"
	const broken1 = "reset 1 PROTOCOL_ERROR local"
	ok := []string{":status", "200"}
	for _, test := range []struct {
		name string
		send func(p *peer)
		want []string
	}{
		{"an answer", func(p *peer) { p.reply(1, false, ":status", "200", "a", "b").data(1, "x", true) },
			[]string{"answer 1 200 a=b", `data 1 "x" end`}},
		{"an answer without a body", func(p *peer) { p.reply(1, true, ":status", "204") }, []string{"answer 1 204 end"}},
		{"an early answer", func(p *peer) { p.reply(3, true, ok...) }, []string{"answer 3 200 end"}},
		{"trailers", func(p *peer) { p.reply(1, false, ok...).reply(1, true, "a", "b") },
			[]string{"answer 1 200", "trailers 1 a=b end"}},
		{"interim answers", func(p *peer) {
			p.reply(1, false, ":status", "100").reply(1, false, ":status", "103", "a", "b").reply(1, true, ok...)
		}, []string{"answer 1 100", "answer 1 103 a=b", "answer 1 200 end"}},
		{"an interim answer at the end", func(p *peer) { p.reply(1, true, ":status", "100") },
			[]string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"no status", func(p *peer) { p.reply(1, true, "a", "b") }, []string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"no number", func(p *peer) { p.reply(1, true, ":status", "2x0") }, []string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"a short number", func(p *peer) { p.reply(1, true, ":status", "20") }, []string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"two statuses", func(p *peer) { p.reply(1, true, ":status", "200", ":status", "200") },
			[]string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"a request's field", func(p *peer) { p.reply(1, true, ":method", "GET") }, []string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"pseudo-header field in trailers", func(p *peer) { p.reply(1, false, ok...).reply(1, true, ok...) },
			[]string{"answer 1 200", broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"trailers that are no end", func(p *peer) { p.reply(1, false, ok...).reply(1, false, "a", "b") },
			[]string{"answer 1 200", broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"a stream that was not opened: HEADERS", func(p *peer) { p.reply(5, true, ok...).reply(5, true, "A", "b").reply(1, true, ok...) },
			[]string{"answer 1 200 end"}},
		{"a stream that was not opened: DATA", func(p *peer) { p.data(5, "x", true) }, []string{errProtocol, protocol}},
		{"a stream that was not opened: RST_STREAM, WINDOW_UPDATE", func(p *peer) { p.reset(5).windowUpdate(5, 1).reply(1, true, ok...) },
			[]string{"answer 1 200 end"}},
		{"a stream of the server's", func(p *peer) { p.reply(2, true, ok...).reset(2).windowUpdate(2, 1).reply(1, true, ok...) },
			[]string{"answer 1 200 end"}},
		{"a push", func(p *peer) { p.frame(typePushPromise, flagEndHeaders, 1, u32(2)) }, []string{errProtocol, protocol}},
		{"pushes turned on", func(p *peer) { p.settings(settingEnablePush, 1).reply(1, true, ok...) },
			[]string{"answer 1 200 end", "> settings ack"}},
		{"HEADERS behind the end", func(p *peer) { p.reply(1, true, ok...).reply(1, true, ok...) }, []string{"answer 1 200 end"}},
		{"DATA behind the end", func(p *peer) { p.reply(3, true, ok...).data(3, "x", true) },
			[]string{"answer 3 200 end", "reset 3 STREAM_CLOSED local", "> reset 3 STREAM_CLOSED"}},
		{"DATA before HEADERS", func(p *peer) { p.data(1, "x", true) }, []string{broken1, "> reset 1 PROTOCOL_ERROR"}},
		{"a reset", func(p *peer) { p.reset(1) }, []string{"reset 1 CANCEL"}},
		{"a reset behind an early answer", func(p *peer) { p.reply(3, true, ok...).frame(typeRSTStream, 0, 3, u32(0)) },
			[]string{"answer 3 200 end", "reset 3 NO_ERROR"}},
		{"a goaway", func(p *peer) { p.frame(typeGoAway, 0, 0, append(u32(1), "\x00\x00\x00\x0bslow"...)) },
			[]string{`goes away ENHANCE_YOUR_CALM 1 "slow"`}},
		{"HTTP/1", func(p *peer) { p.in = append(p.in, "HTTP/1.1 400 Bad Request\r\n"...) },
			[]string{"error http2: FRAME_SIZE_ERROR: the peer answers in HTTP/1", "> goaway 0 FRAME_SIZE_ERROR"}},
		{"ping", func(p *peer) { p.frame(typePing, 0, 0, make([]byte, 8)) }, []string{"> ping true 0000000000000000"}},
		{"a window", func(p *peer) { p.windowUpdate(3, 5) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newServer(t, nil)
			p.begin(true)
			p.begin(false)
			p.c.TakeOutput()
			test.send(p)
			p.feed()
			p.want(test.want...)
		})
	}
}

// TestClientRoom opens as many streams as the server takes.
func TestClientRoom(t *testing.T) {
	p := newStranger(t, clientConfig(nil))
	room := func(want int, takes bool) {
		t.Helper()
		if got := p.c.Quota(); got != want || p.c.TakesStreams() != takes {
			t.Fatalf("got room for %d, takes streams %t, want %d, %t", got, p.c.TakesStreams(), want, takes)
		}
	}
	room(streamsFirst, true)
	st := p.begin(true)
	room(streamsFirst-1, true)
	p.settings(settingMaxStreams, 2).feed()
	room(1, true)
	p.begin(true)
	room(0, true)
	if err := p.c.Begin(new(Stream), &target, nil, true); err != ErrNoQuota {
		t.Fatalf("got %v, want ErrNoQuota", err)
	}
	p.settings(settingMaxStreams, 0).feed()
	room(0, true)
	p.settings(settingMaxStreams, 4).feed()
	room(2, true)
	p.c.Reset(st, Cancel)
	room(3, true)
	p.frame(typeGoAway, 0, 0, append(u32(maxID), 0, 0, 0, 0)).feed()
	room(0, false)
	if ended := unserved(p.c, maxID); ended != "" {
		t.Fatalf("streams%s have ended, want none", ended)
	}
	p.frame(typeGoAway, 0, 0, append(u32(1), 0, 0, 0, 0)).feed()
	if ended := unserved(p.c, 1); ended != " 3" {
		t.Fatalf("streams%s have ended, want 3", ended)
	}
	if n := p.c.Streams(); n != 0 {
		t.Fatalf("%d streams are left", n)
	}
}

func unserved(c *Conn, last uint32) (ended string) {
	c.EndUnserved(last, func(st *Stream) { ended += fmt.Sprint(" ", st.ID()) })
	return ended
}

// TestClientUnlimited opens more streams than the first limit when the server sets none.
func TestClientUnlimited(t *testing.T) {
	p := newServer(t, nil)
	for range 2 * streamsFirst {
		p.begin(true)
	}
	p.c.streams.lastID = maxID - 2
	p.begin(true)
	if p.c.Quota() != 0 || p.c.TakesStreams() {
		t.Fatal("there is room behind the last identifier")
	}
}

// TestClientLimits plays servers that flood.
func TestClientLimits(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(p *peer)
		ends bool
	}{
		{"interim answers without end", func(p *peer) { p.reply(1, false, ":status", "103") }, true},
		{"PING", func(p *peer) { p.frame(typePing, flagAck, 0, make([]byte, 8)) }, true},
		{"SETTINGS", func(p *peer) { p.settings(settingInitialWindow, 5) }, true},
		{"WINDOW_UPDATE", func(p *peer) { p.windowUpdate(1, 1) }, true},
		{"RST_STREAM of what has ended", func(p *peer) { p.reset(3) }, true},
		{"DATA of what was reset", func(p *peer) { p.data(3, "", true) }, false},
		{"resets of the client's streams", func(p *peer) { p.reset(p.begin(true).ID()) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newServer(t, nil)
			p.begin(true)
			p.c.Reset(p.begin(true), Cancel)
			p.reply(1, false, ":status", "100").feed()
			p.reset(5)
			for i := 0; i < 400_000 && p.err == nil; i++ {
				p.in = p.in[:0]
				test.send(p)
				p.feed()
			}
			if got := p.err != nil; got != test.ends {
				t.Fatalf("ended %t (%v), want %t", got, p.err, test.ends)
			}
			if test.ends && !strings.Contains(p.err.Error(), "too many frames that bring nothing") {
				t.Errorf("got %v, which doesn't say what it was", p.err)
			}
		})
	}
}

// TestClientHonestServers plays honest servers at their worst, ten times: what is allowed comes to an
// end only beyond that, with an error that says what it was.
func TestClientHonestServers(t *testing.T) {
	ping := func(p *peer) { p.frame(typePing, 0, 0, make([]byte, 8)) }
	emptyData := func(p *peer) { p.data(1, "", false) }
	for _, test := range []struct {
		name   string
		atOnce int // frames that come in one piece, after the program was stopped for a while
		send   func(p *peer)
		error  string
	}{
		{"PING of a server that has one under way for each short message", 30_000, ping, "too many frames"},
		{"empty DATA of a server that flushes", 30_000, emptyData, "too many frames that bring nothing"},
		{"SETTINGS", 4000, func(p *peer) { p.settings(settingInitialWindow, 70_000) }, "too many frames"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newServer(t, nil)
			p.begin(true)
			p.reply(1, false, ":status", "200")
			for range test.atOnce {
				test.send(p)
			}
			if p.feedAtOnce(); p.err != nil {
				t.Fatalf("got %v of %d at once", p.err, test.atOnce)
			}
			for i := 0; i < 40*test.atOnce && p.err == nil; i++ {
				test.send(p)
				p.feed()
				p.in = p.in[:0]
			}
			if p.err == nil || !strings.Contains(p.err.Error(), test.error) {
				t.Errorf("got %v of a flood, want %q", p.err, test.error)
			}
		})
	}
	t.Run("three PINGs for each short message", func(t *testing.T) {
		cfg := clientConfig(withoutTime())
		p := newServer(t, cfg)
		p.begin(true)
		p.reply(1, false, ":status", "200")
		for range 3000 {
			p.data(1, "x", false)
			for range 3 * times {
				ping(p)
			}
			p.feed().goesOn()
		}
	})
}

// TestClientHonestHeaders: ten times an honest server's longest header, 8 KiB and 50 fields, is taken,
// in few CONTINUATION frames and in many; one without end ends the connection, with an error that says
// what it was.
func TestClientHonestHeaders(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HeaderListBytes, cfg.HeaderFields = 1<<20, 5000 // as for gRPC
	indexed := []byte{0x90}                             // accept-encoding of the static table
	for _, test := range []struct {
		name   string
		frames int // CONTINUATION, of an honest server
		flood  int // bytes of each that come without end
	}{
		{"long CONTINUATION", times, maxFrameBytes},
		{"short CONTINUATION", 50, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newServer(t, cfg)
			p.begin(true)
			fields := []string{":status", "200"}
			for i := range 50 * times {
				fields = append(fields, fmt.Sprint("x", i), strings.Repeat("y", 8<<10/50))
			}
			block := p.block(fields...)
			p.frame(typeHeaders, 0, 1, nil)
			part := len(block)/test.frames + 1
			for ; len(block) > part; block = block[part:] {
				p.frame(typeContinuation, 0, 1, block[:part])
			}
			p.frame(typeContinuation, flagEndHeaders, 1, block).feed().goesOn()
			p.begin(true)
			p.frame(typeHeaders, 0, 3, nil).feed()
			for i := 0; i < 10_000 && p.err == nil; i++ {
				p.in = nil
				p.frame(typeContinuation, 0, 3, bytes.Repeat(indexed, test.flood)).feed()
			}
			if p.err == nil || !strings.Contains(p.err.Error(), "a header block is too long") {
				t.Errorf("got %v of a header without end", p.err)
			}
		})
	}
}

// A duet is a client and a server core whose bytes go to each other, cut anywhere.
type duet struct {
	t        testing.TB
	rnd      *rand.Rand
	end      [2]*Conn // the client's and the server's
	frame    [2]Frame
	under    [2][]byte // way to it
	requests []*duetCall
	answers  map[uint32]*Stream // of the server
	got      map[uint32]int     // bytes of bodies that have come to the server
}

// A duetCall is a request of the client.
type duetCall struct {
	st             *Stream
	sent, received int // bytes
	status         int
	ended, reset   bool
}

func newDuet(t testing.TB, rnd *rand.Rand) *duet {
	d := &duet{t: t, rnd: rnd, answers: make(map[uint32]*Stream), got: make(map[uint32]int)}
	own := clientConfig(fuzzConfig())
	own.CreditOnReceipt = rnd.IntN(2) == 0
	d.end[0], d.end[1] = newConn(own), newConn(fuzzConfig())
	for !d.end[0].Settled() { // until then the client takes a window of the server's for wider than it is
		d.under[0] = append(d.under[0], d.end[1].TakeOutput()...)
		d.move(0)
	}
	return d
}

// step does one thing on one of the sides.
func (d *duet) step() {
	switch d.rnd.IntN(8) {
	case 0:
		if call := (&duetCall{st: new(Stream)}); d.end[0].Quota() > 0 {
			call.st.User = call
			if err := d.end[0].Begin(call.st, &target, nil, false); err != nil {
				d.t.Fatal(err)
			}
			d.requests = append(d.requests, call)
		}
	case 1:
		if call := d.call(); call != nil {
			n, _ := d.end[0].Data(call.st, make([]byte, d.rnd.IntN(600)), d.rnd.IntN(3) == 0)
			call.sent += n
		}
	case 2:
		if call := d.call(); call != nil && d.rnd.IntN(8) == 0 {
			call.reset = d.end[0].Reset(call.st, Cancel) || call.reset
		}
	case 3:
		d.serve()
	default:
		d.move(d.rnd.IntN(2))
	}
	for i := range d.end {
		checkInvariants(d.t, d.end[i])
		d.under[1-i] = append(d.under[1-i], d.end[i].TakeOutput()...)
	}
}

// call returns one of the requests.
func (d *duet) call() *duetCall {
	if len(d.requests) == 0 {
		return nil
	}
	return d.requests[d.rnd.IntN(len(d.requests))]
}

// serve lets the server go on with one of its streams.
func (d *duet) serve() {
	call := d.call()
	if call == nil {
		return
	}
	st := d.answers[call.st.ID()]
	if st == nil || st.WriteEnded() {
		return
	}
	c := d.end[1]
	switch d.rnd.IntN(4) {
	case 0:
		if st.User == nil {
			_ = c.Headers(st, 103, nil, false)
		}
	case 1:
		if st.User == nil {
			_ = c.Headers(st, 200, nil, false)
			st.User = c
		} else {
			_, _ = c.Data(st, make([]byte, d.rnd.IntN(600)), false)
		}
	case 2:
		c.Consumed(st, int(st.unread))
	case 3:
		if st.User != nil {
			_ = c.Trailers(st, []hpack.Field{hpack.MakeField("a", "b")})
			c.Returned()
		}
	}
}

// move moves some bytes to a side.
func (d *duet) move(to int) {
	part := d.under[to][:d.rnd.IntN(len(d.under[to])+1)]
	d.under[to] = d.under[to][len(part):]
	for len(part) > 0 {
		n, ok := d.end[to].Parse(part, &d.frame[to])
		part = part[n:]
		if !ok {
			continue
		}
		var ev Event
		if err := d.end[to].Apply(&d.frame[to], &ev); err != nil {
			d.t.Fatalf("side %d: %v", to, err)
		}
		if to == 0 {
			d.clientEvent(&ev)
		} else {
			d.serverEvent(&ev)
		}
	}
}

func (d *duet) clientEvent(ev *Event) {
	if ev.Stream == nil {
		return
	}
	call := ev.Stream.User.(*duetCall)
	if call.reset || call.ended && ev.Kind != StreamReset {
		d.t.Fatalf("stream %d: event %d behind its end", ev.Stream.ID(), ev.Kind)
	}
	switch ev.Kind {
	case AnswerReceived:
		if call.status >= 200 {
			d.t.Fatalf("stream %d: another answer", ev.Stream.ID())
		}
		call.status = ev.Status
	case DataReceived:
		call.received += len(ev.Data)
		d.end[0].Consumed(ev.Stream, len(ev.Data))
	case StreamReset:
		d.checkReset(ev)
		call.reset = true
	}
	call.ended = call.ended || ev.End
}

func (d *duet) serverEvent(ev *Event) {
	switch ev.Kind {
	case RequestStarted:
		st := new(Stream)
		d.end[1].Open(st, ev)
		d.answers[ev.ID] = st
	case DataReceived:
		d.got[ev.Stream.ID()] += len(ev.Data)
	case StreamReset:
		d.checkReset(ev)
	}
}

// checkReset fails if a side has reset a stream because of the other one.
func (d *duet) checkReset(ev *Event) {
	if ev.Local {
		d.t.Fatalf("stream %d was reset: %s", ev.Stream.ID(), ev.Reason)
	}
}

// TestDuet plays the server's core and the client's against each other, with random cuts. Neither may
// find a fault with the other, no byte may be lost, and all credit must come back.
func TestDuet(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, i))
		d := newDuet(t, rnd)
		for range 400 {
			d.step()
		}
		for _, call := range d.requests { // all come to their end
			call.reset = d.end[0].Reset(call.st, Cancel) || call.reset
		}
		for d.end[0].Streams() > 0 || d.end[1].Streams() > 0 || len(d.under[0]) > 0 || len(d.under[1]) > 0 {
			for i := range d.end {
				d.under[1-i] = append(d.under[1-i], d.end[i].TakeOutput()...)
				d.move(i)
			}
		}
		for _, call := range d.requests {
			if id := call.st.ID(); !call.reset && (call.sent != d.got[id] || call.status != 200 || !call.ended) {
				t.Fatalf("seed %d, %d: stream %d: sent %d, got %d, status %d, ended %t", seed, i, id, call.sent, d.got[id], call.status, call.ended)
			}
		}
		for side, c := range d.end {
			if got := c.recv.avail + c.recv.unsent; got != c.cfg.ConnWindowBytes {
				t.Fatalf("seed %d, %d: side %d has credit of %d in the end, want %d", seed, i, side, got, c.cfg.ConnWindowBytes)
			}
		}
	}
}

// FuzzClient feeds a server's frames to a client, whole and cut anywhere: events and answers must be the
// same.
func FuzzClient(f *testing.F) {
	for i := range 16 {
		f.Add([]byte{byte(i), 1, 5, 9, 0, 3, byte(i + 1), 3, 0, 1, 0, 1, 0, 10, 4, 1, 1, 9}, uint64(i))
	}
	f.Fuzz(func(t *testing.T, prog []byte, seed uint64) {
		prog = prog[:min(len(prog), 4096)]
		sameCut(t, seed, func(cut func(n int) int) *peer {
			p := newServer(t, fuzzConfig())
			for i := range 5 {
				p.begin(i%2 == 0)
			}
			program := testnet.Program(prog)
			p.play(&program, true)
			p.cut = cut
			p.feed()
			unserved(p.c, 3)
			p.c.Each(func(st *Stream) {
				if st.ID() > 3 {
					t.Fatalf("stream %d is left behind the last one, 3", st.ID())
				}
			})
			checkInvariants(t, p.c)
			return p
		})
	})
}
