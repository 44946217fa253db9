package reactor

import (
	"io"
	"net"
	"runtime"
	"slices"
	"sync"

	"github.com/percore/percore"
)

// Detach makes the connection a blocking one: it returns it, and a copy of the bytes that were read
// and not used. Called by Data, they begin with all of p: the caller knows how many of them it has
// used. No callback comes any more, Close included, and all calls on c fail. Detach fails with a
// [net.OpError] of [net.ErrClosed] if the connection has ended.
//
// It is for the connection's loop: its callbacks, and functions of After and [Loop.Submit]. The
// connection is a *[percore.Conn]. If the peer has not taken everything that was written to c, it is
// of another type with the same methods: a goroutine sends the rest first, and writes wait for it.
//
// Functions of Go that wait still run, and their writes fail: call Detach when the last has run. Go
// fails from then on.
func (c *Conn) Detach() (conn net.Conn, buffered []byte, err error) {
	if c.phase != open || c.asked.Load()&(askClose|askEnd) != 0 {
		return nil, nil, c.opError("detach", net.ErrClosed)
	}
	l := c.loop
	switch {
	case l.fed == c:
		buffered = slices.Clone(l.feeding)
	case c.unused != nil:
		buffered = slices.Clone(c.unused.Bytes())
	}
	unsent := c.takeUnsent()
	c.stopTimeouts()
	c.phase = detached
	if l.fed != c { // or Data has it in hand
		c.dropUnused()
	}
	buffered = append(buffered, c.sock.unwatch()...)
	l.remove(c)
	l.figures.detached.Add(1)
	l.server.left()
	if unsent == nil {
		return c.sock.conn, buffered, nil
	}
	return newSendingConn(&c.sock, unsent), buffered, nil
}

// takeUnsent returns the bytes that were written and not sent, or nil, and has writes fail.
func (c *Conn) takeUnsent() *backlog {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing = true
	for c.sending { // another goroutine's call, which does not block; the backlog is in its hands
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	if c.collecting {
		c.collecting = false
		if len(c.loop.collected) > 0 {
			c.sendLocked(c.loop.collected, nil)
			c.loop.collected = c.loop.collected[:0]
		}
	}
	c.asked.Or(askClose)
	c.finished = true // Go fails from here on
	b := c.unsent
	c.unsent = nil
	if b != nil {
		b.uncount()
	}
	return b
}

// sendingConn is a connection with bytes that go before all that is written to it.
type sendingConn struct {
	*percore.Conn
	sent sync.WaitGroup // until they are sent
}

func newSendingConn(sock *sock, unsent *backlog) *sendingConn {
	s := &sendingConn{Conn: sock.conn}
	s.sent.Go(func() {
		defer unsent.release()
		unsent.drop(sock.finishWrite())
		for _, p := range unsent.parts {
			if _, err := sock.conn.Write(p.bytes); err != nil {
				return // the next Write finds it, too
			}
		}
	})
	return s
}

// Write writes once the bytes before are sent.
func (s *sendingConn) Write(p []byte) (int, error) {
	s.sent.Wait()
	return s.Conn.Write(p)
}

// ReadFrom is Write's counterpart for io.Copy.
func (s *sendingConn) ReadFrom(r io.Reader) (int64, error) {
	s.sent.Wait()
	return s.Conn.ReadFrom(r)
}

// WriteBuffers is Write of several slices.
func (s *sendingConn) WriteBuffers(v *net.Buffers) (int64, error) {
	s.sent.Wait()
	return s.Conn.WriteBuffers(v)
}

// CloseWrite ends the stream once the bytes before are sent.
func (s *sendingConn) CloseWrite() error {
	s.sent.Wait()
	return s.Conn.CloseWrite()
}
