//go:build !linux || percore_net

package reactortls

import "github.com/percore/percore/adapters/reactor"

// onGoroutines says that a connection has a goroutine.
const onGoroutines = true

// smallBuffer is for Linux.
func smallBuffer(*reactor.Conn) {}
