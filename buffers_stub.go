//go:build !linux || percore_net

package percore

import "net"

// readReady can't wait for readiness, and so needs the memory to wait with.
func (s *sock) readReady(lend func() []byte, takeBack func()) (int, error) {
	n, err := s.conn.Read(lend())
	if n == 0 {
		takeBack()
	}
	return n, err
}

func (s *sock) writeBuffers(v *net.Buffers) (int64, error) { return v.WriteTo(s.conn) }
