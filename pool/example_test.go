package pool_test

import (
	"fmt"
	"strings"

	"github.com/percore/percore/pool"
)

func Example() {
	b := pool.Get(5)
	defer b.Release()
	copy(b.Bytes(), "hello")
	fmt.Printf("%s, %d of %d bytes\n", b.Bytes(), b.Len(), b.Cap())
	// Output: hello, 5 of 1024 bytes
}

// A buffer that outlives the function which got it: each receiver has a reference
// of its own, and the last one to finish returns the memory.
func ExampleBuffer_Retain() {
	b := pool.Get(0)
	b.WriteString("breaking news")
	done := make(chan bool)
	for range 3 {
		b.Retain()
		go func() {
			defer func() { done <- true }()
			defer b.Release()
			_ = b.Bytes() // send it
		}()
	}
	b.Release() // our own
	for range 3 {
		<-done
	}
	fmt.Println(pool.ReadStats().BuffersInUse, "in use")
	// Output: 0 in use
}

// A parser passes on the body of a message and lets go of the rest.
func ExampleBuffer_Slice() {
	message := pool.Growable()
	message.ReadFrom(strings.NewReader("length: 5\n\nhello"))
	start := strings.Index(string(message.Bytes()), "\n\n") + 2
	body := message.Slice(start, message.Len())
	message.Release()

	fmt.Printf("%s\n", body.Bytes())
	body.Release()
	// Output: hello
}

// An implementation of gRPC's mem.BufferPool needs no more than this.
func ExamplePool_GetBytes() {
	p := pool.New(pool.Config{})
	data := p.GetBytes(3)
	copy(*data, "raw")
	fmt.Printf("%s, in use: %d bytes\n", *data, p.Stats().BytesInUse)
	p.PutBytes(data)
	fmt.Printf("in use: %d bytes\n", p.Stats().BytesInUse)
	// Output:
	// raw, in use: 1024 bytes
	// in use: 0 bytes
}
