package httpadapter

import (
	"net"
	"sync"
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
//	stage      meaning                                       leaves by
//	accepted   net/http reads noRequest; no connection is    Write: answering; Close, or the end of
//	           accepted yet                                  http.Server.Serve: closed
//	answering  net/http's Write waits, and it takes the      the call's end; Close: closed
//	           standIn for active
//	closed     net/http is done with it                      (final)
type standIn struct {
	call      *serveCall    // immutable
	settled   chan struct{} // closed when the stage accepted is over
	once      sync.Once     // for settled
	answering atomic.Bool
}

func newStandIn(call *serveCall) *standIn {
	return &standIn{call: call, settled: make(chan struct{})}
}

// await waits until the stage accepted is over. Before that a Shutdown would not wait.
func (s *standIn) await() {
	if s != nil {
		<-s.settled
	}
}

// settle ends the stage accepted.
func (s *standIn) settle() {
	if s != nil {
		s.once.Do(func() { close(s.settled) })
	}
}

// noRequest makes net/http answer at once, and not read on.
const noRequest = "?\r\n\r\n"

func (s *standIn) Read(p []byte) (int, error) { return copy(p, noRequest), nil }

// Write returns when the call has ended: none of its connections is left.
func (s *standIn) Write(p []byte) (int, error) {
	s.answering.Store(true)
	s.settle()
	<-s.call.done
	return len(p), nil
}

// Close is net/http's last call, and before that the http.Server's own Close, which closes all
// connections that net/http knows of. It must not block.
func (s *standIn) Close() error {
	s.settle()
	select {
	case <-s.call.done:
	default:
		if s.answering.Load() {
			go s.call.closeServed()
		}
	}
	return nil
}

func (s *standIn) LocalAddr() net.Addr              { return s.call.listener.Addr() }
func (s *standIn) RemoteAddr() net.Addr             { return s.call.listener.Addr() }
func (s *standIn) SetDeadline(time.Time) error      { return nil }
func (s *standIn) SetReadDeadline(time.Time) error  { return nil }
func (s *standIn) SetWriteDeadline(time.Time) error { return nil }
