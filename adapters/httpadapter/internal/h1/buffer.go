package h1

import (
	"bufio"

	"github.com/percore/percore/internal/pool"
)

// turnBytes is the size of a worker's buffer, and of net/http's: it reads as many bytes at once.
var turnBytes = bufio.NewReader(nil).Size()

// releaseBuffer gives a worker's buffer back. A long one is left to the garbage collector.
func releaseBuffer(buf *[]byte) {
	if buf != nil && len(*buf) == turnBytes {
		pool.PutBytes(buf)
	}
}
