package httpadapter

import (
	"sync"

	"github.com/percore/percore"
)

// unread is the memory of a connection of the fast path that has had bytes which the fast path could
// not serve at once: the bytes themselves, and how often its requests are declined. Connections whose
// requests are all plain have none.
//
// A request that is declined costs some 10 µs more than the same request on a connection that net/http
// has already. So a connection comes back at once, for its next request, as long as most of its
// requests are plain. If it does not stay on the fast path for plainMany requests, net/http keeps it
// for one request more than the one that was declined, then for three, seven, and so on up to staysMax,
// and the price is spread over these.
//
//	event                                              stays
//	declined, plainMany requests after it came back    0
//	declined before that                               2 * stays + 1, at most staysMax
//
// It is owned by the worker that has the connection, by the loop while the connection waits, and by
// net/http's goroutine. Once the connection is hijacked any goroutine may read: see conn_user.go.
type unread struct {
	mu    sync.Mutex              // guards the next two once the connection is hijacked
	ready percore.ReadableHandler // the user's callback, which is about to be called because there are bytes; nil: none

	// The bytes of a request that were read and not used: the beginning of a header, while the connection
	// waits for the rest, or a request that is declined.
	bytes []byte

	dated bool  // the deadline for the header of these was set
	plain uint8 // requests that the fast path has served since the connection came back, up to plainMany
	stays uint8 // how many requests more than the next net/http was to serve last
	left  uint8 // how many of them it has not waited for yet

	refuses uint8 // how many more reads find nothing, so that net/http does not recognise HTTP/2: see refuseHTTP2
}

const (
	plainMany = 4
	staysMax  = 63
)

// served notes a request that the fast path has served.
func (u *unread) served() {
	if u != nil && u.plain < plainMany {
		u.plain++
	}
}

// declined notes that net/http gets the connection.
func (u *unread) declined() {
	u.stays = min(2*u.stays+1, staysMax)
	if u.plain == plainMany {
		u.stays = 0
	}
	u.plain, u.left = 0, u.stays
}

// comesBack reports whether the connection is to come back, now that net/http waits for a request.
func (u *unread) comesBack() bool {
	if u.left > 0 {
		u.left--
		return false
	}
	return true
}

// idle reports whether there is nothing to remember.
func (u *unread) idle() bool { return len(u.bytes) == 0 && u.plain == plainMany && u.stays == 0 }

// hasBytes reports whether bytes were kept. u may be nil.
func (u *unread) hasBytes() bool { return u != nil && u.count() > 0 }

func (u *unread) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.bytes)
}

// read moves bytes to p. u may be nil.
func (u *unread) read(p []byte) (n int) {
	if u == nil {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n = copy(p, u.bytes)
	if u.bytes = u.bytes[n:]; len(u.bytes) == 0 {
		u.bytes = nil
	}
	return n
}

// use shows the bytes to f, if there are any, and takes away as many as it has used. It calls f without
// a lock: f may block.
func (u *unread) use(f func(p []byte) (n int)) (n int) {
	if u == nil {
		return 0
	}
	u.mu.Lock()
	p := u.bytes
	u.bytes = nil
	u.mu.Unlock()
	if len(p) == 0 {
		return 0
	}
	defer func() { // f may panic
		if n < len(p) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.bytes = p[n:]
		}
	}()
	return f(p)
}

// drop forgets the bytes of a connection that is closed: from now on reads fail.
func (u *unread) drop() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes = nil
}

// arm notes a callback, and reports false if there is one.
func (u *unread) arm(h percore.ReadableHandler) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ready != nil {
		return false
	}
	u.ready = h
	return true
}

func (u *unread) isReady() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ready != nil
}

// disarm returns the callback that was noted, or nil, and forgets it.
func (u *unread) disarm() percore.ReadableHandler {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.ready
	u.ready = nil
	return h
}

// takeUnread returns the bytes that were kept, and forgets them.
func (c *conn) takeUnread() (p []byte, dated bool) {
	u := c.unread
	if u == nil {
		return nil, false
	}
	p, dated = u.bytes, u.dated
	u.bytes, u.dated = nil, false
	if u.idle() {
		c.unread = nil
	}
	return p, dated
}

// keepUnread keeps bytes, which must be the connection's own.
func (c *conn) keepUnread(p []byte, dated bool) {
	u := c.remember()
	u.bytes, u.dated = p, dated
}

func (c *conn) remember() *unread {
	if c.unread == nil {
		c.unread = &unread{plain: plainMany}
	}
	return c.unread
}
