package httpadapter

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/percore/percore"
)

// nethttpListener is the listener that net/http's own Serve accepts from, one for each serveCall. It has
// the guards, the connections that aren't percore's, and those that speak a protocol of net/http's.
type nethttpListener struct {
	// immutable
	call *serveCall
	wake chan struct{} // has a token if ready or closed may have changed
	told chan struct{} // has a token when a foreign connection was introduced, or never will be

	// owned by the goroutine that net/http accepts on
	introduces bool // net/http is calling the hooks for a foreign connection

	mu struct {
		sync.Mutex
		ready  []net.Conn // for Accept, oldest first
		closed bool
	}
}

func newNethttpListener(call *serveCall) *nethttpListener {
	return &nethttpListener{call: call, wake: make(chan struct{}, 1), told: make(chan struct{}, 1)}
}

func (l *nethttpListener) Accept() (net.Conn, error) {
	l.introduced()
	for {
		nc, closed := l.next()
		switch {
		case closed:
			return nil, net.ErrClosed
		case nc == nil:
			<-l.wake
			continue
		}
		l.introduces = l.isForeign(nc)
		return nc, nil
	}
}

func (l *nethttpListener) next() (nc net.Conn, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.ready) == 0 || l.call.ended.Load() {
		return nil, l.mu.closed // connections accepted before the last release are still served
	}
	nc = l.mu.ready[0]
	l.mu.ready[0] = nil
	l.mu.ready = l.mu.ready[1:]
	if len(l.mu.ready) == 0 {
		l.mu.ready = nil // a burst's array is not kept
	}
	return nc, false
}

// Close is called by net/http when it shuts down, with the server's lock held, and when it could not
// start; and when the Server is closed.
func (l *nethttpListener) Close() error {
	if !l.end() {
		return nil // it was not needed any more
	}
	call := l.call
	call.ended.Store(true)
	go call.drainHTTP2() // its hooks may want locks that net/http holds
	if g := call.idleGuard.Load(); g != nil {
		g.change(func() {}) // it may be silent
	}
	call.closeOnce.Do(func() { call.closeErr = call.listener.Close() })
	return call.closeErr
}

func (l *nethttpListener) Addr() net.Addr { return l.call.listener.Addr() }

// end ends Accept, and reports whether it hadn't been ended already.
func (l *nethttpListener) end() bool {
	l.mu.Lock()
	first := !l.mu.closed
	l.mu.closed = true
	l.mu.Unlock()
	l.signal()
	return first
}

func (l *nethttpListener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// push queues a connection for Accept. It reports false if net/http accepts no more.
func (l *nethttpListener) push(nc net.Conn) bool {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return false
	}
	l.mu.ready = append(l.mu.ready, nc)
	l.mu.Unlock()
	l.signal()
	return true
}

// drop closes the connections that net/http will not accept any more.
func (l *nethttpListener) drop() {
	l.introduced()
	l.mu.Lock()
	ready := l.mu.ready
	l.mu.ready = nil
	l.mu.Unlock()
	for _, nc := range ready {
		if l.call.server.oursOf(nc) != nil {
			l.call.dropGiven(nc)
		} else if l.isForeign(nc) {
			nc.Close()
			l.told <- struct{}{}
		}
	}
}

// isForeign reports whether a connection is neither ours nor a guard.
func (l *nethttpListener) isForeign(nc net.Conn) bool {
	_, isGuard := nc.(guardConn)
	return !isGuard && l.call.server.oursOf(nc) == nil
}

// introduce gives net/http a foreign connection, and returns when net/http has called the hooks for it:
// for one connection of the call at a time, and before Serve returns.
func (l *nethttpListener) introduce(nc net.Conn) {
	l.call.introducing.Lock()
	defer l.call.introducing.Unlock()
	if !l.push(nc) {
		nc.Close()
		return
	}
	<-l.told
}

// introduced lets introduce go on. net/http has called the hooks for a connection when it accepts the
// next, or returns.
func (l *nethttpListener) introduced() {
	if l.introduces {
		l.introduces = false
		l.told <- struct{}{}
	}
}

// describeForeign names the type of a foreign connection, over TLS with that of the one below, and says
// what to use instead of the wrapper that has made it.
func describeForeign(nc net.Conn) (name, instead string) {
	instead = "percore.ListenConfig limits connections by MaxConns, and reads PROXY headers by ProxyProtocol; " +
		"TLS is served by ServeTLS"
	tc, ok := nc.(*tls.Conn)
	if !ok {
		return fmt.Sprintf("%T", nc), instead
	}
	if _, ours := tc.NetConn().(*percore.Conn); ours {
		instead = "For TLS call ServeTLS, or Serve with a listener of tls.NewListener"
	}
	return fmt.Sprintf("%T above %T", tc, tc.NetConn()), instead
}
