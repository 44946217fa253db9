package hpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// unhex decodes the notation of the RFC: groups of hexadecimal digits.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// texts returns the fields as lines "name: value".
func texts(fields []Field) (lines []string) {
	for _, f := range fields {
		lines = append(lines, f.Name.String()+": "+f.Value)
	}
	return lines
}

// at returns the entry that came i entries before the newest.
func (t *table[E]) at(i int) E { return t.entries[len(t.entries)-1-i] }

// lines splits the fields of a vector.
func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// A vector is a block of RFC 7541, appendix C: its bytes, its fields, and the size of the table
// after it.
type vector struct {
	block, fields string
	tableBytes    uint32
}

const (
	request1  = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com"
	request2  = request1 + "\ncache-control: no-cache"
	request3  = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value"
	response1 = ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com"
	response2 = ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com"
	response3 = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\ncontent-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
)

// vectors are the sequences of appendix C, each on one connection.
var vectors = []struct {
	name   string
	max    uint32
	blocks []vector
}{
	{"C.2.1", 4096, []vector{{"400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key: custom-header", 55}}},
	{"C.2.2", 4096, []vector{{"040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0}}},
	{"C.2.3", 4096, []vector{{"1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0}}},
	{"C.2.4", 4096, []vector{{"82", ":method: GET", 0}}},
	{"C.3", 4096, []vector{
		{"8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", request1, 57},
		{"8286 84be 5808 6e6f 2d63 6163 6865", request2, 110},
		{"8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", request3, 164},
	}},
	{"C.4", 4096, []vector{
		{"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", request1, 57},
		{"8286 84be 5886 a8eb 1064 9cbf", request2, 110},
		{"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", request3, 164},
	}},
	{"C.5", 256, []vector{
		{"4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", response1, 222},
		{"4803 3330 37c1 c0bf", response2, 222},
		{"88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31", response3, 215},
	}},
	{"C.6", 256, []vector{
		{"4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3", response1, 222},
		{"4883 640e ffc1 c0bf", response2, 222},
		{"88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07", response3, 215},
	}},
}

// TestVectors decodes appendix C, each block whole and byte by byte.
func TestVectors(t *testing.T) {
	for _, v := range vectors {
		for _, bytewise := range []bool{false, true} {
			d := MakeDecoder()
			d.table.setMax(v.max)
			var l List
			for i, block := range v.blocks {
				l.Reset(1<<20, 100)
				if err := decodeCut(&d, unhex(t, block.block), &l, bytewise); err != nil {
					t.Fatalf("%s, block %d: %v", v.name, i+1, err)
				}
				if got, want := texts(l.Fields), lines(block.fields); !slices.Equal(got, want) {
					t.Errorf("%s, block %d: got %q, want %q", v.name, i+1, got, want)
				}
				if d.table.size != block.tableBytes {
					t.Errorf("%s, block %d: got a table of %d bytes, want %d", v.name, i+1, d.table.size, block.tableBytes)
				}
			}
		}
	}
}

// decodeCut decodes a block, either whole or with each byte as a fragment.
func decodeCut(d *Decoder, p []byte, l *List, bytewise bool) error {
	if !bytewise {
		return d.Decode(p, true, l)
	}
	for i := range p {
		if err := d.Decode(p[i:i+1], false, l); err != nil {
			return err
		}
	}
	return d.Decode(nil, true, l)
}

// TestIntegers: RFC 7541, C.1, and the limits.
func TestIntegers(t *testing.T) {
	for _, test := range []struct {
		bytes  string
		prefix uint
		want   uint32
		ok     bool
		err    error
	}{
		{"0a", 5, 10, true, nil},
		{"1f9a0a", 5, 1337, true, nil},
		{"2a", 8, 42, true, nil},
		{"ff80ffffff0f", 7, 4294967295, true, nil},
		{"ff81ffffff0f", 7, 0, false, ErrInteger},
		{"ffffffffff7f", 7, 0, false, ErrInteger},
		{"ff808080808000", 7, 127, true, nil},
		{"ff80808080808000", 7, 0, false, ErrInteger},
		{"ff", 7, 0, false, nil},
		{"ff8080808080", 7, 0, false, nil},
		{"ff808080808080", 7, 0, false, ErrInteger},
	} {
		c := cursor{p: unhex(t, test.bytes)}
		got, ok := c.integer(test.prefix)
		if got != test.want || ok != test.ok || !errors.Is(c.err, test.err) {
			t.Errorf("%s: got %d, %t, %v; want %d, %t, %v", test.bytes, got, ok, c.err, test.want, test.ok, test.err)
		}
		if test.ok {
			if b := appendInteger(nil, 0, test.prefix, got); len(b) > len(test.bytes)/2 {
				t.Errorf("%d: got the encoding %x, want one as short as %s", got, b, test.bytes)
			}
		}
	}
}

// TestErrors: each rule that ends the connection if it is broken.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		block string
		want  error
	}{
		{"6.1 index 0", "80", ErrIndex},
		{"2.3.3 index beyond the table", "be", ErrIndex},
		{"2.3.3 name index beyond the table", "7f00 01 61", ErrIndex},
		{"2.3.3 huge index", "ff80808010", ErrIndex},
		{"5.1 integer", "ffffffffffffff", ErrInteger},
		{"5.2 string beyond the block", "0003 61", ErrTruncated},
		{"5.2 padding of eight bits", "00 01 61 82 1fff", ErrHuffman},
		{"5.2 padding with a zero", "00 01 61 81 18", ErrHuffman},
		{"5.2 end of string", "00 01 61 84 ffffffff", ErrHuffman},
		{"5.2 nothing but padding of eight bits", "00 01 61 81 ff", ErrHuffman},
		{"5.2 too long, and beyond the block", "00 01 61 7f ffff01", ErrTruncated},
		{"5.2 name too long, without a value", "20 00 7f e907" + strings.Repeat("61", 1128), ErrTruncated},
		{"4.2 update behind a field", "82 20", ErrSizeUpdate},
		{"6.3 update above the limit", "3fe21f", ErrSizeUpdate},
		{"block ends in an integer", "ff", ErrTruncated},
		{"block ends in a name", "40 05 6162", ErrTruncated},
	} {
		d := MakeDecoder()
		var l List
		l.Reset(1000, 100)
		err := d.Decode(unhex(t, test.block), true, &l)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
}

// TestSizeUpdates: several updates may begin a block; a smaller size evicts entries; when we lower
// the limit, an update must follow.
func TestSizeUpdates(t *testing.T) {
	d := MakeDecoder()
	var l List
	l.Reset(1<<16, 100)
	decode := func(s string) error { return d.Decode(unhex(t, s), true, &l) }
	if err := decode("4001 61 01 62 4001 63 01 64"); err != nil || d.table.size != 68 {
		t.Fatalf("got %v and a table of %d bytes, want 68", err, d.table.size)
	}
	if err := decode("3f03 3f05 be"); err != nil || d.table.size != 34 {
		t.Fatalf("got %v and a table of %d bytes behind updates to 34 and 36, want 34", err, d.table.size)
	}
	d.SetLimit(100)
	if err := decode("be"); err != nil {
		t.Errorf("a limit above the size in use: %v", err)
	}
	d.SetLimit(10)
	if err := decode("20 82"); err != nil || d.table.size != 0 {
		t.Errorf("got %v and a table of %d bytes behind an update to 0", err, d.table.size)
	}
	d.SetLimit(4096)
	if err := decode("3fe11f 82"); err != nil {
		t.Errorf("an update to 4096: %v", err)
	}
	d.SetLimit(10)
	if err := decode("82"); !errors.Is(err, ErrSizeUpdate) {
		t.Errorf("without the update that a lower limit asks for: got %v, want %v", err, ErrSizeUpdate)
	}
}

// TestValidity: RFC 9113, section 8.2.1. Bad fields are left out of the list, but still enter the table.
func TestValidity(t *testing.T) {
	for _, test := range []struct {
		name, value string
		valid       bool
	}{
		{"a", "b", true}, {"", "b", false}, {"A", "b", false}, {"a b", "", false}, {"a:", "", false},
		{"a\x00", "", false}, {"\xff", "", false}, {"a", "\x00", false}, {"a", "x\r\ny", false}, {"a", "\x7f", false},
		{"a", "\tb ", true}, {"a", "\xff", true}, {"!#$%&'*+-.^_`|~09az", "", true}, {":unknown", "x", true},
	} {
		f := MakeField(test.name, test.value)
		if f.Valid() != test.valid {
			t.Errorf("%q: %q: got %t, want %t", test.name, test.value, f.Valid(), test.valid)
		}
		d := MakeDecoder()
		var l List
		for _, block := range [][]byte{appendString(appendString([]byte{0x40}, test.name), test.value), {0xbe}} {
			l.Reset(1<<10, 10)
			if err := d.Decode(block, true, &l); err != nil || l.Bad == test.valid || len(l.Fields) == 1 != test.valid {
				t.Errorf("%q: %q: got %v, %t, %d fields", test.name, test.value, err, l.Bad, len(l.Fields))
			}
		}
	}
}

// TestNames: the classes, the keys, and one Name for each common name.
func TestNames(t *testing.T) {
	for wire, want := range map[string]Class{
		":method": Method, "transfer-encoding": Connection, ":unknown": UnknownPseudo, ":": UnknownPseudo,
		"x-new": Regular, "X-New": BadName, "": BadName, "te": TE, "date": Regular,
	} {
		if n := NameOf(wire); n.Class() != want || n.String() != wire {
			t.Errorf("%q: got %q of class %d, want class %d", wire, n, n.Class(), want)
		}
	}
	for key, wire := range map[string]string{"Content-Type": "content-type", "X-New": "x-new", "Www-Authenticate": "www-authenticate", "x-LOWER": "x-lower"} {
		var in *Interner
		for range 2 {
			if n := in.nameOfKey(key); n.String() != wire {
				t.Errorf("%q: got %q, want %q", key, n, wire)
			}
			in = NewInterner()
		}
	}
	if NameOf("x-new").Key() != "X-New" || NameOf("date") != NewInterner().nameOfKey("Date") {
		t.Error("a common name must have one Name, another its key")
	}
	keeps := func() bool {
		in := NewInterner()
		key, wire := in.nameOfKey("X-New"), in.name([]byte("x-other"))
		return key == in.nameOfKey("X-New") && wire == in.name([]byte("x-other"))
	}
	for tries := 0; !keeps(); tries++ { // in one Interner of 512 the two names have the same place
		if tries == 2 {
			t.Fatal("an Interner made a Name twice")
		}
	}
}

// TestTablesShare: tables share the entries that describe a program, and none of a person's.
func TestTablesShare(t *testing.T) {
	l := List{Strings: NewInterner()}
	fields := []struct{ name, value string }{
		{"user-agent", "a browser"}, {"accept", "*/*"}, {"cookie", "a secret"}, {"authorization", "a secret"}, {"x-other", "a browser"},
	}
	var block []byte
	for _, f := range fields {
		block = appendString(appendString(append(block, 0x40), f.name), f.value)
	}
	block = appendString(appendString(append(block, 0x40), "user-agent"), "a browser\n")
	shared := func() (names []string) {
		decoders := [2]Decoder{MakeDecoder(), MakeDecoder()}
		for i := range decoders {
			l.Reset(1<<20, 1000)
			if err := decoders[i].Decode(block, true, &l); err != nil || !l.Bad || len(l.Fields) != len(fields) {
				t.Fatalf("got %v, %v, %t", l.Fields, err, l.Bad)
			}
		}
		for i := range len(fields) + 1 {
			if f := decoders[0].table.at(i); f == decoders[1].table.at(i) {
				names = append(names, f.Name.String())
			}
		}
		return names
	}
	want := []string{"user-agent", "accept", "user-agent"} // the last one comes first
	for tries := 0; ; tries++ {                            // two of them may have the same place
		got := shared()
		if slices.Equal(got, want) {
			return
		}
		if tries == 5 {
			t.Fatalf("got %v, want %v", got, want)
		}
		l.Strings = NewInterner()
	}
}

// TestStringsStandAlone: the string of a field keeps no more memory than doc.go says, and never the
// bytes that it was decoded from.
func TestStringsStandAlone(t *testing.T) {
	d := MakeDecoder()
	var l List
	l.Reset(1<<20, 1000)
	var block []byte
	for i := range 200 {
		block = appendString(appendString(append(block, 0), fmt.Sprint("x-", i)), strings.Repeat("v", i))
	}
	block = appendString(appendString(append(block, 0), "long"), strings.Repeat("w", 5000))
	if err := d.Decode(block, true, &l); err != nil {
		t.Fatal(err)
	}
	fields := slices.Clone(l.Fields)
	for i := range block {
		block[i] = 0xaa
	}
	if cap(l.chunk) > chunkBytesMax {
		t.Errorf("got a chunk of %d bytes, want %d at most", cap(l.chunk), chunkBytesMax)
	}
	l.Reset(1<<20, 1000)
	if err := d.Decode(appendString(appendString([]byte{0}, "other"), strings.Repeat("o", 900)), true, &l); err != nil {
		t.Fatal(err)
	}
	for i, f := range fields[:200] {
		if f.Name.String() != fmt.Sprint("x-", i) || f.Value != strings.Repeat("v", i) {
			t.Fatalf("field %d: got %q, %q", i, f.Name, f.Value)
		}
	}
	if l.Reset(1<<20, 1000); cap(l.scratch) > keptBytes || cap(l.Fields) > keptFields {
		t.Errorf("a List keeps %d bytes and %d fields", cap(l.scratch), cap(l.Fields))
	}
}

// TestFragmentsCostNoSquare: a string that arrives byte by byte is read once per byte, and kept once.
func TestFragmentsCostNoSquare(t *testing.T) {
	const n = 1 << 18
	d := MakeDecoder()
	var l List
	l.Reset(1<<20, 1000)
	block := appendInteger([]byte{0x40, 1, 'a'}, 0, 7, n)
	block = append(block, bytes.Repeat([]byte{'x'}, n)...)
	allocated := testing.AllocsPerRun(1, func() {
		d = MakeDecoder()
		if err := decodeCut(&d, block, &l, true); err != nil {
			t.Fatal(err)
		}
	})
	if allocated > 100 {
		t.Errorf("got %.0f allocations for %d fragments, want as many as doubling takes", allocated, n)
	}
}

// FuzzDecode decodes two blocks, cut anywhere, and compares the result with the model.
func FuzzDecode(f *testing.F) {
	for _, v := range vectors {
		for i, block := range v.blocks {
			f.Add(unhex(f, v.blocks[0].block), unhex(f, block.block), uint16(i), uint8(i))
		}
	}
	f.Add([]byte("\x3f\x03\x20\x82"), []byte("\xff\x80\x80\x00"), uint16(2), uint8(9))
	long := "\x7f\xad\x02" + strings.Repeat("a", 428) // a string that is skipped if the table is small
	f.Add([]byte("\x3f\x1f\x40\x01a\x01b\x40\x01c"+long+"\xbe"), []byte("\x40\x01d\x01e\xbe"), uint16(200), uint8(9))
	f.Add([]byte("\x3f\x1f\x40\x01a\x01b\x00"+long+"\x01c\xbe"), []byte("\x40"+long+long+"\x40\x01d\x01e\xbe"), uint16(433), uint8(9))
	for fields := range uint8(4) { // of a list, and then of one that is too long
		f.Add([]byte("\x40\x01a\x01b\x40\x01c\x01d\x00\x01e\x01f"), []byte("\xbf\x40\x01g\x7f\x4d"+strings.Repeat("a", 204)+"\x00\x01e\x01f\xbe"), uint16(5), fields)
	}
	full := strings.Repeat("b", 267) // with its name as much as the list may have
	f.Add([]byte("\x40\x01a\x7f\x8c\x01"+full), []byte("\x40\x01a\x7f\x8d\x01"+full+"b"), uint16(0), uint8(9))
	f.Fuzz(func(t *testing.T, first, second []byte, cut uint16, limit uint8) {
		const longest = 300
		m := model{max: DefaultTableBytes, limit: DefaultTableBytes}
		d := MakeDecoder()
		l := List{Strings: NewInterner()}
		for _, p := range [][]byte{first, second} {
			l.Reset(longest, int(limit))
			at := int(cut) % (len(p) + 1)
			err := d.Decode(bytes.Clone(p[:at]), false, &l)
			if err == nil {
				err = d.Decode(bytes.Clone(p[at:]), true, &l)
			}
			want, wantErr := m.decode(p)
			if err != nil && wantErr == nil || err == nil && wantErr != nil && !l.Truncated {
				t.Fatalf("got %v, want %v", err, wantErr)
			}
			if err != nil || wantErr != nil {
				return
			}
			compareList(t, &l, want, longest, int(limit))
			if d.table.size != uint32(m.tableSize()) || d.table.len() != len(m.entries) || d.rest != nil || d.skip > 0 {
				t.Fatalf("got a table of %d entries, %d bytes, want %d, %d", d.table.len(), d.table.size, len(m.entries), m.tableSize())
			}
			for i, e := range m.entries {
				if have := d.table.at(i); have.Name.String() != e.name || have.Value != e.value {
					t.Fatalf("entry %d: got %q, %q, want %q, %q", i, have.Name, have.Value, e.name, e.value)
				}
			}
		}
	})
}

// compareList applies the limits to the fields of the model, and compares a list with them.
func compareList(t *testing.T, l *List, want []modelField, bytesMax, fieldsMax int) {
	t.Helper()
	var fit []modelField
	truncated, bad := false, false
	for _, w := range want {
		if bytesMax -= w.size(); bytesMax < 0 || fieldsMax == 0 {
			truncated = true
			break
		}
		fieldsMax--
		if f := MakeField(w.name, w.value); !f.Valid() {
			bad = true
			continue
		}
		fit = append(fit, w)
	}
	if l.Truncated != truncated || l.Bad != bad || len(l.Fields) != len(fit) {
		t.Fatalf("got %d fields, truncated %t, bad %t; want %d, %t, %t", len(l.Fields), l.Truncated, l.Bad, len(fit), truncated, bad)
	}
	for i, w := range fit {
		if f := l.Fields[i]; f.Name.String() != w.name || f.Value != w.value || f.Sensitive != w.sensitive {
			t.Fatalf("field %d: got %q: %q, %t; want %+v", i, f.Name, f.Value, f.Sensitive, w)
		}
	}
}

// TestTrim: without the memory that no entry takes, a table has the same entries, and takes more.
func TestTrim(t *testing.T) {
	e, d := MakeEncoder(DefaultTableBytes), MakeDecoder()
	for round := range 50 {
		block, want := e.Begin(nil), ""
		for i := range round % 7 {
			name, value := fmt.Sprint("name-", i), strings.Repeat("v", 100*(round%3)+i)
			block = e.Append(block, MakeField(name, value))
			want += name + "=" + value + " "
		}
		var l List
		l.Reset(1<<20, 1000)
		err := d.Decode(block, true, &l)
		got := ""
		for _, f := range l.Fields {
			got += f.Name.String() + "=" + f.Value + " "
		}
		if err != nil || got != want {
			t.Fatalf("round %d: got %q and %v, want %q", round, got, err, want)
		}
		n := d.table.len()
		if d.Trim(); d.table.len() != n || cap(d.table.entries) != n {
			t.Fatalf("round %d: got %d entries in memory for %d, want %d", round, d.table.len(), cap(d.table.entries), n)
		}
	}
}
