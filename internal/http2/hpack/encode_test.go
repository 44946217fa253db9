package hpack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestForms: the form that each policy sends.
func TestForms(t *testing.T) {
	e := MakeEncoder(EncoderTableBytes)
	for _, test := range []struct {
		f     Field
		first byte
	}{
		{MakeField("content-type", "text/plain"), 0x5f},
		{MakeField("content-type", "text/plain"), 0xbe},
		{MakeField("content-length", "13"), 0x0f},
		{MakeField("set-cookie", "a=b"), 0x1f},
		{MakeField("x-new", "v"), 0x40},
		{MakeField("x-new", "v"), 0xbe},
		{MakeField("x-new", "w"), 0x7e},
		{Field{Name: NameOf("x-new"), Value: "v", Sensitive: true}, 0x1f},
		{MakeField("x-long", strings.Repeat("v", 300)), 0x00},
		{MakeField("accept-encoding", "gzip, deflate"), 0x90},
		{MakeField(":method", "POST"), 0x83},
	} {
		if b := e.Append(nil, test.f); b[0] != test.first {
			t.Errorf("%s: %s: got %x, want the first byte %x", test.f.Name, test.f.Value, b, test.first)
		}
	}
	plain := MakeEncoder(EncoderTableBytes)
	want := unhex(t, "4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf") // of appendix C.4.3
	if b := plain.Append(nil, MakeField("custom-key", "custom-value")); !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
	for code, want := range map[int]string{200: "88", 204: "89", 206: "8a", 304: "8b", 400: "8c", 404: "8d", 500: "8e"} {
		if b := e.AppendStatus(nil, code); fmt.Sprintf("%x", b) != want {
			t.Errorf("%d: got %x, want %s", code, b, want)
		}
	}
	d := MakeDecoder()
	var l List
	l.Reset(1000, 10)
	e = MakeEncoder(EncoderTableBytes)
	if err := d.Decode(e.AppendStatus(e.AppendStatus(nil, 103), 999), true, &l); err != nil || !slices.Equal(texts(l.Fields), []string{":status: 103", ":status: 999"}) {
		t.Errorf("got %v, %q", err, texts(l.Fields))
	}
}

// TestTableSizes: what a block begins with (the table at Encoder).
func TestTableSizes(t *testing.T) {
	e := MakeEncoder(EncoderTableBytes)
	begin := func(when, want string) {
		t.Helper()
		if got := fmt.Sprintf("%x", e.Begin(nil)); got != want {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	field := MakeField("x-a", "b")
	begin("first block", "3fe107")
	begin("second block", "")
	e.PeerLimit(65536)
	begin("a larger table of the peer's", "")
	e.PeerLimit(0)
	begin("no table", "20")
	if b := e.Append(nil, field); b[0] != 0 || e.table.size != 0 {
		t.Errorf("without a table: got %x", b)
	}
	e.PeerLimit(100)
	begin("a short table", "3f45")
	e.PeerLimit(0)
	e.PeerLimit(4096)
	begin("none, and then the default", "203fe107")
	e.Drop()
	begin("an empty table dropped", "")
	e.Append(nil, field)
	e.Drop()
	begin("a table dropped", "203fe107")
	e.Append(nil, field)
	e.Drop()
	e.PeerLimit(0)
	begin("a table dropped, and then none", "20")
}

// TestEncoderKeepsNoLongString: an entry is a copy.
func TestEncoderKeepsNoLongString(t *testing.T) {
	long := []byte(strings.Repeat("0123456789", 1000))
	e := MakeEncoder(EncoderTableBytes)
	f := Field{Name: NameOf("x-a"), Value: string(long)[:10]}
	e.Append(nil, f)
	if n := testing.AllocsPerRun(100, func() { e.Append(long[:0], f) }); n != 0 {
		t.Errorf("got %.0f allocations for an entry of the table, want none", n)
	}
}

// FuzzEncode encodes random fields in blocks, with limits that change in between, and decodes them.
// Both tables must have the same entries.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("\x00content-type\x00text/html\x01\x02\x00x-a\x00b"))
	f.Add([]byte("\x01\x10\x00x-a\x00b\x02\x00x-a\x00b\x01\x00\x01\xff\x00x-a\x00b"))
	f.Fuzz(func(t *testing.T, program []byte) {
		e, d := MakeEncoder(EncoderTableBytes), MakeDecoder()
		var l List
		for len(program) > 0 {
			op := program[0]
			program = program[1:]
			switch op {
			case 1:
				n := uint32(0)
				if len(program) > 0 {
					n, program = uint32(program[0])*16, program[1:]
				}
				e.PeerLimit(n)
				d.SetLimit(n)
				if n > DefaultTableBytes {
					d.SetLimit(DefaultTableBytes)
				}
			case 2:
				e.Drop()
			default:
				name, rest, _ := bytes.Cut(program, []byte{0})
				value, rest, _ := bytes.Cut(rest, []byte{0})
				program = rest
				roundTrip(t, &e, &d, &l, Field{Name: NameOf(string(name)), Value: string(value), Sensitive: op&1 != 0})
			}
		}
	})
}

// roundTrip encodes and decodes a block with a field twice.
func roundTrip(t *testing.T, e *Encoder, d *Decoder, l *List, f Field) {
	t.Helper()
	l.Reset(1<<20, 100)
	b := e.Append(e.Append(e.Begin(nil), f), f)
	if err := d.Decode(b, true, l); err != nil {
		t.Fatalf("decoding %x: %v", b, err)
	}
	if have := MakeField(f.Name.String(), f.Value); !have.Valid() {
		if !l.Bad {
			t.Fatalf("%q: %q was taken for valid", f.Name, f.Value)
		}
	} else if len(l.Fields) != 2 || l.Fields[1].Value != f.Value || l.Fields[0].Name.String() != f.Name.String() {
		t.Fatalf("got %q, want %q: %q twice", texts(l.Fields), f.Name, f.Value)
	}
	if e.table.size > e.table.max || d.table.size > d.table.limit {
		t.Fatalf("got tables of %d and %d bytes, want %d and %d at most", e.table.size, d.table.size, e.table.max, d.table.limit)
	}
	for i := range e.table.len() {
		if i == d.table.len() {
			t.Fatalf("got %d entries, want %d", i, e.table.len())
		}
		have, want := d.table.at(i), e.table.at(i)
		if have.Value != want.Value || have.Name.String() != want.Name.String() {
			t.Fatalf("entry %d differs from %q: %q", i, want.Name, want.Value)
		}
	}
}
