package httpadapter

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// bellwether is a connection in memory that waits in net/http for another request, as the connections
// do that wait here, of which net/http does not know. net/http closes it when it closes idle
// connections: when a program calls SetKeepAlivesEnabled(false), Shutdown or Close of the http.Server
// itself. Then those that wait here are closed, before that call returns.
//
// Its one request is OPTIONS *, which net/http answers itself: no handler and no hook hears of it. If
// the answer says that the connection is closed, keep-alives were off before. While they are off the
// requests of the fast path go to net/http. When that waits for another request on one of their
// connections, keep-alives are on again, perhaps: a new bellwether finds out.
//
// With DisableGeneralOptionsHandler the request would reach the handler. Then the bellwether says
// nothing, and net/http takes it for idle when it is five seconds old. If net/http of another version
// proceeds in another way, its own SetKeepAlivesEnabled has no effect here, but the Server's has.
//
//	stage      meaning                                             leaves by
//	new        net/http reads the request, or waits for one        StateIdle: idle; Close: closed
//	idle       it was answered; keep-alives may have been turned   Read: waiting; Close: closed
//	           off meanwhile
//	waiting    net/http waits for the next: keep-alives are on     Close: closed
//	closed     net/http is done with it                            (final)
type bellwether struct {
	call    *serveCall    // immutable
	settled chan struct{} // closed when the stage is waiting or closed, or nothing is said
	once    sync.Once     // for settled

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, when a field below changes

	// guarded by mu
	stage   bellwetherStage
	request string // what net/http has not read of it
	refused bool   // the answer says that the connection is closed
	past    bool   // the read deadline is over, as net/http has it to end a Read
}

type bellwetherStage uint8

const (
	bellwetherNew bellwetherStage = iota
	bellwetherIdle
	bellwetherWaiting
	bellwetherClosed
)

func newBellwether(call *serveCall) *bellwether {
	return &bellwether{call: call, settled: make(chan struct{}), changed: make(chan struct{}), request: generalOptions}
}

const generalOptions = "OPTIONS * HTTP/1.1\r\nHost: percore\r\n\r\n"

// await waits until it is known whether keep-alives are on.
func (b *bellwether) await() {
	if b != nil {
		<-b.settled
	}
}

func (b *bellwether) settle() {
	if b != nil {
		b.once.Do(func() { close(b.settled) })
	}
}

// change makes a change, and has Read look at it.
func (b *bellwether) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

// Read gives net/http the request, and then waits.
func (b *bellwether) Read(p []byte) (int, error) {
	for {
		changed, n, err := b.tryRead(p)
		if changed == nil {
			return n, err
		}
		select {
		case <-changed:
		case <-b.call.done:
			return 0, net.ErrClosed
		}
	}
}

// tryRead is Read, or returns a channel to wait for.
func (b *bellwether) tryRead(p []byte) (changed <-chan struct{}, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	silent := b.call.server.srv.DisableGeneralOptionsHandler
	switch {
	case b.stage == bellwetherClosed, silent && b.call.ended.Load():
		return nil, 0, net.ErrClosed
	case b.past:
		return nil, 0, os.ErrDeadlineExceeded
	case silent:
		b.settle()
	case b.request != "":
		n = copy(p, b.request)
		b.request = b.request[n:]
		return nil, n, nil
	case b.stage == bellwetherIdle:
		b.stage = bellwetherWaiting
		b.call.keepAlivesOff.Store(false)
		b.settle()
	}
	return b.changed, 0, nil
}

// Write takes the answer.
func (b *bellwether) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("HTTP/1.1 200 ")) && bytes.Contains(p, []byte("\r\nConnection: close\r\n")) {
		b.change(func() { b.refused = true })
	}
	return len(p), nil
}

// told is net/http's ConnState.
func (b *bellwether) told(state http.ConnState) {
	if state == http.StateIdle {
		b.change(func() {
			if b.stage == bellwetherNew {
				b.stage = bellwetherIdle
			}
		})
	}
}

// Close is net/http's. If it closes idle connections it holds its lock.
func (b *bellwether) Close() error {
	var from bellwetherStage
	b.change(func() { from, b.stage = b.stage, bellwetherClosed })
	call := b.call
	switch silent := call.server.srv.DisableGeneralOptionsHandler; {
	case from == bellwetherClosed:
		return nil
	case call.ended.Load():
		for _, q := range call.queues {
			q.closeKept()
		}
	case from != bellwetherNew, b.refused, silent:
		call.endKeepAlives()
	}
	b.settle()
	call.bellwether.CompareAndSwap(b, nil)
	return nil
}

// SetReadDeadline knows a deadline in the past, by which net/http ends a Read that waits while a
// handler runs. Others would end the wait.
func (b *bellwether) SetReadDeadline(t time.Time) error {
	b.change(func() { b.past = !t.IsZero() && time.Since(t) > time.Hour })
	return nil
}

func (b *bellwether) SetDeadline(t time.Time) error    { return b.SetReadDeadline(t) }
func (b *bellwether) SetWriteDeadline(time.Time) error { return nil }
func (b *bellwether) LocalAddr() net.Addr              { return b.call.listener.Addr() }
func (b *bellwether) RemoteAddr() net.Addr             { return b.call.listener.Addr() }

// endKeepAlives has each connection that waits for another request closed, and each answer say that its
// connection is.
func (call *serveCall) endKeepAlives() {
	call.keepAlivesOff.Store(true)
	call.closeIdle()
}

// lookAgain has a new bellwether find out whether keep-alives are on again.
func (call *serveCall) lookAgain() {
	b := newBellwether(call)
	if call.bellwether.CompareAndSwap(nil, b) && !call.queues[0].push(b) {
		call.bellwether.CompareAndSwap(b, nil)
	}
}
