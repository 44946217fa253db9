package wsadapter

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
)

// Conn is a server's WebSocket connection, for the library to read from. It wraps a net.Conn
// and looks at the frames that the client sends: see the package's comment.
//
// All methods are safe for concurrent use, as the net.Conn's are.
type Conn struct {
	net.Conn // immutable; a link.Mover if the conversation can move

	socket socket // immutable; nil: it can't be armed

	mu sync.Mutex

	// guarded by mu
	frames link.Frames
	phase  phase
	marker markerKind
	left   uint8 // bytes of the marker that the library hasn't read yet
	passed uint8 // how many markers in a row the Session's Read has passed over
	linger lingerState
	listed bool   // in lingerers
	since  uint16 // when it was armed for the last time: see milliseconds
}

// socket is a *percore.Conn, or httpadapter's around one.
type socket interface {
	SetNoWait(noWait bool) error
	CancelOnReadable() bool
	NotifyReadable(h percore.ReadableHandler) error
}

// phase says whether the library may be given a marker.
//
//	phase      means                                            leaves by
//	unstarted  there is no Session                              Start: outside
//	outside    the Session's Read isn't under way               begin: reading
//	reading    it is                                            a marker, whole or in part: marked;
//	                                                            end: outside
//	marked     it has been given a marker, and since then       end: outside, and the connection may be
//	           nothing else                                     armed; bytes from the peer: reading
type phase uint8

const (
	unstarted phase = iota
	outside
	reading
	marked
)

// New returns a Conn on nc for a WebSocket library. The handshake must be done, and the next byte that
// is read from nc must be the first byte of a frame. New is for libraries that do the handshake
// on a net.Conn (gobwas' ws.Upgrade); in an http.Handler use [NewUpgrade].
func New(nc net.Conn) *Conn {
	if nc == nil {
		panic("wsadapter: New was called with a nil net.Conn")
	}
	c := &Conn{Conn: nc}
	if c.socket = socketOf(c.NetConn()); c.socket == nil {
		c.linger = blocking
	}
	return c
}

// socketOf returns what is armed for nc: nc itself, or the connection below a *tls.Conn. It returns nil
// if that isn't percore's or can't be armed. A layer other than crypto/tls might keep bytes, or an
// error, for itself.
func socketOf(nc net.Conn) socket {
	if t, ok := nc.(interface {
		ConnectionState() tls.ConnectionState
		NetConn() net.Conn
	}); ok {
		nc = t.NetConn()
	}
	if s, ok := nc.(socket); ok && s.SetNoWait(false) == nil {
		return s
	}
	return nil
}

// NetConn returns the connection that c wraps, for its other methods. Don't read from it.
func (c *Conn) NetConn() net.Conn {
	if m := c.mover(); m != nil {
		return m.NetConn()
	}
	return c.Conn
}

// mover returns what moves the conversation, or nil.
func (c *Conn) mover() link.Mover {
	m, _ := c.Conn.(link.Mover)
	return m
}

// Read is for the library: it reads as the net.Conn does, and ends the wait of a Session's Read with a
// marker.
func (c *Conn) Read(p []byte) (int, error) {
	n, idle, inRead, state := c.beginRead(p)
	switch {
	case n > 0:
		return n, nil
	case !idle:
		return c.read(p)
	case !inRead:
		if yes, _ := onSession(); yes { // its Handle
			return c.read(p)
		}
	case state != blocking:
		n, err := c.readSoon(p, state)
		if !errors.Is(err, percore.ErrWouldWait) {
			return n, err
		}
		if yes, json := onSession(); yes {
			if n := c.mark(p, json); n > 0 {
				return n, nil
			}
		}
	}
	counters.kept.Add(1)
	defer counters.kept.Add(-1)
	c.keep()
	return c.read(p)
}

// beginRead copies bytes of a marker that was begun into p. If there are none, it reports whether the
// caller is between two messages, whether the Session's Read is under way, and how long it may wait.
func (c *Conn) beginRead(p []byte) (n int, idle, inRead bool, state lingerState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.copyMarkerLocked(p); n > 0 {
		return n, false, false, noLinger
	}
	idle, inRead = len(p) > 0 && c.frames.Between(), c.phase >= reading
	if idle && inRead && c.linger == mayLinger {
		c.lingerLocked()
	}
	return 0, idle, inRead, c.linger
}

// readSoon is a read that fails with ErrWouldWait instead of waiting for the peer or, if the caller
// lingers, once it has waited long enough.
func (c *Conn) readSoon(p []byte, state lingerState) (int, error) {
	if state != lingering {
		_ = c.socket.SetNoWait(true) // or the Read says why not
		defer c.socket.SetNoWait(false)
	}
	return c.read(p)
}

// read reads bytes from the peer.
func (c *Conn) read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readEndedLocked()
	if n > 0 {
		c.frames.Pass(p[:n])
		if c.phase == marked {
			c.phase = reading
		}
	}
	return n, err
}

// markerKind is a sum of these bits.
type markerKind uint8

const (
	binaryMarker markerKind = 1 << iota // otherwise text
	jsonMarker                          // otherwise empty
)

// markers are the frames that end a Read. They have a mask, as a client's must, that changes nothing. A
// JSON decoder decodes null into anything. Others get an empty marker: a library that returns messages
// as readers would keep a payload, since the reader is dropped unread.
var markers = [...]string{
	0:                         "\x81\x80\x00\x00\x00\x00",
	binaryMarker:              "\x82\x80\x00\x00\x00\x00",
	jsonMarker:                "\x81\x84\x00\x00\x00\x00null",
	binaryMarker | jsonMarker: "\x82\x84\x00\x00\x00\x00null",
}

// passedMax is how many markers a Session's Read may pass over: a text and a binary one.
const passedMax = 2

// mark begins a marker and copies as much of it into p as fits. It returns 0 if the Session's Read has
// already passed over both kinds.
func (c *Conn) mark(p []byte, json bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == marked {
		c.passed++
		c.marker ^= binaryMarker
	}
	if c.passed == passedMax {
		return 0
	}
	c.marker &^= jsonMarker
	if json {
		c.marker |= jsonMarker
	}
	c.phase, c.left = marked, uint8(len(markers[c.marker]))
	return c.copyMarkerLocked(p)
}

// copyMarkerLocked copies bytes of a marker that was begun.
func (c *Conn) copyMarkerLocked(p []byte) int {
	marker := markers[c.marker]
	n := copy(p, marker[len(marker)-int(c.left):])
	c.left -= uint8(n)
	return n
}

// begin notes that the Session's Read is about to be called.
func (c *Conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.passed = reading, 0
}

// end notes that it has returned, and reports whether it has returned a marker: then nothing from the
// peer is buffered above c.
func (c *Conn) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.phase
	c.phase = outside
	if was == marked {
		c.since = milliseconds()
	}
	return was == marked
}
