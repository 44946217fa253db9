//go:build !percore_net

package reactortls

import (
	"syscall"

	"github.com/percore/percore/adapters/reactor"
)

// onGoroutines says that a connection has a goroutine.
const onGoroutines = false

// smallBuffer makes the socket hold few bytes that the peer has not taken.
func smallBuffer(c *reactor.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // the connection has ended
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, bufferBytes)
	})
}
