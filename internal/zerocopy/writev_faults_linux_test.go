//go:build percore_faults

package zerocopy

import (
	"io"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// Each call of sendmsg fails, with each errno that its man page and tcp(7) list.
func TestWritevFaults(t *testing.T) {
	for _, errno := range []syscall.Errno{
		unix.EAGAIN, unix.EINTR, unix.EACCES, unix.EALREADY, unix.EBADF, unix.ECONNRESET, unix.EDESTADDRREQ, unix.EFAULT, unix.EINVAL,
		unix.EISCONN, unix.EMSGSIZE, unix.ENOBUFS, unix.ENOMEM, unix.ENOTCONN, unix.ENOTSOCK, unix.EOPNOTSUPP, unix.EPIPE,
		unix.ETIMEDOUT, unix.EHOSTUNREACH,
	} {
		for nth := 1; nth <= 3; nth++ {
			fd, peer := streamPair(t)
			calls := 0
			restore := sys.Inject(func(op sys.Op, _ int) syscall.Errno {
				if op != sys.OpWritev {
					return 0
				}
				if calls++; calls == nth {
					return errno
				}
				return 0
			})
			var v [][]byte
			for i := range 3 * iovMax {
				v = append(v, []byte{byte(i)})
			}
			n, err := Writev(fd, &v)
			restore()
			want, wantErr := (nth-1)*iovMax, error(errno)
			if errno == unix.EINTR {
				want, wantErr = 3*iovMax, nil
			}
			if n != int64(want) || err != wantErr || len(v) != 3*iovMax-want {
				t.Errorf("call %d fails with %s: got %d, %v, %d slices left, want %d, %v, %d",
					nth, unix.ErrnoName(errno), n, err, len(v), want, wantErr, 3*iovMax-want)
			}
			got := make([]byte, want)
			if _, err := io.ReadFull(peer, got); err != nil {
				t.Errorf("reading: %v", err)
			}
			for i, b := range got {
				if b != byte(i) {
					t.Errorf("call %d fails with %s: byte %d is %d, want %d", nth, unix.ErrnoName(errno), i, b, byte(i))
					break
				}
			}
		}
	}
}
