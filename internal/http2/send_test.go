package http2

import (
	"errors"
	"strings"
	"testing"

	"github.com/percore/percore/internal/http2/hpack"
)

// field returns a field of an answer.
func field(name, value string) hpack.Field { return hpack.MakeField(name, value) }

// TestAnswer checks the frames of answers, and the states that they lead to.
func TestAnswer(t *testing.T) {
	p := newPeer(t, nil)
	p.get(1).post(3).feed()
	p.log = nil
	one, three := p.streams[1], p.streams[3]

	must(t, p.c.Headers(one, 103, []hpack.Field{field("link", "</a>")}, false))
	must(t, p.c.Headers(one, 200, []hpack.Field{field("content-type", "text/plain")}, false))
	data(t, p.c, one, "hello", false, 5)
	data(t, p.c, one, "", false, 0)
	must(t, p.c.Trailers(one, []hpack.Field{field("x-a", "b")}))
	p.feed().want("> headers 1 :status=103 link=</a>", "> headers 1 :status=200 content-type=text/plain", `> data 1 "hello"`, "> headers 1 x-a=b end")
	if !one.Ended() || p.c.Streams() != 1 {
		t.Errorf("got %d streams behind the end of one of two", p.c.Streams())
	}

	must(t, p.c.Headers(three, 204, nil, true))
	p.feed().want("> headers 3 :status=204 end")
	if three.Ended() || !three.WriteEnded() || three.ReadEnded() {
		t.Error("a stream whose client still sends must be half-closed")
	}
	p.data(3, "x", true).feed().want(`data 3 "x" end`)
	if !three.Ended() {
		t.Error("a stream that both sides have ended is not closed")
	}

	for name, err := range map[string]error{
		"Headers":  p.c.Headers(one, 200, nil, false),
		"Trailers": p.c.Trailers(one, nil),
		"Data":     second(p.c.Data(one, []byte("x"), true)),
	} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("%s on a stream that has ended: got %v, want %v", name, err, ErrEnded)
		}
	}
	if p.c.Reset(one, Cancel) {
		t.Error("Reset of a stream that has ended reported true")
	}
	p.feed().want()
}

func second(_ int, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// data sends a part of a body, and checks that the windows let want bytes through.
func data(t *testing.T, c *Conn, st *Stream, body string, end bool, want int) {
	t.Helper()
	n, err := c.Data(st, []byte(body), end)
	if n != want || err != nil {
		t.Errorf("got %d, %v of %d bytes, want %d", n, err, len(body), want)
	}
}

// TestLendOutput: frames that wait move to the memory that is lent, before those that come later,
// and output that has outgrown it stays in order.
func TestLendOutput(t *testing.T) {
	p := newPeer(t, nil)
	lent := make([]byte, 0, 64)
	p.c.Ping([8]byte{'1'})
	p.c.Ping([8]byte{'a'})
	p.c.LendOutput(lent)
	p.c.Ping([8]byte{'b'})
	out := p.c.Output()
	if len(out) != 3*17 || &out[0] != &lent[:1][0] {
		t.Errorf("got %d bytes, want %d in the memory that was lent", len(out), 3*17)
	}
	p.c.Ping([8]byte{'c'})
	for i, first := range "1abc" {
		if got := p.c.Output()[i*17+9]; rune(got) != first {
			t.Errorf("frame %d: got %q, want %q", i, got, first)
		}
	}
}

// TestSplitBlock: a header block that doesn't fit the client's frame size continues in CONTINUATION.
func TestSplitBlock(t *testing.T) {
	for _, n := range []int{0, 1, 16000, 16383, 16384, 16385, 32768, 50000} {
		p := newPeer(t, nil)
		p.get(1).feed()
		p.log = nil
		value := strings.Repeat("\x80", n) // has no shorter code
		must(t, p.c.Headers(p.streams[1], 200, []hpack.Field{field("etag", value)}, true))
		frames := 1 + (len(p.c.Output())-headerBytes-1)/(maxFrameBytes+headerBytes)
		p.feed()
		if got := len(p.log); got != frames {
			t.Errorf("%d bytes: got %d frames, want %d", n, got, frames)
		}
		whole := strings.Join(p.log, "")
		if !strings.HasSuffix(p.log[len(p.log)-1], " :status=200 etag="+value) && !strings.HasSuffix(whole, " :status=200 etag="+value+" end") {
			t.Errorf("%d bytes: got another header", n)
		}
		if !strings.Contains(p.log[0], " end") {
			t.Errorf("%d bytes: END_STREAM is not on HEADERS", n)
		}
	}
}

// TestWindows: DATA is sent as far as the windows of stream and connection allow, which may be
// negative (section 6.9.2).
func TestWindows(t *testing.T) {
	p := newPeer(t, nil)
	p.settings(settingInitialWindow, 10).get(1).get(3).feed()
	p.log = nil
	one, three := p.streams[1], p.streams[3]
	data(t, p.c, one, "0123456789abc", true, 10)
	data(t, p.c, one, "abc", true, 0)
	p.settings(settingInitialWindow, 5).feed().want(`> data 1 "0123456789"`, "> settings ack")
	if w := p.c.Window(one); w != -5 {
		t.Errorf("got a window of %d, want -5", w)
	}
	data(t, p.c, three, "0123456789", false, 5)
	p.windowUpdate(1, 5).feed().want(`> data 3 "01234"`)
	data(t, p.c, one, "abc", true, 0)
	p.settings(settingInitialWindow, 7).feed().want("> settings ack")
	data(t, p.c, one, "abc", true, 2)
	data(t, p.c, one, "c", true, 0)
	p.windowUpdate(1, 100).feed().want(`> data 1 "ab"`)
	data(t, p.c, one, "c", true, 1)
	p.feed().want(`> data 1 "c" end`)

	p = newPeer(t, nil)
	p.settings(settingInitialWindow, 1<<20, settingMaxFrameSize, 1<<20).get(1).get(3).feed()
	p.log = nil
	data(t, p.c, p.streams[1], strings.Repeat("x", 70000), false, initialWindowBytes)
	data(t, p.c, p.streams[3], "x", true, 0)
	data(t, p.c, p.streams[3], "", true, 0) // END_STREAM alone needs no window
	for _, size := range []int{16384, 16384, 16384, 16383} {
		if h := parseHeader(p.c.writer.out); int(h.length) != size {
			t.Errorf("got a frame of %d bytes, want %d", h.length, size)
		}
		p.c.writer.out = p.c.writer.out[headerBytes+size:]
	}
	p.windowUpdate(0, 3).feed().want(`> data 3 "" end`)
	header, n, err := p.c.DataHeader(nil, p.streams[1], 100, true)
	if h := parseHeader(header); n != 3 || err != nil || h.length != 3 || h.has(flagEndStream) {
		t.Errorf("got the header %+v of %d bytes, %v, want 3", h, n, err)
	}
	if header, n, err = p.c.DataHeader(nil, p.streams[1], 100, true); len(header)+n != 0 || err != nil {
		t.Errorf("got the header %x of %d bytes, %v from a closed window", header, n, err)
	}
}

// TestCredit: refunds come in batches, or at once where the client could be stuck. Whenever a
// stream ends, all unread bytes are refunded.
func TestCredit(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StreamWindowBytes, cfg.ConnWindowBytes = 1000, 65535
	p := newPeer(t, cfg)
	p.post(1).data(1, strings.Repeat("x", 1000), false).feed()
	p.log = nil
	one := p.streams[1]
	p.c.Consumed(one, 100)
	p.feed().want("> window 1 100") // the stream's window was closed
	p.c.Consumed(one, 249)
	p.feed().want("> window 1 249")
	p.c.Consumed(one, 200)
	p.feed().want()
	p.data(1, strings.Repeat("x", 350), false).feed()
	p.want("reset 1 FLOW_CONTROL_ERROR local", "> reset 1 FLOW_CONTROL_ERROR") // 349 were announced
	if p.c.recv.avail+p.c.recv.unsent != 65535 {
		t.Errorf("got the connection's window %+v behind the end of its only stream", p.c.recv)
	}
	p.c.Consumed(one, 451)
	p.c.Discarded(one, 451)
	p.feed().want()

	p.post(3).data(3, strings.Repeat("x", 1000), false).feed()
	p.c.Discarded(p.streams[3], 1000)
	p.log = nil
	p.feed().want()
	if p.streams[3].recv != (inflow{}) {
		t.Errorf("got the stream's window %+v behind Discarded", p.streams[3].recv)
	}
}

// TestCreditWithinFrames: padding is credited at once. So is the rest of a DATA frame if the stream
// ends in the middle of it.
func TestCreditWithinFrames(t *testing.T) {
	p := newPeer(t, nil)
	p.post(1).frame(typeData, flagPadded, 1, append([]byte{200}, make([]byte, 300)...)).feed()
	one := p.streams[1]
	if one.unread != 100 {
		t.Errorf("got %d bytes unread of 100 and 201 of padding", one.unread)
	}
	frame := append(appendHeader(nil, typeData, 0, 1, 1000), make([]byte, 1000)...)
	p.feedPart(frame[:409])
	if one.unread != 500 {
		t.Errorf("got %d bytes unread behind 400 of a frame", one.unread)
	}
	p.c.Reset(one, Cancel)
	p.feedPart(frame[409:])
	p.log = nil
	p.get(3).feed().want("request 3 GET http://example.com/ end", "> reset 1 CANCEL")
	if got := p.c.recv.avail + p.c.recv.unsent; got != p.c.cfg.ConnWindowBytes {
		t.Errorf("got credit of %d bytes, want %d", got, p.c.cfg.ConnWindowBytes)
	}
}

// TestGoAway: the graceful end in two steps, and a hard one.
func TestGoAway(t *testing.T) {
	p := newPeer(t, nil)
	p.get(1)
	p.feed()
	p.log = nil
	p.c.Drain("")
	p.c.Drain("")
	p.c.Ping([8]byte{1})
	p.get(3).post(5).frame(typePing, flagAck, 0, []byte{1, 0, 0, 0, 0, 0, 0, 0}).feed()
	p.want("request 3 GET http://example.com/ end", "request 5 GET http://example.com/", "pong 0100000000000000",
		"> goaway 2147483647 NO_ERROR", "> ping false 0100000000000000")
	p.c.GoAway(NoError, "")
	p.c.GoAway(NoError, "")
	p.get(7).post(9).data(9, "ignored", true).data(5, "x", true).frame(typePing, 0, 0, make([]byte, 8)).feed()
	p.want(`data 5 "x" end`, "> goaway 5 NO_ERROR", "> ping true 0000000000000000")
	must(t, p.c.Headers(p.streams[5], 200, nil, true))
	p.feed().want("> headers 5 :status=200 end")
	p.c.GoAway(InternalError, "")
	p.data(5, "y", true).frame(typeSettings, 0, 7, nil).get(11).feed().want("> goaway 5 INTERNAL_ERROR")
	n := 0
	p.c.Each(func(st *Stream) { n++ })
	if n != 2 || p.c.Streams() != 2 || !p.c.Leaving() {
		t.Errorf("got %d streams of Each, %d of Streams, want 2", n, p.c.Streams())
	}
}

// TestPeerTable: the client's table size counts for the next answer, and Rest announces the table anew.
func TestPeerTable(t *testing.T) {
	p := newPeer(t, nil)
	fields := []hpack.Field{field("server", "percore")}
	const short = headerBytes + 2 // of an answer whose fields are in tables
	answer := func(id uint32) (bytes int) {
		t.Helper()
		p.get(id).feed()
		must(t, p.c.Headers(p.streams[id], 200, fields, true))
		bytes = len(p.c.Output())
		p.feed()
		if last := p.log[len(p.log)-1]; !strings.HasSuffix(last, ":status=200 server=percore end") {
			t.Errorf("stream %d: got %q", id, last)
		}
		return bytes
	}
	want := func(when string, id uint32, kept bool) {
		t.Helper()
		if first, second := answer(id), answer(id+2); first == short || (second == short) != kept {
			t.Errorf("%s: got answers of %d and %d bytes", when, first, second)
		}
	}
	want("at the beginning", 1, true)
	p.c.Rest()
	if p.c.streams.buckets != nil {
		t.Error("Rest has kept memory")
	}
	want("after Rest", 5, true)
	p.settings(settingHeaderTableSize, 0).feed()
	want("without a table", 9, false)
	p.settings(settingHeaderTableSize, 50).feed()
	want("an entry takes at most a quarter of the table", 13, false)
}
