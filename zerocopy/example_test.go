package zerocopy_test

import (
	"fmt"

	"github.com/percore/percore/zerocopy"
)

func ExampleFeatures() {
	for _, f := range zerocopy.Features() {
		if f.On {
			fmt.Println(f.Name, "is on")
		} else {
			fmt.Printf("%s is off: %s\n", f.Name, f.WhyOff)
		}
	}
}
