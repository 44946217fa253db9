package grpcadapter

import (
	"errors"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
)

// Conn is a percore connection that grpc-go reads without holding a buffer while there is nothing
// to read. It has all methods of [percore.Conn], and all are safe for concurrent use.
type Conn struct {
	*percore.Conn
}

// ReadOnReady waits until there is something to read, takes a buffer of bufSize bytes from pool,
// and reads into it once. It returns the buffer, which the caller must put back, and how many bytes
// were read, at least one. Otherwise it returns no buffer, 0 and an error. It returns the same
// errors as Read, and blocks as Read does: until there is data, the end of the stream ([io.EOF]),
// an error, the read deadline or Close. It holds a buffer only during the system call.
//
// grpc-go defines its name and signature: it looks on every connection for the interface Reader of
// its package internal/transport/readyreader.
func (c *Conn) ReadOnReady(bufSize int, pool mem.BufferPool) (b *[]byte, n int, err error) {
	if pool == nil {
		return nil, 0, errors.New("grpcadapter: ReadOnReady was called with a nil mem.BufferPool")
	}
	n, err = c.ReadReady(
		func() []byte { b = pool.Get(bufSize); return *b },
		func() { pool.Put(b); b = nil },
	)
	return b, n, err
}
