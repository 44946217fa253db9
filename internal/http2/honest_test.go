package http2

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests of this file play honest clients at their worst with a margin of ten: either the budgets
// are a tenth, or the client sends ten times as many frames for each of ours.

// times is the margin.
const times = 10

// tenth returns the defaults with a tenth of the budgets.
func tenth() *Config {
	cfg := DefaultConfig()
	cfg.Idle = Budget{cfg.Idle.Burst / times, cfg.Idle.PerSecond / times}
	cfg.Resets = Budget{cfg.Resets.Burst / times, cfg.Resets.PerSecond / times}
	return cfg
}

// withoutTime returns tenth's budgets without the part that comes back with time.
func withoutTime() *Config {
	cfg := tenth()
	cfg.Idle.PerSecond, cfg.Resets.PerSecond = 0, 0
	return cfg
}

// goesOn checks that the connection goes on and that no stream was refused. It forgets the log.
func (p *peer) goesOn() {
	p.t.Helper()
	if p.err != nil || slices.ContainsFunc(p.log, func(s string) bool { return strings.HasSuffix(s, "REFUSED_STREAM") }) {
		p.t.Fatalf("got %v, want the connection to go on; log: %q", p.err, p.log[max(0, len(p.log)-9):])
	}
	p.log = nil
}

func (p *peer) ping() *peer { return p.frame(typePing, 0, 0, make([]byte, 8)) }

// answer begins the answer of a stream.
func (p *peer) answer(id uint32) *Stream {
	p.t.Helper()
	must(p.t, p.c.Headers(p.streams[id], 200, nil, false))
	return p.streams[id]
}

// send sends DATA on a stream, which the windows must not cut.
func (p *peer) send(st *Stream, body string) {
	p.t.Helper()
	if n, err := p.c.Data(st, []byte(body), false); n != len(body) || err != nil {
		p.t.Fatalf("got %d, %v for DATA of %d bytes", n, err, len(body))
	}
}

// TestUpdatesOfShortMessages: some clients send a WINDOW_UPDATE of the stream and one of the connection
// for each DATA frame (gRPC of Dart, Mint), and others a PING besides (gRPC's C core).
func TestUpdatesOfShortMessages(t *testing.T) {
	for _, streams := range []int{1, 10} {
		for _, size := range []int{1, 12, 32, 1000} {
			p := newPeer(t, withoutTime())
			var open []*Stream
			for i := range streams {
				p.get(id(i)).feed()
				open = append(open, p.answer(id(i)))
			}
			for range 600 / streams {
				for _, st := range open {
					p.send(st, strings.Repeat("x", size))
					for range times {
						p.windowUpdate(st.id, uint32(size)).windowUpdate(0, uint32(size)).ping()
					}
				}
				p.feed().goesOn()
			}
		}
	}
}

// TestUpdatesComeLate: the first window lets pass 65,535 messages of a byte before an update must come.
func TestUpdatesComeLate(t *testing.T) {
	p := newPeer(t, withoutTime())
	p.get(1).feed()
	st := p.answer(1)
	for range initialWindowBytes {
		p.send(st, "x")
	}
	p.c.TakeOutput()
	for range initialWindowBytes {
		p.windowUpdate(1, 1).windowUpdate(0, 1)
	}
	p.feed().goesOn()
}

// TestUpdatesOfParts: a client (older Ruby's) sends updates of the stream and the connection for each
// 100 bytes, so the windows cut the frames.
func TestUpdatesOfParts(t *testing.T) {
	const part = 100 / times
	p := newPeer(t, withoutTime())
	p.get(1).feed()
	st := p.answer(1)
	body := make([]byte, maxFrameBytes)
	for sent := 0; sent < 300_000; {
		n, err := p.c.Data(st, body, false)
		must(t, err)
		for range n / part {
			p.windowUpdate(1, part).windowUpdate(0, part)
		}
		p.feed().goesOn()
		sent += n
	}
}

// TestUpdatesAtRate: messages come at a rate, and the client sends both updates for each.
func TestUpdatesAtRate(t *testing.T) {
	for _, rate := range []int{200, 300, 1000} {
		p := newPeer(t, tenth())
		p.get(1).feed()
		st := p.answer(1)
		for range 20 * rate {
			p.send(st, "message")
			p.windowUpdate(1, 7).windowUpdate(0, 7).feed().goesOn()
			p.c.Advance(time.Second / time.Duration(rate))
		}
	}
}

// TestFramesOfRequests: a browser sends PRIORITY_UPDATE, PRIORITY and WINDOW_UPDATE with requests, and
// RST_STREAM of streams that have ended.
func TestFramesOfRequests(t *testing.T) {
	const priorityUpdate = 0x10
	p := newPeer(t, withoutTime())
	p.returns = true
	for i := range 2000 {
		p.get(id(i)).feed()
		must(t, p.c.Headers(p.streams[id(i)], 204, nil, true))
		for range times {
			p.frame(priorityUpdate, 0, 0, append(u32(id(i)), "u=1"...)).frame(typePriority, 0, id(i), make([]byte, 5))
			p.windowUpdate(id(i), 1<<10).reset(id(i))
		}
		p.feed().goesOn()
	}
}

// TestEmptyData: a client that streams flushes an empty DATA frame behind each message.
func TestEmptyData(t *testing.T) {
	p := newPeer(t, withoutTime())
	p.post(1)
	for range 5000 {
		p.data(1, "x", false)
		for range times {
			p.data(1, "", false)
		}
		p.feed().goesOn()
		p.c.Consumed(p.streams[1], 1)
	}
}

// TestKeepalive: clients test a connection without streams with PINGs, ten each second at most. They
// acknowledge those of ours.
func TestKeepalive(t *testing.T) {
	p := newPeer(t, tenth())
	for range 3600 {
		for range 10 {
			p.ping()
		}
		p.feed().goesOn()
		p.c.Advance(time.Second)
	}
	p = newPeer(t, withoutTime())
	for range 2000 {
		p.c.Ping([8]byte{})
		p.frame(typePing, flagAck, 0, make([]byte, 8)).feed().goesOn()
	}
}

// TestCancelsAtRate: a proxy that hedges its requests cancels 1,100 of them a second, and none ends
// well.
func TestCancelsAtRate(t *testing.T) {
	const rate = 1100
	p := newPeer(t, tenth())
	p.returns = true
	for i := range 10 * rate {
		p.get(id(i)).reset(id(i)).feed().goesOn()
		p.c.Advance(time.Second / rate)
	}
}

// TestCancelsBeyondRate: when the budget is spent, streams are refused, and the connection goes on.
func TestCancelsBeyondRate(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Resets = Budget{Burst: 100, PerSecond: 100}
	p := newPeer(t, cfg)
	p.returns = true
	p.post(1).feed().goesOn()
	for i := range 190 {
		p.get(id(i + 1)).reset(id(i + 1))
	}
	p.feed()
	if n := strings.Count(strings.Join(p.log, "\n"), "> reset"); p.err != nil || n != 89 {
		t.Fatalf("got %v and %d refused streams, want 89", p.err, n)
	}
	p.log = nil
	p.c.Advance(time.Second)
	p.data(1, "x", false).get(1001).feed().goesOn()
}

// TestSlowHandlers: five times as many handlers as streams may run, if clients cancel their requests.
// Requests beyond that are refused, until handlers return. Calls that are open go on.
func TestSlowHandlers(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Streams = 10
	p := newPeer(t, cfg)
	p.post(1).feed().goesOn()
	for i := range 80 {
		p.get(id(i + 1)).reset(id(i + 1))
	}
	p.feed()
	if n := p.c.Handlers(); p.err != nil || n != 50 || !slices.Contains(p.log, "> reset 161 REFUSED_STREAM") {
		t.Fatalf("got %v and %d handlers, want 50, and the others refused", p.err, n)
	}
	p.log = nil
	p.c.Returned()
	p.data(1, "x", false).get(1001).feed().goesOn()
}

// TestFramesCrossResets: what a client sends before it knows that we have reset its streams is dropped,
// and gets its credit back. No RST_STREAM answers it, and other streams go on.
func TestFramesCrossResets(t *testing.T) {
	const streams = 1000
	for name, end := range map[string]func(p *peer, id uint32){
		"reset":    func(p *peer, id uint32) { p.c.Reset(p.streams[id], Cancel) },
		"answered": func(p *peer, id uint32) { refuseUpload(p, id) },
		"refused":  nil,
	} {
		cfg := withoutTime()
		cfg.Streams, cfg.Idle.Burst = 2*streams, 100
		p := newPeer(t, cfg)
		p.post(1).feed()
		for i := range streams {
			if p.post(id(i + 1)); end == nil {
				refuse(p)
			}
		}
		p.feed()
		for i := range streams {
			if end != nil {
				end(p, id(i+1))
			}
		}
		p.c.TakeOutput()
		p.c.Rest() // the network is slow
		p.log = nil
		resets := p.c.budgets.resets
		for i := range streams {
			for range times {
				p.data(id(i+1), "message", false)
			}
			p.windowUpdate(id(i+1), 5).data(id(i+1), "", false).frame(typeHeaders, 5, id(i+1), p.block("x-a", "b")).reset(id(i + 1))
		}
		p.data(1, "goes on", true).feed()
		p.want(`data 1 "goes on" end`)
		if p.c.budgets.resets < resets {
			t.Errorf("%s: got %d fewer resets left", name, (resets-p.c.budgets.resets)/thousand)
		}
	}
}

// refuseUpload answers a request before its body has come.
func refuseUpload(p *peer, id uint32) {
	must(p.t, p.c.Headers(p.streams[id], 413, nil, true))
	p.c.Reset(p.streams[id], NoError)
}

// refuse feeds a request, and refuses it as a driver does.
func refuse(p *peer) {
	var ev Event
	if _, ok := p.c.Parse(p.in, &p.f); !ok || p.c.Apply(&p.f, &ev) != nil || ev.Kind != RequestStarted {
		p.t.Fatalf("got %+v, want a request", ev)
	}
	p.in = nil
	p.c.Refuse(&ev, RefusedStream)
}

// TestManyResetsAreRemembered: frames may cross resets of the last 15,360 streams at least. Older ones
// are forgotten, and none is confused with another.
func TestManyResetsAreRemembered(t *testing.T) {
	const most = 15 * cancelledPageStreams
	var s cancelledSet
	for i := range uint32(3 * most) {
		if i%3 == 0 {
			s.add(id(int(i)))
		}
		if i >= most && i%1000 == 0 {
			for j := i - most + 1; j <= i; j += 7 {
				if got, want := s.has(id(int(j))), j%3 == 0; got != want {
					t.Fatalf("stream %d behind that of %d: got %t, want %t", id(int(j)), id(int(i)), got, want)
				}
			}
		}
	}
	if s.has(1) {
		t.Error("the first stream is still known")
	}
}

// TestAnsweredStreamsMakeRoom: a client like grpc-go's counts a stream as ended when it has the whole
// answer, though its request has no end, and begins the next one before the server resets it.
func TestAnsweredStreamsMakeRoom(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Streams = 2
	p := newPeer(t, cfg)
	p.post(1).post(3).feed()
	must(t, p.c.Headers(p.streams[1], 204, nil, true))
	p.post(5).post(7).feed()
	if p.streams[1].Ended() || p.streams[5] == nil || p.streams[7] != nil {
		t.Error("want one more stream for the answered one, which has not ended, and not two")
	}
	p.goesOn()
}

// TestRefusalsOfARead: one read may bring thousands of requests that are refused, before the client can
// read an answer.
func TestRefusalsOfARead(t *testing.T) {
	cfg := DefaultConfig()
	cfg.RetryStreams, cfg.Streams = true, 100
	p := newPeer(t, cfg)
	for i := range 10000 {
		p.get(id(i))
	}
	p.feedAtOnce()
	if p.err != nil {
		t.Errorf("got %v, want 9,900 refused streams", p.err)
	}
}

// TestRequestsBehindGoAway: a proxy sends requests for a second before it reads our GOAWAY.
func TestRequestsBehindGoAway(t *testing.T) {
	p := newPeer(t, withoutTime())
	p.returns = true
	p.post(1)
	for i := range 2000 {
		p.get(id(i + 1)).feed()
		must(t, p.c.Headers(p.streams[id(i+1)], 204, nil, true))
	}
	p.c.GoAway(NoError, "")
	for i := range 2000 * times {
		p.get(id(3000 + i))
	}
	p.data(1, "x", true).feed().goesOn()
}

// TestStreamIDs: no distances between identifiers make streams share a bucket.
func TestStreamIDs(t *testing.T) {
	for shift := range 17 {
		var table streamTable
		for i := range 10000 {
			table.add(&Stream{id: uint32(i)<<(shift+1) | 1})
		}
		longest := 0
		for _, st := range table.buckets {
			n := 0
			for ; st != nil; st = st.next {
				n++
			}
			longest = max(longest, n)
		}
		if longest > 40 {
			t.Errorf("identifiers that are %d apart: got %d streams in a bucket", 2<<shift, longest)
		}
	}
}

// TestLongStrings: a string that is longer than a list may be is a problem of its request only. The
// connection goes on, and its table stays in step, however the block is cut into frames.
func TestLongStrings(t *testing.T) {
	long := strings.Repeat("v", 70_000)
	literal := func(first byte, name, value string) []byte {
		b := append([]byte{first}, appendText(name)...)
		return append(b, appendText(value)...)
	}
	intoTable, notIntoTable := byte(0x40), byte(0)
	for _, test := range []struct {
		name  string
		field []byte
		kept  bool // the table keeps what it has
	}{
		{"value", literal(notIntoTable, "x-long", long), true},
		{"value for the table", literal(intoTable, "x-long", long), false},
		{"value of a Huffman code", append(literal(notIntoTable, "x-long", "")[:8], appendHuffmanOf(70_000)...), true},
		{"name", literal(notIntoTable, long, "v"), true},
		{"name for the table", literal(intoTable, long, "v"), false},
		{"name and value", literal(notIntoTable, long, long), true},
		{"half a megabyte", literal(notIntoTable, "x-long", strings.Repeat("v", 500_000)), true},
	} {
		for _, part := range []int{maxFrameBytes, 10_007} {
			t.Run(fmt.Sprint(test.name, part), func(t *testing.T) {
				p := newPeer(t, nil)
				p.post(1, "x-kept", "before").feed()
				p.log = nil
				block := slices.Concat(p.block(get...), test.field, []byte{0x40, 3, 'x', '-', 'z', 1, 'b'})
				p.frame(typeHeaders, flagEndStream, 3, block[:part])
				for block = block[part:]; len(block) > part; block = block[part:] {
					p.frame(typeContinuation, 0, 3, block[:part])
				}
				p.frame(typeContinuation, flagEndHeaders, 3, block)
				p.frame(typeHeaders, 5, 5, append([]byte{0x82, 0x86, 0x84}, 0xbe)) // the newest entry
				p.data(1, "goes on", true).feed()
				if len(p.log) != 3 || !strings.Contains(p.log[0], " problem 1 end") || !strings.HasSuffix(p.log[1], " x-z=b end") {
					t.Fatalf("got %v: %.300q", p.err, p.log)
				}
				if n := p.c.reader.restBytes(); n > maxFrameBytes {
					t.Errorf("got %d bytes held", n)
				}
				p.log = nil
				p.frame(typeHeaders, 5, 7, []byte{0x82, 0x86, 0x84, 0xbf}).feed() // the entry before the newest
				if kept := strings.HasSuffix(p.log[0], " x-kept=before end"); kept != test.kept {
					t.Errorf("got %q", p.log)
				}
			})
		}
	}
}

// TestLongStringsEnd: a block of which no end comes costs no more than its limit.
func TestLongStringsEnd(t *testing.T) {
	p := newPeer(t, nil)
	p.frame(typeHeaders, 0, 1, append([]byte{0, 1, 'x', 0x7f, 0x81, 0xff, 0xff, 0xff, 7}, make([]byte, 1000)...))
	part := make([]byte, maxFrameBytes)
	n := 0
	for ; p.err == nil && n < 1000; n++ {
		p.frame(typeContinuation, 0, 1, part).feed()
	}
	end, _ := p.err.(*ConnError)
	if end == nil || end.Limit != HeaderLimit || n*maxFrameBytes > blockBytesMin+maxFrameBytes {
		t.Errorf("got %v behind %d frames", p.err, n)
	}
}

// appendText returns a string as HPACK sends it, without Huffman's code.
func appendText(s string) []byte { return append(appendLength(0, len(s)), s...) }

func appendLength(first byte, n int) []byte {
	if n < 127 {
		return []byte{first | byte(n)}
	}
	b := []byte{first | 127}
	for n -= 127; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// appendHuffmanOf returns a string of n bytes in Huffman's code: zeros, which are the code of '0'.
func appendHuffmanOf(n int) []byte {
	return append(appendLength(0x80, n), bytes.Repeat([]byte{0}, n)...)
}
