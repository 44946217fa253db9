package grpcadapter

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore/pool"
)

// bufferPool is percore's default pool in the form that mem.NewBuffer takes. Unlike grpc-go's pool, it
// doesn't overwrite a buffer with zeros before each use. percore's pool has buffers of at most 1 MiB;
// longer ones are from long. Like package mem, bufferPool doesn't pool buffers shorter than 1 KiB.
type bufferPool struct{}

// keptBytesMax is the largest capacity that percore's pool keeps.
const keptBytesMax = 1 << 20

// long has a pool for each length, each twice the one before. Each is a little longer than a power
// of two, because a message with 1 MiB of content, for example, is.
var long [longClasses]sync.Pool // *[]byte

const (
	longBytesMin = keptBytesMax + keptBytesMax/16
	longClasses  = 7 // up to 68 MiB; longer ones are left to the collector
)

// longClass returns the class of the shortest buffers that are long enough. It may not exist.
func longClass(length int) int { return bits.Len(uint(length-1) / longBytesMin) }

// grpcPool is the default pool when this package is initialized: grpc-go's, unless a package that
// was initialized earlier has replaced it.
var grpcPool = mem.DefaultBufferPool()

// Get returns a buffer of the given length.
func (bufferPool) Get(length int) *[]byte {
	switch {
	case length > keptBytesMax:
		return getLong(length)
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
		putLong(b)
	case !mem.IsBelowBufferPoolingThreshold(n):
		pool.PutBytes(b)
	}
}

func getLong(length int) *[]byte {
	class := longClass(length)
	if class >= longClasses {
		b := make([]byte, length)
		return &b
	}
	b, ok := long[class].Get().(*[]byte)
	if !ok {
		s := make([]byte, length, longBytesMin<<class)
		return &s
	}
	*b = (*b)[:length]
	return b
}

// putLong keeps a buffer that getLong has made.
func putLong(b *[]byte) {
	if class := longClass(cap(*b)); class < longClasses && cap(*b) == longBytesMin<<class {
		long[class].Put(b)
	}
}
