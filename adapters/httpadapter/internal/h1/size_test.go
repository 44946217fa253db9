package h1

import (
	"testing"
	"unsafe"
)

// A Conn takes 64 bytes, one of the allocator's size classes. One more field would cost 16 bytes.
const connBytesMax = 64

func TestConnSize(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); unsafe.Sizeof(uintptr(0)) == 8 && n > connBytesMax {
		t.Errorf("a Conn takes %d bytes, want %d at most", n, connBytesMax)
	}
}
