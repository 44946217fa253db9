package pool_test

import (
	"fmt"

	"github.com/percore/percore"
	"github.com/percore/percore/pool"
)

func Example() {
	b := pool.Get(5)
	defer b.Release()
	copy(b.Bytes(), "hello")
	fmt.Printf("%s, %d of %d bytes\n", b.Bytes(), len(b.Bytes()), cap(b.Bytes()))
	// Output: hello, 5 of 1024 bytes
}

// A buffer that outlives the function which got it: each receiver has a reference of its own, and the
// last one to finish returns the memory.
func ExampleBuffer_Retain() {
	b := pool.Get(4)
	copy(b.Bytes(), "news")
	done := make(chan bool)
	for range 3 {
		b.Retain()
		go func() {
			defer func() { done <- true }()
			defer b.Release()
			_ = b.Bytes() // send it
		}()
	}
	b.Release() // the first one's
	for range 3 {
		<-done
	}
	fmt.Println(percore.ReadStats().Pool.BuffersInUse, "in use")
	// Output: 0 in use
}

// An interface that passes on bare slices, such as gRPC's mem.BufferPool.
func ExampleGetBytes() {
	b := pool.GetBytes(3000)
	fmt.Printf("%d of %d bytes\n", len(*b), cap(*b))
	*b = (*b)[:10] // a part will do, as long as it is the first
	pool.PutBytes(b)
	// Output: 3000 of 4096 bytes
}

// A test that fails if a buffer was not released. TestMain can do the same for a whole package.
func ExampleCheckLeaks() {
	pool.Get(100).Release()
	if err := pool.CheckLeaks(); err != nil {
		fmt.Println("FAIL:", err)
	}
	// Output:
}

// A program that limits the kept bytes, and looks for leaks at little cost.
func ExampleConfigure() {
	pool.Configure(pool.Config{KeptBytesMax: 64 << 20, LeakSampleEvery: 1000})
	defer pool.Configure(pool.Config{})
	fmt.Println(percore.ReadStats().Pool.KeptBytesMax>>20, "MiB at most")
	// Output: 64 MiB at most
}
