package grpcadapter

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore/pool"
)

// bufferPool is percore's default pool in the form that mem.NewBuffer takes. Unlike grpc-go's own, it
// doesn't overwrite a buffer with zeros before each use. It gets buffers from three places, depending on
// their capacity:
//
//	up to 1 KiB    small, uncounted: most are not given back, since mem.NewBuffer
//	               makes a plain slice of them
//	up to 1 MiB    percore's pool
//	above          long, uncounted: percore's pool keeps no buffers that large
type bufferPool struct{}

// keptBytesMax is the largest capacity that percore's pool keeps.
const keptBytesMax = 1 << 20

// small has buffers of two capacities. Rounding up in finer steps would cost more than it saves, as
// most of them are used once.
var small = [...]smallPool{{bytes: 256}, {bytes: 1 << 10}}

type smallPool struct {
	bytes int
	cache sync.Pool // *[]byte
}

// long has buffers of twice the length each. The first are a little longer than 1 MiB because messages
// with that much in them are, and so with the others.
var long [longClasses]sync.Pool // *[]byte

const (
	longBytesMin = keptBytesMax + keptBytesMax/16
	longClasses  = 7 // up to 68 MiB; what is longer is left to the collector
)

// longClass returns the class of the shortest buffers that are long enough. It may not exist.
func longClass(length int) int { return bits.Len(uint(length-1) / longBytesMin) }

// grpcPool is the default pool when this package is initialized: grpc-go's, unless a package that is
// initialized before has replaced it.
var grpcPool = mem.DefaultBufferPool()

// Get returns a buffer of the given length.
func (bufferPool) Get(length int) *[]byte {
	switch {
	case length > keptBytesMax:
		return getLong(length)
	case length > small[1].bytes:
		return pool.GetBytes(length)
	case length > small[0].bytes:
		return small[1].get(length)
	}
	return small[0].get(length)
}

// Put takes a buffer back. Its capacity tells where it came from.
func (bufferPool) Put(b *[]byte) {
	switch n := cap(*b); {
	case n > keptBytesMax:
		putLong(b)
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
