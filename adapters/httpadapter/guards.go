package httpadapter

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// guard is the common part of two connections in memory that net/http accepts besides its clients'. A
// program may call Shutdown, Close and SetKeepAlivesEnabled of the http.Server itself, which see only
// net/http's connections. The guards make them work for ours:
//
//	shutdownGuard  is active as long as a Serve has connections, so Shutdown waits for their requests
//	idleGuard      waits for a request, and closes our idle connections when net/http closes it
//
// No handler and no hook sees them.
type guard struct {
	call    *serveCall    // immutable
	settled chan struct{} // closed when the guard is in its place, or never will be
	once    sync.Once     // for settled
}

func newGuard(call *serveCall) guard { return guard{call: call, settled: make(chan struct{})} }

// guardConn is a guard as a connection.
type guardConn interface {
	net.Conn
	connState(state http.ConnState) // net/http's calls of the hook
}

func (g *guard) settle() { g.once.Do(func() { close(g.settled) }) }

func (g *guard) connState(http.ConnState)         {}
func (g *guard) LocalAddr() net.Addr              { return g.call.listener.Addr() }
func (g *guard) RemoteAddr() net.Addr             { return g.call.listener.Addr() }
func (g *guard) SetDeadline(time.Time) error      { return nil }
func (g *guard) SetReadDeadline(time.Time) error  { return nil }
func (g *guard) SetWriteDeadline(time.Time) error { return nil }

// shutdownGuard makes the http.Server's own Shutdown wait for the requests of our connections.
//
// net/http reads bytes that are no request, considers the connection active, and blocks in the answer.
// If another version of net/http proceeds differently, Shutdown just doesn't wait.
//
//	stage      meaning                                       leaves by
//	accepted   net/http reads noRequest; no connection is    Write: answering; Close, or the end of
//	           accepted yet                                  http.Server.Serve: closed
//	answering  net/http's Write waits, and it considers the  the call's end; Close: closed
//	           guard active
//	closed     net/http is done with it                      (final)
type shutdownGuard struct {
	guard
	answering atomic.Bool
}

// noRequest makes net/http answer at once, and not read on.
const noRequest = "?\r\n\r\n"

func (g *shutdownGuard) Read(p []byte) (int, error) { return copy(p, noRequest), nil }

// Write returns when the call has ended: none of its connections is left.
func (g *shutdownGuard) Write(p []byte) (int, error) {
	g.answering.Store(true)
	g.settle()
	<-g.call.done
	return len(p), nil
}

// Close is net/http's last call, except that the http.Server's own Close calls it earlier. It must not
// block.
func (g *shutdownGuard) Close() error {
	g.settle()
	select {
	case <-g.call.done:
	default:
		if g.answering.Load() {
			go g.call.closeServed()
		}
	}
	return nil
}

// idleGuard closes our connections that wait before the http.Server's own SetKeepAlivesEnabled(false),
// Shutdown or Close returns.
//
// Its one request is OPTIONS *, which net/http answers itself. If the answer says "Connection: close",
// keep-alives were off before. While they are off, requests make new idleGuards to find out whether they
// are on again.
//
// With DisableGeneralOptionsHandler the request would reach the handler. Then the idleGuard is silent,
// and net/http considers it idle after five seconds. If another version of net/http proceeds
// differently, the http.Server's own SetKeepAlivesEnabled has no effect here, but the Server's has.
//
//	stage      meaning                                             leaves by
//	new        net/http reads the request, or waits for one        StateIdle: idle; Close: closed
//	idle       it was answered; keep-alives may have been turned   Read: waiting; Close: closed
//	           off in the meantime
//	waiting    net/http waits for the next: keep-alives are on     Close: closed
//	closed     net/http is done with it                            (final)
type idleGuard struct {
	guard // settled when the stage is waiting or closed, or nothing is sent

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a field below changes

	// guarded by mu
	stage   idleGuardStage
	request string // the part that net/http has not read
	refused bool   // the answer says that the connection is closed
	past    bool   // the read deadline has passed, since net/http ends a Read
}

type idleGuardStage uint8

const (
	idleGuardNew idleGuardStage = iota
	idleGuardIdle
	idleGuardWaiting
	idleGuardClosed
)

func newIdleGuard(call *serveCall) *idleGuard {
	return &idleGuard{guard: newGuard(call), changed: make(chan struct{}), request: generalOptions}
}

const generalOptions = "OPTIONS * HTTP/1.1\r\nHost: percore\r\n\r\n"

// change makes a change, after which Read looks again.
func (g *idleGuard) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *idleGuard) Read(p []byte) (int, error) {
	for {
		changed, n, err := g.tryRead(p)
		if changed == nil {
			return n, err
		}
		select {
		case <-changed:
		case <-g.call.done:
			return 0, net.ErrClosed
		}
	}
}

// tryRead is Read, or returns a channel to wait for.
func (g *idleGuard) tryRead(p []byte) (changed <-chan struct{}, n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	silent := g.call.server.srv.DisableGeneralOptionsHandler
	switch {
	case g.stage == idleGuardClosed, silent && g.call.ended.Load():
		return nil, 0, net.ErrClosed
	case g.past:
		return nil, 0, os.ErrDeadlineExceeded
	case silent:
		g.settle()
	case g.request != "":
		n = copy(p, g.request)
		g.request = g.request[n:]
		return nil, n, nil
	case g.stage == idleGuardIdle:
		g.stage = idleGuardWaiting
		g.call.keepAlivesOff.Store(false)
		g.settle()
	}
	return g.changed, 0, nil
}

func (g *idleGuard) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("HTTP/1.1 200 ")) && bytes.Contains(p, []byte("\r\nConnection: close\r\n")) {
		g.change(func() { g.refused = true })
	}
	return len(p), nil
}

func (g *idleGuard) connState(state http.ConnState) {
	if state == http.StateIdle {
		g.change(func() {
			if g.stage == idleGuardNew {
				g.stage = idleGuardIdle
			}
		})
	}
}

// Close is called by net/http, which holds its lock if it closes idle connections.
func (g *idleGuard) Close() error {
	var from idleGuardStage
	g.change(func() { from, g.stage = g.stage, idleGuardClosed })
	call := g.call
	switch silent := call.server.srv.DisableGeneralOptionsHandler; {
	case from == idleGuardClosed:
		return nil
	case call.ended.Load():
		call.http1.CloseKept()
	case from != idleGuardNew, g.refused, silent:
		call.endKeepAlives()
	}
	g.settle()
	call.idleGuard.CompareAndSwap(g, nil)
	return nil
}

// SetReadDeadline obeys only a deadline in the past, with which net/http ends the Read of a handler's
// time. Any other would end the wait for the next request.
func (g *idleGuard) SetReadDeadline(t time.Time) error {
	g.change(func() { g.past = !t.IsZero() && time.Since(t) > time.Hour })
	return nil
}

func (g *idleGuard) SetDeadline(t time.Time) error { return g.SetReadDeadline(t) }

// endKeepAlives closes the connections that wait for another request. From now on answers say that their
// connections close.
func (call *serveCall) endKeepAlives() {
	call.keepAlivesOff.Store(true)
	call.http1.CloseIdle()
	go call.drainIdleHTTP2() // its hooks may want locks that net/http holds
}

// askKeepAlives finds out whether keep-alives, which were off, are on again: only net/http knows.
func (call *serveCall) askKeepAlives() {
	if call.server.keepAlivesOff.Load() {
		return
	}
	for range 2 {
		g, own := call.lookAgain()
		if g == nil {
			return
		}
		select {
		case <-g.settled:
		case <-call.done:
		}
		if own || call.server.srv.DisableGeneralOptionsHandler || !call.keepAlivesOff.Load() {
			return
		}
		// It may have asked before the program turned them on. The next one asks after that.
		call.idleGuard.CompareAndSwap(g, nil)
	}
}

// lookAgain returns the idleGuard that finds out whether keep-alives are on again, and whether it is
// new. It is nil if net/http accepts no more.
func (call *serveCall) lookAgain() (g *idleGuard, own bool) {
	g = newIdleGuard(call)
	for !call.idleGuard.CompareAndSwap(nil, g) {
		if there := call.idleGuard.Load(); there != nil {
			return there, false
		}
	}
	if !call.nethttp.push(g) {
		call.idleGuard.CompareAndSwap(g, nil)
		return nil, false
	}
	return g, true
}
