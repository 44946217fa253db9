package target

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Greeting is the length of a message to AppBroadcast that is sent back to its sender alone. So a
// client knows that its connection gets the others.
const Greeting = 1

// audience is the connections of AppBroadcast.
type audience struct {
	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

// serve sends what comes on c to all connections, until the client is done; see Greeting.
func (a *audience) serve(c net.Conn) error {
	a.join(c)
	defer a.leave(c)
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if n == Greeting {
			c.Write(buf[:n])
		} else if n > 0 {
			a.tell(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (a *audience) join(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns[c] = true
}

func (a *audience) leave(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c)
}

// tell sends p to all. A write blocks if a client doesn't read, which those of the benchmark do.
func (a *audience) tell(p []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		c.Write(p) // if this fails, the next read of c does
	}
}
