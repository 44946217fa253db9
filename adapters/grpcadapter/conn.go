package grpcadapter

import (
	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
)

// Conn is a connection of percore's that grpc-go reads without holding a buffer
// while there is nothing to read. It has all methods of [percore.Conn], and all are
// safe for concurrent use.
type Conn struct {
	*percore.Conn
}

// ReadOnReady waits until there is something to read, takes a buffer of bufSize
// bytes from pool, and reads into it once. It returns the buffer, which then is the
// caller's to put back, and how many bytes were read, at least one; or no buffer,
// 0 and an error. The errors are those of Read, and it blocks as Read does: until
// there is data, the end of the stream ([io.EOF]), an error, the read deadline or
// Close. A buffer is out only for the time of the system call.
//
// Its name and signature are grpc-go's: the interface Reader of its package
// internal/transport/readyreader, which it looks for on every connection.
func (c *Conn) ReadOnReady(bufSize int, pool mem.BufferPool) (b *[]byte, n int, err error) {
	n, err = c.ReadReady(
		func() []byte { b = pool.Get(bufSize); return *b },
		func() { pool.Put(b); b = nil },
	)
	return b, n, err
}
