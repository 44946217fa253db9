//go:build !percore_net

package percore

import (
	"net"
	"syscall"

	"github.com/percore/percore/internal/zerocopy"
)

func (s *sock) readReady(lend func() []byte, takeBack func()) (int, error) {
	n, err := s.fd.ReadReady(lend, takeBack)
	return n, syscallError("read", err)
}

func (s *sock) writeBuffers(v *net.Buffers) (n int64, err error) {
	var stopped error
	err = s.fd.Stream().Write(func(fd uintptr) (done bool) {
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

func (s *sock) tryWriteBuffers(v *net.Buffers) (n int64, err error) {
	var stopped error
	err = s.fd.Stream().TryWrite(func(fd uintptr) (done bool) {
		n, stopped = zerocopy.Writev(int(fd), (*[][]byte)(v))
		return stopped != syscall.EAGAIN
	})
	if err == nil && stopped != syscall.EAGAIN {
		err = stopped
	}
	return n, syscallError("writev", err)
}
