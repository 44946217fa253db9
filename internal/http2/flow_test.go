package http2

import "testing"

// TestOutflow: windows grow to 2^31-1 and no further, even if the bound of the deltas is that of a
// stream that has ended since.
func TestOutflow(t *testing.T) {
	o := outflow{conn: initialWindowBytes, initial: initialWindowBytes}
	var streams streamTable
	wide, plain := &Stream{id: 1, state: open}, &Stream{id: 3, state: open}
	streams.add(wide)
	streams.add(plain)
	const rest = maxWindowBytes - initialWindowBytes
	if o.open(wide, rest+1) || !o.open(wide, rest) || o.open(wide, 1) || o.of(wide) != maxWindowBytes {
		t.Fatalf("got a window of %d, want %d", o.of(wide), maxWindowBytes)
	}
	if o.open(nil, rest+1) || !o.open(nil, rest) || o.conn != maxWindowBytes {
		t.Fatalf("got a window of %d for the connection, want %d", o.conn, maxWindowBytes)
	}
	if o.setInitial(initialWindowBytes+1, &streams) || o.initial != initialWindowBytes {
		t.Fatal("a window has become too wide")
	}
	streams.remove(wide)
	for _, initial := range []int32{initialWindowBytes + 1, 10} {
		if !o.setInitial(initial, &streams) || o.initial != initial {
			t.Errorf("got an initial window of %d, want %d", o.initial, initial)
		}
	}
	o.take(plain, 15)
	if got := o.of(plain); got != -5 || o.conn != maxWindowBytes-15 {
		t.Errorf("got windows of %d and %d, want -5 and %d", got, o.conn, maxWindowBytes-15)
	}
}
