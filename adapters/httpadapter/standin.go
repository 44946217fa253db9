package httpadapter

import (
	"net"
	"sync/atomic"
	"time"
)

// standIn is a connection in memory that stands for the requests of the fast path, of which net/http
// does not know. A program may call the http.Server's own Shutdown, which waits for the connections
// with a request under way: for the standIn it waits as long as a Serve has connections.
//
// net/http reads bytes that are no request, takes the connection for active, and answers: the answer
// blocks. No handler and no hook hears of it. If net/http of another version proceeds in another way
// Shutdown just doesn't wait.
//
//	stage      what net/http does                            leaves by
//	accepted   it reads noRequest                            Write: answering
//	answering  its Write waits, and it is taken for active   the call's end; Close: closed
//	closed     it is done                                    (final)
type standIn struct {
	call      *serveCall  // immutable
	answering atomic.Bool // set once
}

// noRequest makes net/http answer at once, and not read on.
const noRequest = "?\r\n\r\n"

func (s *standIn) Read(p []byte) (int, error) { return copy(p, noRequest), nil }

// Write returns when the call has ended: none of its connections is left.
func (s *standIn) Write(p []byte) (int, error) {
	s.answering.Store(true)
	<-s.call.done
	return len(p), nil
}

// Close is net/http's last call, and before that the http.Server's own Close, which closes all
// connections that net/http knows of. It must not block.
func (s *standIn) Close() error {
	if s.answering.Load() {
		go s.call.closeServed()
	}
	return nil
}

func (s *standIn) LocalAddr() net.Addr              { return s.call.listener.Addr() }
func (s *standIn) RemoteAddr() net.Addr             { return s.call.listener.Addr() }
func (s *standIn) SetDeadline(time.Time) error      { return nil }
func (s *standIn) SetReadDeadline(time.Time) error  { return nil }
func (s *standIn) SetWriteDeadline(time.Time) error { return nil }
