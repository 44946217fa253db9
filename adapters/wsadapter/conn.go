package wsadapter

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/percore/percore"
)

// Conn is a connection of a WebSocket server's, for the library to read from: it is the net.Conn that
// it was made of, and looks at the frames that the client sends. See the package's comment.
//
// All methods are safe for concurrent use, as those of the net.Conn are.
type Conn struct {
	net.Conn // immutable

	socket socket // immutable; nil: it can't be armed

	mu sync.Mutex

	// guarded by mu
	frames  frames
	phase   phase
	started bool
	busy    bool  // another callback is armed on the socket
	left    uint8 // bytes of the marker that the library hasn't read yet
	opcode  byte  // the marker's
	passed  uint8 // how many markers in a row the Session's Read has passed over
}

// socket is a *percore.Conn, or httpadapter's around one.
type socket interface {
	SetNoWait(noWait bool) error
	NotifyReadable(h percore.ReadableHandler) error
}

// phase says whether the library may be given a marker.
//
//	phase    means                                            leaves by
//	outside  the Session's Read isn't under way               begin: reading
//	reading  it is                                            a marker, whole or in part: marked;
//	                                                          end: outside
//	marked   it has been given a marker, and since then       end: outside, and the connection may be
//	         nothing else                                     armed; bytes of the peer's: reading
type phase uint8

const (
	outside phase = iota
	reading
	marked
)

// New returns nc for a WebSocket library. The handshake is over, and the next byte that is read from nc
// is the first of a frame of the client's. It is for libraries that shake hands on a net.Conn
// (gobwas' ws.Upgrade); where the handshake is an http.Handler's use [NewUpgrade].
func New(nc net.Conn) *Conn { return &Conn{Conn: nc, socket: socketOf(nc), opcode: opText} }

// socketOf returns the connection of percore's that nc is, or is TLS above, or nil if there is none
// that can be armed. A layer that is not crypto/tls might keep bytes, or an error, for itself.
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

// NetConn returns the connection that c was made of, for its other methods. It must not be read
// from.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read is for the library: it reads as the net.Conn does, and ends the wait of a Session's Read by a
// marker.
func (c *Conn) Read(p []byte) (int, error) {
	if n := c.restOfMarker(p); n > 0 {
		return n, nil
	}
	idle := len(p) > 0 && c.idle()
	if idle && c.socket != nil && onSession() {
		n, err := c.tryRead(p)
		if !errors.Is(err, percore.ErrWouldWait) {
			c.pass(p[:n])
			return n, err
		}
		if n := c.mark(p); n > 0 {
			return n, nil
		}
	}
	if idle {
		counters.kept.Add(1)
		defer counters.kept.Add(-1)
	}
	n, err := c.Conn.Read(p)
	c.pass(p[:n])
	return n, err
}

// idle reports whether the caller is a Session's Read and between two messages.
func (c *Conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase != outside && c.frames.between()
}

// tryRead is a Read that fails with ErrWouldWait where it would wait for the peer.
func (c *Conn) tryRead(p []byte) (int, error) {
	_ = c.socket.SetNoWait(true) // or the Read says why not
	defer c.socket.SetNoWait(false)
	return c.Conn.Read(p)
}

// pass notes bytes of the peer's.
func (c *Conn) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames.pass(p)
	if c.phase == marked {
		c.phase = reading
	}
}

// markers is how many markers a Session's Read may pass over: one of each kind.
const markers = 2

// mark begins a marker, and copies into p as much of it as has room. It returns 0 if the Session's
// Read has passed over both already, or the connection can't be armed.
func (c *Conn) mark(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == marked {
		c.passed++
		c.opcode ^= opText ^ opBinary
	}
	if c.passed == markers || c.busy {
		return 0
	}
	c.phase, c.left = marked, markerBytes
	return c.copyMarkerLocked(p)
}

// restOfMarker copies bytes of a marker that was begun.
func (c *Conn) restOfMarker(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copyMarkerLocked(p)
}

// markerBytes is the size of a frame that is masked, as a client's must be, and empty.
const markerBytes = 2 + 4

func (c *Conn) copyMarkerLocked(p []byte) int {
	if c.left == 0 {
		return 0
	}
	marker := [markerBytes]byte{finBit | c.opcode, maskBit}
	n := copy(p, marker[markerBytes-c.left:])
	c.left -= uint8(n)
	return n
}

// begin notes that the Session's Read is about to be called.
func (c *Conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.passed = reading, 0
}

// end notes that it has returned, and reports whether it has returned a marker: then nothing of the
// peer's is buffered above c.
func (c *Conn) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.phase
	c.phase = outside
	return was == marked
}
