package pool

import (
	"bytes"
	"sync"
	"weak"

	"github.com/percore/percore/internal/invariants"
)

// The additional checks of a checking build. In other builds invariants.Enabled is a
// constant false, and the compiler removes all of it.

// poisonByte fills released memory: an address made of it is not canonical, a length
// absurd, a character no UTF-8.
const poisonByte = 0xCC

// defaultSampleEvery is the meaning of a Config.LeakSampleEvery of 0.
var defaultSampleEvery = map[bool]int{true: 1}[invariants.Enabled]

// poison fills the memory of s, up to its capacity.
func poison(s []byte) {
	if invariants.Enabled {
		s = s[:cap(s)]
		for i := range s {
			s[i] = poisonByte
		}
	}
}

// checkUntouched panics if memory that was lent before does not look as poison has left it.
func checkUntouched(s []byte, lentBefore bool) {
	if invariants.Enabled && lentBefore && !isPoison(s) {
		panic("pool: memory was written to after its release")
	}
}

// waiting are the pointers that PutBytes has and GetBytes hasn't.
var waiting sync.Map // of weak.Pointer[[]byte]

// notePut panics if b was put already.
func notePut(b *[]byte) {
	if invariants.Enabled {
		if _, twice := waiting.LoadOrStore(weak.Make(b), nil); twice {
			panic("pool: PutBytes of bytes that were put already")
		}
	}
}

// noteLent takes b out of waiting.
func noteLent(b *[]byte) {
	if invariants.Enabled {
		waiting.Delete(weak.Make(b))
	}
}

func isPoison(s []byte) bool {
	s = s[:cap(s)]
	return bytes.Count(s, []byte{poisonByte}) == len(s)
}
