//go:build !percore_net

package percore

import (
	"os"
	"syscall"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sys"
)

// headerReader reads the PROXY header at the start of a socket's stream, in parts if need be, and
// not a byte more. It peeks at the bytes that have arrived, and then takes the ones that belong to
// the header. So the rest stays in the kernel. No part of the header does, since it would cause an
// event again and again.
type headerReader struct{ got []byte }

// peekBytes is how much is looked at each time. Without extensions a header has at most 232 bytes. The
// memory of a longer one grows with what has come, not with what the peer has announced.
const peekBytes = 4 << 10

// read reads as much as is there, from a socket that nothing else reads from. whole says that h is
// the header. It fails when there can't be a header any more.
func (r *headerReader) read(fd int) (h proxyproto.Header, whole bool, err error) {
	var buf [peekBytes]byte
	for {
		n, errno := sys.Peek(fd, buf[:])
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return h, false, nil
		case errno != 0 && len(r.got) == 0, errno == 0 && n == 0 && len(r.got) == 0:
			return h, false, accepting.ErrNoHeader
		case errno != 0:
			return h, false, os.NewSyscallError("read", errno)
		case n == 0:
			return h, false, accepting.ErrHeaderEnded
		}
		had := len(r.got)
		r.got = append(r.got, buf[:n]...)
		length, complete, err := proxyproto.Scan(r.got)
		if err != nil {
			return h, false, err
		}
		if complete {
			n = length - had
		}
		taken, errno := sys.Recv(fd, buf[:n], false)
		if errno != 0 {
			taken = 0 // the bytes stay; the next look says why
		}
		r.got = r.got[:had+taken]
		if complete && taken == n {
			h, err := proxyproto.Parse(r.got)
			r.got = nil
			return h, err == nil, err
		}
	}
}
