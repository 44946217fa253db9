package zerocopy_test

import (
	"fmt"

	"github.com/percore/percore/zerocopy"
)

// The counters for a page about the state of the program.
func ExampleReadStats() {
	s := zerocopy.ReadStats()
	fmt.Println("bytes by sendfile:", s.SendfileBytes)
	fmt.Println("bytes by splice:  ", s.SpliceBytes)
	fmt.Println("copied bytes:     ", s.CopiedBytes)
	fmt.Printf("pipes:             %d open, %d of them idle\n", s.PipesOpen, s.PipesIdle)
}

func ExampleFeatures() {
	for _, f := range zerocopy.Features() {
		if f.On {
			fmt.Println(f.Name, "is on")
		} else {
			fmt.Printf("%s is off: %s\n", f.Name, f.WhyOff)
		}
	}
}
