package httpstream

import (
	"testing"
	"unsafe"
)

// TestSize: most of what a request allocates is the exchange. It is in the allocator's class of 640
// bytes, of which the allocator needs 8 itself. One byte more costs each request 64.
func TestSize(t *testing.T) {
	const most = 632
	if got := unsafe.Sizeof(exchange{}); unsafe.Sizeof(uintptr(0)) == 8 && got > most {
		t.Errorf("an exchange takes %d bytes, want %d at most", got, most)
	}
}
