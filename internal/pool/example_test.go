package pool_test

import (
	"fmt"

	"github.com/percore/percore/internal/pool"
)

// A program that looks for leaks at little cost.
func ExamplePool_Leaks() {
	p := pool.New(pool.Config{LeakSampleEvery: 1000})
	p.Get(100).Release()

	// Every now and then:
	for _, leak := range p.Leaks() {
		fmt.Println("lost:", leak)
	}
	// Output:
}

// An answer whose length is not known beforehand.
func ExampleGrowable() {
	var memory pool.Growable
	defer memory.Release()
	answer := memory.Memory()
	for i := range 3 {
		answer = fmt.Appendf(answer, "line %d;", i)
	}
	memory.Set(answer)
	fmt.Printf("%s\n", answer)
	// Output: line 0;line 1;line 2;
}
