package serving

import (
	"crypto/tls"
	"errors"
	"math"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/tlsread"
	"github.com/percore/percore/internal/workers"
)

// Arm lets a connection, on a loop or with such a method of its own, wait: h's OnReadable is called once
// when there is something to read, the read deadline has passed, or the connection is closed. It may be
// armed already. If that can't be waited for Arm returns the reason, and OnReadable is not called.
func Arm(c interface {
	NotifyReadable(h percore.ReadableHandler) error
}, h percore.ReadableHandler) error {
	if err := c.NotifyReadable(h); !errors.Is(err, loop.ErrArmed) {
		return err
	}
	return nil
}

// Await blocks until there is something to read, or reading fails, on a connection on a loop. It holds
// no memory for it. There may be nothing after all.
func Await(c *percore.Conn) { _, _ = c.ReadReady(noBytes, nothing) }

func noBytes() []byte { return nil }
func nothing()        {}

// Look visits the loop of a connection, for a worker that has nothing else to do: see workers.Pool.
func Look(c *percore.Conn, linger bool) { (*loop.Loop)(c.Loop()).Look(linger) }

// Socket returns the socket of a connection on a loop, if it is worth it to wait for it directly, or
// nil: see workers.Pool.
func Socket(c *percore.Conn) workers.Socket {
	if l := (*loop.Loop)(c.Loop()); l == nil || l.Descriptors() != 1 {
		return nil
	}
	if fd := seam.FD(c); fd != nil && fd.MayWaitDirectly() {
		return fd
	}
	return nil
}

// TryRead reads what is there on a connection on a loop, or on the TLS above it, without waiting,
// until p is full. tc is nil without TLS. dry says that nothing is left, and that Arm reports more.
// An error comes with the bytes before it, and again. Over TLS tlsread.Probe must have returned
// nil; crypto/tls answers some of what it reads, and may wait for the client to take that.
func TryRead(c *percore.Conn, tc *tls.Conn, p []byte) (n int, dry bool, err error) {
	if tc == nil {
		n, err = c.TryRead(p)
		return n, n < len(p), err
	}
	_ = c.SetNoWait(true) // closed if it fails
	defer c.SetNoWait(false)
	return tlsread.Read(tc, p, math.MaxInt)
}
