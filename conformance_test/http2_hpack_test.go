package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"

	"github.com/percore/percore/internal/http2/hpack"
)

// These tests compare internal/http2/hpack with the HPACK of golang.org/x/net. They differ on
// purpose in three points, all of which RFC 7541 leaves open or forbids. x/net accepts a table size
// update after a field while its table is empty (section 4.2). It accepts integers padded to nine
// bytes (section 5.1), and a block without the size update that a lower limit requires.

// hpackLongest is the limit of strings and lists here.
const hpackLongest = 2000

// FuzzHpackDecode decodes two blocks with both decoders.
func FuzzHpackDecode(f *testing.F) {
	f.Add([]byte("\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"), []byte("\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf"))
	f.Add([]byte("\x40\x01a\x01b"), []byte("\x20\x3f\xe1\x1f\xbe"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, x := hpack.MakeDecoder(), xhpack.NewDecoder(hpack.DefaultTableBytes, nil)
		x.SetMaxStringLength(hpackLongest)
		var l hpack.List
		for _, p := range [][]byte{first, second} {
			l.Reset(hpackLongest, 1<<20)
			fields, wantErr := x.DecodeFull(p)
			err := d.Decode(p, true, &l)
			if (err == nil) != (wantErr == nil) {
				if wantErr == nil && (err == hpack.ErrSizeUpdate || err == hpack.ErrInteger) {
					return
				}
				t.Fatalf("%x: got %v, x/net has %v", p, err, wantErr)
			}
			if err != nil {
				return
			}
			compareHpack(t, &l, fields)
		}
	})
}

// compareHpack compares fields up to the end of the list.
func compareHpack(t *testing.T, l *hpack.List, want []xhpack.HeaderField) {
	t.Helper()
	if l.Bad {
		return // fields are left out; the package's own model tests that
	}
	if len(l.Fields) != len(want) && !l.Truncated {
		t.Fatalf("got %d fields, x/net has %d", len(l.Fields), len(want))
	}
	for i, f := range l.Fields {
		if w := want[i]; f.Name.String() != w.Name || f.Value != w.Value || f.Sensitive != w.Sensitive {
			t.Fatalf("field %d: got %q: %q, %t; x/net has %+v", i, f.Name, f.Value, f.Sensitive, w)
		}
	}
}

// TestHpackBothWays encodes random lists with each and decodes them with the other. The table sizes
// change in between.
func TestHpackBothWays(t *testing.T) {
	const seed = 1 // each run has the same lists; FuzzHpackDecode looks for others
	rnd := rand.New(rand.NewPCG(seed, 1))
	var buf bytes.Buffer
	xe, xd := xhpack.NewEncoder(&buf), xhpack.NewDecoder(4096, nil)
	e, d := hpack.MakeEncoder(hpack.EncoderTableBytes), hpack.MakeDecoder()
	l := hpack.List{Strings: hpack.NewInterner()}
	for i := range 3000 {
		if rnd.IntN(20) == 0 {
			n := rnd.Uint32N(4097)
			e.PeerLimit(n)
			xe.SetMaxDynamicTableSize(rnd.Uint32N(4097))
		}
		if rnd.IntN(50) == 0 {
			e.Drop()
		}
		fields := randomFields(rnd)
		buf.Reset()
		block := e.Begin(nil)
		for _, f := range fields {
			_ = xe.WriteField(f)
			block = e.Append(block, hpack.Field{Name: hpack.NameOf(f.Name), Value: f.Value, Sensitive: f.Sensitive})
		}
		l.Reset(1<<20, 1000)
		if err := d.Decode(buf.Bytes(), true, &l); err != nil {
			t.Fatalf("seed %d, block %d: decoding x/net's: %v", seed, i, err)
		}
		compareHpack(t, &l, fields)
		got, err := xd.DecodeFull(block)
		if err != nil || len(got) != len(fields) {
			t.Fatalf("seed %d, block %d: x/net decoding ours: %v, %d fields, want %d", seed, i, err, len(got), len(fields))
		}
		for j, f := range got {
			if f.Name != fields[j].Name || f.Value != fields[j].Value {
				t.Fatalf("seed %d, block %d: x/net has %+v, want %+v", seed, i, f, fields[j])
			}
		}
	}
}

func randomFields(rnd *rand.Rand) (fields []xhpack.HeaderField) {
	names := []string{":path", "accept", "cookie", "set-cookie", "x-one", "x-two", "content-type", "x-" + fmt.Sprint(rnd.IntN(100))}
	for range rnd.IntN(8) {
		value := strings.Repeat(string(rune(' '+rnd.IntN(95))), rnd.IntN(5))
		if rnd.IntN(4) == 0 {
			b := make([]byte, rnd.IntN(400))
			for i := range b {
				b[i] = byte(0x80 | rnd.Uint32())
			}
			value = string(b)
		}
		fields = append(fields, xhpack.HeaderField{Name: names[rnd.IntN(len(names))], Value: value, Sensitive: rnd.IntN(9) == 0})
	}
	return fields
}
