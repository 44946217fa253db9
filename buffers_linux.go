//go:build !percore_net

package percore

import (
	"net"
	"syscall"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
	"github.com/percore/percore/zerocopy"
)

func (s *sock) readReady(lend func() []byte, takeBack func()) (int, error) {
	n, err := s.fd.ReadReady(lend, takeBack)
	return n, syscallError("read", err)
}

func (s *sock) writeBuffers(v *net.Buffers) (n int64, err error) {
	var stopped error
	err = s.fd.WriteWith(func(fd uintptr) (done bool) {
		var wrote int64
		wrote, stopped = zerocopy.Writev(int(fd), (*[][]byte)(v))
		n += wrote
		return stopped != syscall.EAGAIN
	})
	if err == nil {
		err = stopped
	}
	return n, syscallError("writev", err)
}

func (s *sock) writeBuffer(b *pool.Buffer) (n int, err error) {
	p := b.Bytes()
	if !s.mayZeroCopy(len(p)) {
		return s.write(p)
	}
	var stopped error
	err = s.fd.WriteWith(func(fd uintptr) (done bool) {
		var wrote int
		wrote, stopped = s.sender(int(fd)).Write(int(fd), p[n:], b)
		n += wrote
		return stopped != syscall.EAGAIN
	})
	if err == nil {
		err = stopped
	}
	return n, syscallError("write", err)
}

// mayZeroCopy reports whether a write of n bytes can try to do without copying.
// Once the user has had the raw descriptor we keep away from it: he may have
// duplicated it, so that closing it would not end the connection, or use the error
// queue himself.
func (s *sock) mayZeroCopy(n int) bool {
	from := s.origin.zeroCopyMin
	return from > 0 && n >= from && s.origin.kind == loop.TCP && !s.fd.Exposed() && fastpath.MsgZerocopy.On()
}

// sender returns what sends without copying, for a caller who holds the writing
// side. The first one makes it.
func (s *sock) sender(fd int) *zerocopy.Sender {
	if sender, ok := s.fd.ErrorQueue().(*zerocopy.Sender); ok {
		return sender
	}
	sender := zerocopy.NewSender(fd, s.fd, s.origin.zeroCopyMin)
	s.fd.SetErrorQueue(sender)
	return sender
}
