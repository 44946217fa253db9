package reactortls

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/tlsread"
)

// A *tls.Conn stands above lower, which stands above the connection. crypto/tls knows only blocking
// reads. So on a loop lower fails with percore.ErrWouldWait where it would have to wait: see package
// tlsread. A write never waits: the reactor's backlog takes all records.
//
//	lower    reads and writes               leaves by
//	blocking conn; during a server's        Attach: on a loop
//	         handshake, between its permits
//	on a     sock                           Hijack: blocking, with the conn that Hijack has
//	loop

// lower is the connection below a *tls.Conn.
type lower struct {
	conn   net.Conn     // what blocking code reads and writes
	sock   layer.Socket // on a loop; nil for blocking code
	permit layer.Permit // during a server's handshake; nil otherwise
	rest   []byte       // to read before all else

	in framing // of what was read
}

// framing finds the places between records in a stream (RFC 8446, section 5.1).
type framing struct {
	header [5]byte
	have   int // of header
	need   int // bytes that are missing of the record's body
}

// pass notes bytes of the stream.
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

// isBetween reports whether the last byte was a record's last.
func (f *framing) isBetween() bool { return f.have == 0 && f.need == 0 }

func (l *lower) Read(p []byte) (n int, err error) {
	switch {
	case len(l.rest) > 0:
		n = copy(p, l.rest)
		if l.rest = l.rest[n:]; len(l.rest) == 0 {
			l.rest = nil
		}
	case l.sock != nil:
		n, err = l.sock.TryRead(p)
		if n == 0 && err == nil {
			return 0, percore.ErrWouldWait
		}
	case l.permit != nil:
		l.permit.Wait()
		n, err = l.conn.Read(p)
		l.permit.Resume()
	default:
		n, err = l.conn.Read(p)
	}
	l.in.pass(p[:n])
	return n, err
}

func (l *lower) Write(p []byte) (int, error) {
	if l.sock == nil {
		if l.permit != nil {
			l.permit.Wait()
			defer l.permit.Resume()
		}
		return l.conn.Write(p)
	}
	if err := l.sock.Send(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close closes the connection. On a loop the reactor does that.
func (l *lower) Close() error {
	if l.sock != nil {
		return nil
	}
	return l.conn.Close()
}

func (l *lower) LocalAddr() net.Addr  { return l.conn.LocalAddr() }
func (l *lower) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// The deadlines are for blocking code: crypto/tls sets one to send an alert, too.
func (l *lower) SetDeadline(t time.Time) error {
	if l.sock != nil {
		return nil
	}
	return l.conn.SetDeadline(t)
}

func (l *lower) SetReadDeadline(t time.Time) error {
	if l.sock != nil {
		return nil
	}
	return l.conn.SetReadDeadline(t)
}

func (l *lower) SetWriteDeadline(t time.Time) error {
	if l.sock != nil {
		return nil
	}
	return l.conn.SetWriteDeadline(t)
}

// Conn implements layer.Lower.
func (l *lower) Conn() net.Conn { return l.conn }

// errNotDone is Attach's error before the handshake.
var errNotDone = errors.New("reactortls: Attach needs a *tls.Conn whose handshake is done")

// Layer implements layer.Lower.
func (l *lower) Layer(upper net.Conn) (layer.Layer, error) {
	tc, ok := upper.(*tls.Conn)
	if !ok || !tc.ConnectionState().HandshakeComplete {
		return nil, errNotDone
	}
	if err := works(); err != nil {
		return nil, err
	}
	return &session{l, tc}, nil
}

// session is the layer of a connection.
type session struct {
	lower *lower
	tls   *tls.Conn
}

// readsMax is how many reads of crypto/tls make one of the layer: see tlsread.Read.
const readsMax = 32

func (s *session) Read(p []byte) (n int, err error) {
	if n, _, err = tlsread.Read(s.tls, p, readsMax); n > 0 {
		return n, nil // the error comes again
	}
	return 0, err
}

func (s *session) IsPartial() bool { return !s.lower.in.isBetween() }

func (s *session) Write(p []byte) error {
	_, err := s.tls.Write(p)
	return err
}

func (s *session) CloseWrite() { _ = s.tls.CloseWrite() }

func (s *session) Enter(sock layer.Socket) { s.lower.sock, s.lower.permit = sock, nil }

func (s *session) Leave(conn net.Conn, unread []byte) net.Conn {
	l := s.lower
	l.conn, l.sock, l.rest = conn, nil, append(l.rest, unread...)
	return s.tls
}
