package probe

import "bufio"

// Way says how net/http waits for the next request.
type Way uint8

const (
	// Unknown is any other way: the adapter never ends net/http's Reads to park a connection.
	Unknown Way = iota

	// Once is the way used up to Go 1.27: after StateIdle net/http sets the deadline of the wait,
	// and reads into its buffer.
	Once

	// Twice sets a short deadline and reads into the buffer. When the deadline has expired net/http
	// gives an empty buffer back, sets the deadline of the wait, and reads one byte.
	Twice

	// Thrice is the way of Go 1.28. It is like Twice, but sets the deadline of the wait first.
	Thrice
)

var knownWays = []Way{Once, Twice, Thrice}

// GivesBack reports whether net/http gives its buffer back after a short deadline has expired.
func (w Way) GivesBack() bool { return w == Twice || w == Thrice }

// ReadBytes is the size of net/http's read buffer, which it makes with bufio.NewReader. While it
// waits for the next request it reads only if it has less than PeekBytes, and then into all the
// free space. So the buffer is empty if the slice is this long. If the buffer had another size, no
// slice would have this length, and nothing would be parked.
var ReadBytes = bufio.NewReader(nil).Size()

// PeekBytes is how many bytes of the next request net/http needs before it considers the connection
// active. If it gets fewer, followed by the end or an error, it closes without an answer.
const PeekBytes = 4
