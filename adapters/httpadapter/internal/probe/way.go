package probe

import "bufio"

// Way is how net/http waits for the next request.
type Way uint8

const (
	// Unknown is any other way: none of net/http's Reads is ever ended to park a connection.
	Unknown Way = iota

	// Once is the way up to Go 1.27: after StateIdle net/http sets the deadline of the wait, and
	// reads into its buffer.
	Once

	// Twice is one that sets a short deadline and reads into its buffer. When that has expired it gives an
	// empty buffer back, sets the deadline of the wait, and reads one byte.
	Twice

	// Thrice is the way of Go 1.28: the same, but first of all it sets the deadline of the wait.
	Thrice
)

var knownWays = []Way{Once, Twice, Thrice}

// GivesBack reports whether net/http gives its buffer back when a short deadline has expired.
func (w Way) GivesBack() bool { return w == Twice || w == Thrice }

// ReadBytes is the size of net/http's read buffer, which it makes with bufio.NewReader. While it waits
// for the next request it reads only if it has less than PeekBytes, into all the room there is. So the
// buffer is empty if the slice is this long. If the size were another one, no slice would have this
// length, and nothing would be parked.
var ReadBytes = bufio.NewReader(nil).Size()

// PeekBytes is how many bytes of the next request net/http needs before it considers the connection
// active. With fewer, followed by the end or an error, it closes without an answer.
const PeekBytes = 4
