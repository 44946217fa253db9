package link

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// appendFrame appends a client's frame.
func appendFrame(b []byte, first byte, payload []byte) []byte {
	b = append(b, first)
	switch n := len(payload); {
	case n < 126:
		b = append(b, Mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, Mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, Mask|127), uint64(n))
	}
	b = append(b, 0, 0, 0, 0) // a mask that changes nothing
	return append(b, payload...)
}

// TestFrames: wherever the stream is cut, the end of each message is known, and nothing else is taken
// for it.
func TestFrames(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var stream []byte
		ends := map[int]bool{0: true} // how many bytes end between two messages
		for range 1 + rnd.IntN(8) {
			size := []int{0, 1, 125, 126, 127, 300, 1<<16 - 1, 1 << 16}[rnd.IntN(8)]
			switch rnd.IntN(3) {
			case 0:
				stream = appendFrame(stream, Fin|0x2, make([]byte, size))
			case 1:
				stream = appendFrame(stream, Fin|0x9, make([]byte, min(size, 125)))
			case 2:
				stream = appendFrame(stream, 0x1, make([]byte, size))
				stream = appendFrame(stream, Fin|0xA, nil)
				stream = appendFrame(stream, 0, make([]byte, size))
				stream = appendFrame(stream, Fin, nil)
			}
			ends[len(stream)] = true
		}
		var f Frames
		for given := 0; given < len(stream); {
			n := min(1+rnd.IntN(1+rnd.IntN(200)), len(stream)-given)
			f.Pass(stream[given : given+n])
			given += n
			if got := f.Between(); got != ends[given] {
				t.Fatalf("seed %d: after %d bytes: got between two messages %t, want %t", seed, given, got, ends[given])
			}
		}
	}
}

// FuzzFrames: no bytes make the frames' state one that its table doesn't have.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5}, 3)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		var whole, parts Frames
		whole.Pass(stream)
		cut = min(max(cut, 0), len(stream))
		parts.Pass(stream[:cut])
		parts.Pass(stream[cut:])
		if whole != parts {
			t.Errorf("got %+v in two parts, %+v in one", parts, whole)
		}
		if whole.pos > whole.size || whole.pos > 0 && whole.pos == whole.size && whole.left == 0 {
			t.Errorf("got the state %+v, which is not in the table", whole)
		}
	})
}
