package grpcadapter

import (
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore/pool"
)

// BufferPool returns percore's default pool (see package pool) in the shape that grpc-go uses pools
// in: experimental.BufferPool, experimental.WithBufferPool and mem.NewBuffer take it. It is as
// quick as grpc-go's own or quicker, because it doesn't overwrite a buffer with zeros before each
// use, and pool.Stats counts the buffers that gRPC has out: a mem.Buffer has one from when it is
// made until its last Free. Those that grpc-go never frees, as those that a stream has received
// when it is cut off before it is read, are the garbage collector's, and count as leaked.
//
// As with grpc-go's own pool, a codec must not keep what it was given to decode
// without a reference (mem.Buffer.Ref): the bytes become those of other messages, of
// other connections as well. Bytes between the length and the capacity of a buffer are
// left over from such, too.
//
// grpc-go's codec for protobuf takes its buffers from mem.DefaultBufferPool,
// whatever pool the server or client has been given. That is for the program to
// decide, in an init function:
//
//	func init() { experimental.SetDefaultBufferPool(grpcadapter.BufferPool()) }
func BufferPool() mem.BufferPool { return bufferPool{} }

// bufferPool gets buffers from three places, by their capacity:
//
//	up to 1 KiB    small, uncounted: grpc-go mostly doesn't give them back, since
//	               mem.NewBuffer makes a mere slice of them
//	up to 1 MiB    percore's pool
//	above          grpc-go's pool, for percore's keeps none that are so large
type bufferPool struct{}

// keptBytesMax is the largest capacity that percore's pool keeps.
const keptBytesMax = 1 << 20

// small has buffers of two capacities; in between, rounding up would cost more than it
// saves, as most of them are used once.
var small = [...]smallPool{{bytes: 256}, {bytes: 1 << 10}}

type smallPool struct {
	bytes int
	cache sync.Pool // *[]byte
}

// large is grpc-go's pool from before the program could make it this one.
var large = mem.DefaultBufferPool()

// Get returns a buffer of the given length.
func (bufferPool) Get(length int) *[]byte {
	switch {
	case length > keptBytesMax:
		return large.Get(length)
	case length > small[1].bytes:
		return pool.GetBytes(length)
	case length > small[0].bytes:
		return small[1].get(length)
	}
	return small[0].get(length)
}

// Put takes a buffer back. Its capacity tells where it is from.
func (bufferPool) Put(b *[]byte) {
	switch n := cap(*b); {
	case n > keptBytesMax:
		large.Put(b)
	case n > small[1].bytes:
		pool.PutBytes(b)
	case n == small[1].bytes:
		small[1].cache.Put(b)
	case n == small[0].bytes:
		small[0].cache.Put(b)
	}
}

func (p *smallPool) get(length int) *[]byte {
	b, ok := p.cache.Get().(*[]byte)
	if !ok {
		s := make([]byte, length, p.bytes)
		return &s
	}
	*b = (*b)[:length]
	return b
}
