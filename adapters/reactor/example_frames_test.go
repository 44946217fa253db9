package reactor_test

import (
	"encoding/binary"
	"fmt"

	"github.com/percore/percore/adapters/reactor"
)

// frames answers each message, four bytes of length and as many bytes, with the same in reverse.
type frames struct{}

// frameMax is the longest message that is taken. ReadBufferMax must have room for it.
const frameMax = 64 << 10

func (frames) Open(*reactor.Conn)         {}
func (frames) Close(*reactor.Conn, error) {}

func (frames) Data(c *reactor.Conn, p []byte) (used int) {
	for len(p)-used >= 4 {
		length := binary.BigEndian.Uint32(p[used:])
		if length > frameMax {
			c.Abort()
			return used
		}
		end := used + 4 + int(length)
		if len(p) < end {
			break // it comes again, with more
		}
		reverse(p[used+4 : end]) // p is ours to change until Data returns
		c.Write(p[used:end])
		used = end
	}
	return used
}

func reverse(p []byte) {
	for i, j := 0, len(p)-1; i < j; i, j = i+1, j-1 {
		p[i], p[j] = p[j], p[i]
	}
}

// Messages with their length in front: a call of Data takes those that are there whole.
func ExampleHandler() {
	answer, err := converse(frames{}, "\x00\x00\x00\x05hello\x00\x00\x00\x03abc", reactor.Config{})
	fmt.Printf("%q %v\n", answer, err)
	// Output: "\x00\x00\x00\x05olleh\x00\x00\x00\x03cba" <nil>
}
