package httpstream

import (
	"testing"
	"unsafe"
)

// TestSize: most of what a request allocates is the exchange. One byte more than the allocator's
// class costs each request 64.
func TestSize(t *testing.T) {
	const most = 640
	if got := unsafe.Sizeof(exchange{}); unsafe.Sizeof(uintptr(0)) == 8 && got > most {
		t.Errorf("an exchange takes %d bytes, want %d at most", got, most)
	}
}
