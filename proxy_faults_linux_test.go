//go:build percore_faults && !percore_net

package percore

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sys"
)

// TestProxyReadFaults: a system call that is interrupted takes no byte from behind the header, whichever
// call of the header's reading it is.
func TestProxyReadFaults(t *testing.T) {
	header := longHeader()
	for _, first := range []int{len(header), len(header) - 100} {
		for n := 1; interruptedHeader(t, header, first, n); n++ {
		}
	}
}

// interruptedHeader reads a header, the first bytes of which come first, while the n-th system call is
// interrupted. It reports whether there were so many.
func interruptedHeader(t *testing.T, header string, first, n int) bool {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	calls := 0
	defer sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if op == sys.OpRead && fd == fds[1] {
			if calls++; calls == n {
				return unix.EINTR
			}
		}
		return 0
	})()
	var r headerReader
	whole := false
	for _, part := range []string{header[:first], header[first:] + "hello"} {
		if _, err := unix.Write(fds[0], []byte(part)); err != nil {
			t.Fatal(err)
		}
		if whole {
			break
		}
		var h proxyproto.Header
		if h, whole, err = r.read(fds[1]); err != nil || whole && h.TLVs != header[16+36:] {
			t.Errorf("call %d interrupted: got %d bytes of TLVs, %v", n, len(h.TLVs), err)
		}
	}
	rest := make([]byte, 10)
	if left, _ := unix.Read(fds[1], rest); left < 0 || string(rest[:left]) != "hello" || !whole {
		t.Errorf("%d bytes first, call %d interrupted: got %t and %d bytes behind the header", first, n, whole, left)
	}
	return calls >= n
}
