//go:build !percore_net

package percore

import (
	"sync"
	"sync/atomic"

	"github.com/percore/percore/internal/proxyproto"
)

// arrivals are connections that are no longer in the kernel's backlog and that Accept has not returned
// yet. An acceptor has those whose PROXY headers are awaited, and those whose headers have been read
// since; a listener has those that another process has accepted:
//
//	state      in       ends by
//	awaited    awaited  its callback: the header is whole (received), or it is to be closed
//	received   ready    Accept, which asks the user
//	adopted    ready    the same
//	accepted   neither  the user
//
// Of the callback and the listener's Close, the one that takes a connection out of awaited decides
// its fate. Close also closes those that are ready.
type arrivals struct {
	mu      sync.Mutex
	awaited map[*arrival]struct{} // guarded by mu
	ready   []*arrival            // guarded by mu; oldest first
	closed  bool                  // guarded by mu

	readyCount atomic.Int32 // len(ready), for a look without mu
}

// add adds a connection whose header is awaited, unless the listener is closed.
func (a *arrivals) add(w *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.awaited == nil {
		a.awaited = make(map[*arrival]struct{})
	}
	a.awaited[w] = struct{}{}
	return true
}

// adopt adds a connection that is ready, unless the listener is closed.
func (a *arrivals) adopt(w *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.pushLocked(w)
	return true
}

func (a *arrivals) pushLocked(w *arrival) {
	a.ready = append(a.ready, w)
	a.readyCount.Store(int32(len(a.ready)))
}

// remove takes an awaited connection out, and reports whether it was there.
func (a *arrivals) remove(w *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.awaited[w]
	delete(a.awaited, w)
	return ok
}

// received makes an awaited connection ready, and reports whether it was there.
func (a *arrivals) received(w *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.awaited[w]
	if ok {
		delete(a.awaited, w)
		a.pushLocked(w)
	}
	return ok
}

// hasReady reports whether next would find a connection.
func (a *arrivals) hasReady() bool { return a.readyCount.Load() > 0 }

// next returns the next connection that is ready, or nil.
func (a *arrivals) next() *arrival {
	if !a.hasReady() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ready) == 0 {
		return nil
	}
	w := a.ready[0]
	a.ready[0] = nil
	if a.ready = a.ready[1:]; len(a.ready) == 0 {
		a.ready = nil // a burst's array is not kept
	}
	a.readyCount.Store(int32(len(a.ready)))
	return w
}

// isEmpty reports whether there are none.
func (a *arrivals) isEmpty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.awaited) == 0 && len(a.ready) == 0
}

// close closes all connections, now that none are accepted any more.
func (a *arrivals) close() {
	a.mu.Lock()
	a.closed = true
	all := a.ready
	for w := range a.awaited {
		all = append(all, w)
	}
	a.ready, a.awaited = nil, nil
	a.readyCount.Store(0)
	a.mu.Unlock()
	for _, w := range all {
		_ = w.c.Close()
	}
}

// arrival is a connection of arrivals; as the engine's handler one whose header is awaited.
type arrival struct {
	a       *acceptor // of an adopted one: any
	c       *Conn
	options *connOptions      // of c, once Accept returns it
	header  headerReader      // while it is awaited
	client  proxyproto.Header // once it is there
	counter acceptCounter     // of connections of its kind
}

// take returns the connection for Accept if the user wants it, otherwise nil.
func (w *arrival) take() *Conn {
	l := w.a.listener
	w.c.sock.setClient(w.client)
	if l.admission.asks() && !w.admits() {
		return nil
	}
	w.c.sock.options = w.options
	l.count(w.counter)
	return w.c
}

func (w *arrival) admits() (wanted bool) {
	defer func() { // also if the user's function panics
		if !wanted {
			w.c.Close()
		}
	}()
	c := w.c
	return w.a.listener.admission.admits(addrPortOf(c.LocalAddr()), c.RemoteAddrPort())
}
