package grpcadapter

import (
	"google.golang.org/grpc/mem"

	"github.com/percore/percore/pool"
)

// BufferPool returns percore's default pool (see package pool) in the shape that
// grpc-go uses pools in: experimental.BufferPool, experimental.WithBufferPool and
// mem.NewBuffer take it. Buffers are not zeroed; those above 1 MiB are from
// grpc-go's own pool, and are. A mem.Buffer holds one from when
// it is made until its last Free, so that pool.Stats, and in a checking build
// pool.Leaks with the stacks of who took them, tell what gRPC has out. It does not
// free all that it takes: what a stream has received when it is cut off before
// anybody reads it is left to the garbage collector (pool.Stats.Leaked).
//
// grpc-go's codec for protobuf takes its buffers from mem.DefaultBufferPool,
// whatever pool the server or client has been given. That is for the program to
// decide, in an init function:
//
//	func init() { experimental.SetDefaultBufferPool(grpcadapter.BufferPool()) }
func BufferPool() mem.BufferPool { return bufferPool{} }

// bufferPool gets buffers from three places, by their capacity:
//
//	up to 1 KiB    Go's allocator: grpc-go does not give them back, since
//	               mem.NewBuffer makes a mere slice of them
//	up to 1 MiB    percore's pool
//	above          grpc-go's pool, for percore's keeps none that are so large
type bufferPool struct{}

// large is what was grpc-go's pool before the program could make it this one.
var large = mem.DefaultBufferPool()

// Get returns a buffer of the given length.
func (bufferPool) Get(length int) *[]byte {
	switch {
	case mem.IsBelowBufferPoolingThreshold(length):
		b := make([]byte, length)
		return &b
	case length > pool.ClassBytesMax:
		return large.Get(length)
	}
	return pool.GetBytes(length)
}

// Put takes a buffer back. Its capacity tells where it is from.
func (bufferPool) Put(b *[]byte) {
	switch {
	case mem.IsBelowBufferPoolingThreshold(cap(*b)):
	case cap(*b) > pool.ClassBytesMax:
		large.Put(b)
	default:
		pool.PutBytes(b)
	}
}
