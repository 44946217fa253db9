//go:build !percore_net

package reactor

import (
	"net"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
)

// onGoroutines says that there are no loops of percore's.
const onGoroutines = false

// engine has the loops of a server. On Linux they are percore's.
type engine struct{}

// loopOf returns the loop that a connection is on.
func (*engine) loopOf(c *percore.Conn) engineLoop { return engineLoop{(*loop.Loop)(c.Loop())} }

// engineLoop is a loop. It is comparable.
type engineLoop struct{ *loop.Loop }

// timer is a [loop.Timer].
type timer = *loop.Timer

// sock is a connection's socket. Its calls don't block.
type sock struct {
	conn   *percore.Conn
	events loop.EventHandler // the connection, once it is watched
}

func newSock(c *percore.Conn) sock { return sock{conn: c} }

// claim has events go to c, which ignores them until it is open.
func (s *sock) claim(c *Conn) error {
	s.events = (*watcher)(c)
	if err := s.conn.Watch(&s.events); err != nil {
		return err
	}
	_ = s.conn.SetDeadline(time.Time{}) // of the code before, which the server's reads would fail by
	return nil
}

// watcher is a Conn as its loop sees it.
type watcher Conn

// OnEvent is called when the connection may have something to read, or room to write.
func (w *watcher) OnEvent(r loop.Readiness) {
	(*Conn)(w).onEvent(r&loop.Readable != 0, r&loop.Writable != 0)
}

// unwatch ends claim. It returns bytes that were read meanwhile: none.
func (s *sock) unwatch() (more []byte) {
	s.conn.Unwatch()
	return nil
}

// finishWrite waits for a write that is under way. There is none.
func (s *sock) finishWrite() int { return 0 }

// close closes the connection.
func (s *sock) close() error { return s.conn.Close() }

// tryRead returns 0 and nil if there is nothing to read; then an event comes when there is.
func (s *sock) tryRead(p []byte) (int, error) { return s.conn.TryRead(p) }

// tryWrite writes as much as the socket takes. If that is not all there will be an event.
func (s *sock) tryWrite(p []byte) (int, error) { return s.conn.TryWrite(p) }

// tryWriteBuffers is tryWrite of several slices.
func (s *sock) tryWriteBuffers(v net.Buffers) (int, error) {
	n, err := s.conn.TryWriteBuffers(&v)
	return int(n), err
}
