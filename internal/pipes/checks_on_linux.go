//go:build invariants

package pipes

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mustBeAsEmptyAsItSays panics if p does not hold exactly p.Buffered bytes.
func (p *Pipe) mustBeAsEmptyAsItSays() {
	if n, err := unix.IoctlGetInt(p.R, unix.TIOCINQ); err != nil || n != p.Buffered {
		panic(fmt.Sprintf("pipes: a pipe that should have %d bytes in it has %d (%v)", p.Buffered, n, err))
	}
}
