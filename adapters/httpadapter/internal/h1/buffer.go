package h1

import (
	"bufio"

	"github.com/percore/percore/internal/pool"
)

// turnBytes is the size of a worker's buffer, and of net/http's: it reads as many bytes at once.
var turnBytes = bufio.NewReader(nil).Size()

// releaseBuffer returns a worker's buffer to the pool. It leaves a long buffer to the garbage collector.
func releaseBuffer(buf *[]byte) {
	if buf != nil && len(*buf) == turnBytes {
		pool.PutBytes(buf)
	}
}
