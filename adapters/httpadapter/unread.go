package httpadapter

import (
	"sync"

	"github.com/percore/percore"
)

// detour is the memory of a connection of the fast path that has had bytes which the fast path could
// not serve at once: the bytes themselves, and how often its requests are net/http's. Connections whose
// requests are all plain have none.
//
// A request that is net/http's costs some 10 µs more than the same on a connection that net/http has
// already. So a connection comes back at once, for its next request, as long as most of its requests
// are plain. If it does not stay on the fast path for plainMany requests, net/http keeps it for one
// request more than the one that is handed over, then for three, seven, and so on up to staysMax, and
// the price is spread over these.
//
//	event                                                  stays
//	handed over, plainMany requests after it came back     0
//	handed over before that                                2 * stays + 1, at most staysMax
//
// It is owned by the worker that has the connection, by the loop while the connection waits, and by
// net/http's goroutine. Of a hijacked connection all goroutines of the user's may read: see held.go.
type detour struct {
	mu    sync.Mutex              // guards the next two once the connection is hijacked
	ready percore.ReadableHandler // the user's callback, which is about to be called because there are bytes; nil: none

	bytes []byte // of a request that were read and not used: the beginning of a header, while the connection waits for the rest, and what the fast path leaves to net/http
	dated bool   // the deadline for the header of these was set
	plain uint8  // requests that the fast path has served since the connection came back, up to plainMany
	stays uint8  // how many requests more than the next net/http was to serve last
	left  uint8  // how many of them it has not waited for yet

	refuses uint8 // how many more reads find nothing, so that net/http does not recognise HTTP/2: see refuseHTTP2
}

const (
	plainMany = 4
	staysMax  = 63
)

// served notes a request that the fast path has served.
func (d *detour) served() {
	if d != nil && d.plain < plainMany {
		d.plain++
	}
}

// handOver notes that net/http gets the connection.
func (d *detour) handOver() {
	d.stays = min(2*d.stays+1, staysMax)
	if d.plain == plainMany {
		d.stays = 0
	}
	d.plain, d.left = 0, d.stays
}

// comesBack reports whether the connection is to come back, now that net/http waits for a request.
func (d *detour) comesBack() bool {
	if d.left > 0 {
		d.left--
		return false
	}
	return true
}

// idle reports whether there is nothing to remember.
func (d *detour) idle() bool { return len(d.bytes) == 0 && d.plain == plainMany && d.stays == 0 }

// takeUnread returns the bytes that were kept, and forgets them.
func (c *conn) takeUnread() (unread []byte, dated bool) {
	d := c.detour
	if d == nil {
		return nil, false
	}
	unread, dated = d.bytes, d.dated
	d.bytes, d.dated = nil, false
	if d.idle() {
		c.detour = nil
	}
	return unread, dated
}

// hasUnread reports whether bytes were kept.
func (c *conn) hasUnread() bool { return c.detour != nil && c.detour.hasBytes() }

// keep keeps bytes, which must be the connection's own.
func (c *conn) keep(unread []byte, dated bool) {
	c.remember()
	c.detour.bytes, c.detour.dated = unread, dated
}

func (c *conn) remember() *detour {
	if c.detour == nil {
		c.detour = &detour{plain: plainMany}
	}
	return c.detour
}
