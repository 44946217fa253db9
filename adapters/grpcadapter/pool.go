package grpcadapter

import (
	"google.golang.org/grpc/mem"

	"github.com/percore/percore/pool"
)

// bufferPool is percore's default pool in the form that mem.NewBuffer takes. It has sizes between 32 KiB
// and 1 MiB, which grpc-go's pool has not, and doesn't overwrite a buffer with zeros before each use.
// Buffers that are longer than percore's pool keeps are grpc-go's. Like package mem, bufferPool doesn't
// pool buffers shorter than 1 KiB.
type bufferPool struct{}

// keptBytesMax is the largest capacity that percore's pool keeps.
const keptBytesMax = 1 << 20

// grpcPool is the default pool when this package is initialized: grpc-go's, unless a package that
// was initialized earlier has replaced it.
var grpcPool = mem.DefaultBufferPool()

// Get returns a buffer of the given length.
func (bufferPool) Get(length int) *[]byte {
	switch {
	case length > keptBytesMax:
		return grpcPool.Get(length)
	case mem.IsBelowBufferPoolingThreshold(length):
		b := make([]byte, length)
		return &b
	}
	return pool.GetBytes(length)
}

// Put takes a buffer back. Its capacity tells where it came from.
func (bufferPool) Put(b *[]byte) {
	switch n := cap(*b); {
	case n > keptBytesMax:
		grpcPool.Put(b)
	case !mem.IsBelowBufferPoolingThreshold(n):
		pool.PutBytes(b)
	}
}
