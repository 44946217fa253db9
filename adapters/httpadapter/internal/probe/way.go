package probe

import "bufio"

// Way is how net/http waits for the next request.
//
//	way      what it does after StateIdle
//	Unknown  anything: none of its Reads is ever ended to park a connection
//	Once     it sets the deadline of the wait, and reads into its buffer
//	Twice    it sets a short deadline and reads into its buffer. When that has expired it gives
//	         an empty buffer back, sets the deadline of the wait, and reads one byte
//	Thrice   the same, but first of all it sets the deadline of the wait
type Way uint8

const (
	Unknown Way = iota
	Once
	Twice
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
