package reactor

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/tlsread"
)

// A connection may have a layer, TLS, between its socket and the handler. The backlog and Loop.collected
// hold records then, and their bytes are counted. Data gets decrypted bytes.
//
// layered.writing is held while a write is admitted and all its records are made. The loop takes it to
// end the stream, so no write is lost that was admitted before. The order of locks is writing, those of
// crypto/tls, Conn.mu.

func init() {
	layer.TLS = func(h layer.Handshakes) any { return &TLS{h} }
	layer.Wrap = func(conn net.Conn, buffered []byte) net.Conn { return &lower{Conn: conn, rest: buffered} }
	layer.Of = func(conn any) *tls.Conn {
		if c := conn.(*Conn); c.isLayered {
			return c.more.layered.tls
		}
		return nil
	}
}

// layered is a connection's layer.
type layered struct {
	// immutable
	tls   *tls.Conn
	lower *lower // below tls

	writing sync.Mutex // held while a write is made
	ended   bool       // CloseWrite was called; owned by the loop

	// guarded by the connection's mu
	cut bool // nothing is sent any more
}

// lower is the connection below a *tls.Conn. crypto/tls knows only blocking reads. So on a loop lower
// fails with percore.ErrWouldWait where it would have to wait: see package tlsread. A write never
// waits: the backlog takes all records.
//
//	lower      reads and writes                leaves by
//	blocking   Conn; during a server's         Attach: on a loop
//	           handshake, between its permits
//	on a loop  the socket of on                Hijack: blocking, with the Conn that it returns
type lower struct {
	net.Conn                    // for blocking code
	on       *Conn              // whose socket it uses on a loop; nil for blocking code
	shaking  *serving.Handshake // a server's handshake under way; nil otherwise
	rest     []byte             // to read before all else
	in       framing            // of what was read
}

func (l *lower) Read(p []byte) (n int, err error) {
	switch {
	case len(l.rest) > 0:
		n = copy(p, l.rest)
		if l.rest = l.rest[n:]; len(l.rest) == 0 {
			l.rest = nil
		}
	case l.on == nil:
		n, err = l.shaking.Await(l.Conn.Read, p)
	default:
		if n, err = l.on.sock.tryRead(p); n == 0 && err == nil {
			return 0, percore.ErrWouldWait
		}
	}
	l.in.pass(p[:n])
	return n, err
}

func (l *lower) Write(p []byte) (int, error) {
	if l.on == nil {
		return l.shaking.Await(l.Conn.Write, p)
	}
	if err := (*output)(l.on).sendRecord(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close is for blocking code. On a loop the server closes the connection, even if the program, which may
// still have the *tls.Conn, closes that.
func (l *lower) Close() error {
	if l.on != nil {
		return nil
	}
	return l.Conn.Close()
}

// SetWriteDeadline is for blocking code. crypto/tls calls it in CloseWrite, too.
func (l *lower) SetWriteDeadline(t time.Time) error {
	if l.on != nil {
		return nil
	}
	return l.Conn.SetWriteDeadline(t)
}

// framing finds the places between records in a stream (RFC 8446, section 5.1).
type framing struct {
	header [5]byte
	have   int // of header
	need   int // bytes that are missing of the record's body
}

func (f *framing) pass(p []byte) {
	for len(p) > 0 {
		if f.need > 0 {
			n := min(f.need, len(p))
			f.need -= n
			p = p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		p = p[n:]
		if f.have += n; f.have == len(f.header) {
			f.have, f.need = 0, int(binary.BigEndian.Uint16(f.header[3:]))
		}
	}
}

// isBetween reports whether the last byte was the end of a record.
func (f *framing) isBetween() bool { return f.have == 0 && f.need == 0 }

// attachTLS is Attach of a *tls.Conn.
func (s *Server) attachTLS(tc *tls.Conn, with arriving) (*Conn, error) {
	l, ok := tc.NetConn().(*lower)
	switch {
	case !ok:
		return nil, fmt.Errorf("reactor: Attach needs a %T above a connection of package reactortls, not above a %T", tc, tc.NetConn())
	case !tc.ConnectionState().HandshakeComplete:
		return nil, errors.New("reactortls: Attach needs a *tls.Conn whose handshake is done")
	}
	if err := checkTLS(); err != nil {
		return nil, err
	}
	with.layer = &layered{tls: tc, lower: l}
	return s.attachAny(l.Conn, with)
}

func (c *Conn) addLayer(l *layered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLayered = true
	c.extrasLocked().layered = l
	l.lower.on, l.lower.shaking = c, nil
}

// leaveLayer returns the connection for blocking code on conn, which has more to read first.
func (c *Conn) leaveLayer(conn net.Conn, more []byte) net.Conn {
	if !c.isLayered {
		return conn
	}
	l := c.more.layered.lower
	l.Conn, l.on, l.rest = conn, nil, append(l.rest, more...)
	return c.more.layered.tls
}

// stopLayer makes writes fail before a Hijack, once those under way have made their records, and sends
// the end of the stream if CloseWrite was called.
func (c *Conn) stopLayer() {
	l := c.more.layered
	l.writing.Lock()
	defer l.writing.Unlock()
	c.mu.Lock()
	c.refusing = true
	c.mu.Unlock()
	if c.asked.Load()&askShut != 0 && !c.shut {
		c.shut, l.ended = true, true
		_ = l.tls.CloseWrite()
	}
}

// sendRecord sends a record after all that was sent before, or keeps it in the backlog.
func (o *output) sendRecord(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more.layered.cut {
		return net.ErrClosed
	}
	o.putLocked(nil, len(p), p)
	return nil
}

// readsMax is how many reads of crypto/tls make one of the layer: see tlsread.Read.
const readsMax = 32

// tryRead is sock.tryRead of bytes for the handler.
func (in *input) tryRead(p []byte) (int, error) {
	if !in.isLayered {
		return in.sock.tryRead(p)
	}
	n, _, err := tlsread.Read(in.more.layered.tls, p, readsMax)
	(*clock)(in).markPartial(n > 0)
	if n > 0 {
		return n, nil // the error comes again
	}
	return 0, err
}

// writeLayered is write for a connection with a layer.
func (o *output) writeLayered(told bool, size int, p [][]byte) (int, error) {
	l := o.more.layered
	l.writing.Lock()
	defer l.writing.Unlock()
	o.mu.Lock()
	err := o.admitLocked(size, told)
	o.mu.Unlock()
	switch {
	case err != nil:
		return 0, o.sock.opError("write", err)
	case size == 0:
		return 0, nil
	case len(p) == 1:
		return size, l.write((*Conn)(o), p[0])
	}
	whole := pool.Get(size) // so that a header is no record of its own
	defer whole.Release()
	room := whole.Bytes()[:0]
	for _, b := range p {
		room = append(room, b...)
	}
	return size, l.write((*Conn)(o), room)
}

// write makes the records of one write. It fails only if the connection ends: so does the stream, which
// may have got some of them.
func (l *layered) write(c *Conn, p []byte) error {
	_, err := l.tls.Write(p)
	if err != nil {
		c.end(askClose, err)
	}
	return err
}

// endLayer sends the end of the layer's stream. Unless now is set it does so only if nothing waits, and
// reports false if something does, or if the end itself waits.
func (c *Conn) endLayer(now bool) bool {
	l := c.more.layered
	if l.ended {
		return true
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	c.mu.Lock()
	l.ended = c.refuseLocked(now)
	c.mu.Unlock()
	if !l.ended {
		return false
	}
	_ = l.tls.CloseWrite()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now {
		(*output)(c).awaitSenderLocked()
	}
	(*output)(c).flushLocked()
	return now || c.unsent == nil
}

// cutLayerLocked drops further records: the connection is closed, or has another owner.
func (c *Conn) cutLayerLocked() {
	if c.isLayered {
		c.more.layered.cut = true
	}
}
