package percore

import "github.com/percore/percore/pool"

// readBuffer reads up to n bytes into a buffer that is taken when there is
// something to read.
func (s *sock) readBuffer(n int) (*pool.Buffer, error) {
	if n <= 0 {
		_, err := s.read(nil)
		if err != nil {
			return nil, err
		}
		return pool.Get(n), nil // panics if n is negative, and not only when something comes
	}
	var b *pool.Buffer
	read, err := s.readReady(func() []byte {
		b = pool.Get(n)
		return b.Bytes()
	}, func() {
		b.Release()
		b = nil
	})
	if err != nil {
		return nil, err
	}
	b.SetLen(read)
	return b, nil
}
