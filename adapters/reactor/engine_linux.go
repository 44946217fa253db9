//go:build !percore_net

package reactor

import (
	"cmp"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/zerocopy"
)

// onGoroutines says that percore has no loops.
const onGoroutines = false

// engine has the loops of a server. On Linux they are the connections' own.
type engine struct{}

type engineLoop = *loop.Loop

type timer = *loop.Timer

// sock is a connection's socket. Its calls don't block.
type sock struct {
	conn   *percore.Conn // has the addresses, the options and Close
	fd     *loop.FD      // conn's
	events loop.EventHandler
}

func (*engine) newSock(pc *percore.Conn) (sock, engineLoop, error) {
	fd := seam.FD(pc)
	if fd == nil {
		return sock{}, nil, syscall.EINVAL
	}
	return sock{conn: pc, fd: fd}, fd.Loop(), nil
}

// claim makes events go to c, which ignores them until it is open.
func (s *sock) claim(c *Conn) error {
	s.events = (*watcher)(c)
	if err := s.fd.Watch(&s.events); err != nil {
		return s.opError("attach", err)
	}
	seam.DropFinalizer(s.conn)
	_ = s.conn.SetDeadline(time.Time{}) // that of the code before would make the server's reads fail
	return nil
}

// watcher is a Conn as its loop sees it.
type watcher Conn

// OnEvent is called when the connection may have something to read, or room to write.
func (w *watcher) OnEvent(r loop.Readiness) {
	(*Conn)(w).onEvent(r&loop.Readable != 0, r&loop.Writable != 0)
}

// unwatch ends claim. The goroutine engine returns what it has read since then; here nothing is.
func (s *sock) unwatch() (more []byte) {
	s.fd.Unwatch()
	seam.RestoreFinalizer(s.conn)
	return nil
}

// finishWrite is for the goroutine engine. Here no write is under way.
func (s *sock) finishWrite() int { return 0 }

// close closes the connection. If bytes that it should have sent were dropped, it is reset.
func (s *sock) close(dropped int) error {
	if dropped > 0 {
		_ = s.conn.SetLinger(0)
	}
	return s.conn.Close()
}

// tryRead returns 0 and nil if there is nothing to read; then an event comes when there is.
func (s *sock) tryRead(p []byte) (int, error) {
	n, err := s.fd.TryRead(p)
	if err != nil && err != io.EOF {
		err = s.opError("read", err)
	}
	return n, err
}

// tryWrite writes as much as the socket takes. If that is not all, and err is nil, an event comes
// when there is room.
func (s *sock) tryWrite(p []byte) (int, error) {
	n, err := s.fd.TryWrite(p)
	if err != nil {
		err = s.opError("write", err)
	}
	return n, err
}

// tryWriteBuffers is tryWrite of several slices, which it changes.
func (s *sock) tryWriteBuffers(v net.Buffers) (n int, err error) {
	failed := s.fd.Stream().TryWrite(func(fd uintptr) (done bool) {
		var sent int64
		sent, err = zerocopy.Writev(int(fd), (*[][]byte)(&v))
		n = int(sent)
		return err != syscall.EAGAIN
	})
	if err == syscall.EAGAIN {
		err = nil
	}
	if err = cmp.Or(err, failed); err != nil {
		err = s.opError("writev", err)
	}
	return n, err
}
