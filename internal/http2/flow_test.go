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
	if _, ok := o.setInitial(initialWindowBytes+1, &streams); ok || o.initial != initialWindowBytes {
		t.Fatal("a window has become too wide")
	}
	streams.remove(wide)
	for _, step := range []struct {
		initial int32
		change  int
	}{{initialWindowBytes + 1, 1}, {initialWindowBytes + 1, 0}, {10, -1}} {
		if change, ok := o.setInitial(step.initial, &streams); !ok || change != step.change {
			t.Errorf("%d: got %d, %v, want %d", step.initial, change, ok, step.change)
		}
	}
	o.take(plain, 15)
	if got := o.of(plain); got != -5 || o.conn != maxWindowBytes-15 {
		t.Errorf("got windows of %d and %d, want -5 and %d", got, o.conn, maxWindowBytes-15)
	}
}
