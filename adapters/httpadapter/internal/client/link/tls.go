package link

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/tlsread"
)

// This file has what is different over TLS.
//
// The callback of an idle connection reports bytes of the socket. They may be the server's farewell, a
// part of a record, or a message to crypto/tls such as a session ticket, which is no reason to close the
// connection. Only crypto/tls can tell, so a goroutine looks, for a moment, without waiting: see
// Conn.Look. crypto/tls may also have read ahead. So a connection becomes idle only when crypto/tls has
// nothing to return, and is used again only without a part of a record, whose rest might be taken for
// the next answer.

// session is a connection's TLS.
type session struct {
	conn    *tls.Conn // above records
	records records
	state   tls.ConnectionState // TLS of all answers, as with net/http

	looks   sync.Mutex // held by a look
	spoiled bool       // guarded by looks: one has found bytes, or the end
}

// wakeTLS is Wake for TLS. came says that the callback has come: its goroutine has looked, or looks now,
// or leaves when it sees that the connection isn't idle.
func (c *Conn) wakeTLS(came bool) bool {
	c.tls.looks.Lock()
	defer c.tls.looks.Unlock()
	if c.tls.spoiled || (came || hasUnread(c.below)) && !c.LookHeld() {
		return false
	}
	return c.tls.records.areWhole()
}

// tryRead reads until p is full or nothing is left, in crypto/tls or below.
func (s *session) tryRead(p []byte) (n int, err error) {
	s.records.looking = true
	defer func() { s.records.looking = false }()
	n, _, err = tlsread.Read(s.conn, p, math.MaxInt)
	return n, err
}

// errHandshakeTimeout has net/http's text.
var errHandshakeTimeout error = request.LimitError("net/http: TLS handshake timeout")

// Handshake starts TLS on the connection, which must be in cleartext. A timeout of 0 means none. If it
// fails, the caller closes the connection.
func (c *Conn) Handshake(ctx context.Context, config *tls.Config, timeout time.Duration) error {
	s := &session{records: records{below: c.below}}
	s.conn = tls.Client(s.records.conn(), config)
	var end time.Time // of the handshake; the zero time is never
	if timeout != 0 {
		end = time.Now().Add(timeout)
		_ = c.below.SetDeadline(end)
	}
	switch err := s.conn.HandshakeContext(ctx); {
	case err != nil && timeout != 0 && !time.Now().Before(end):
		return errHandshakeTimeout
	case err != nil:
		return err
	case timeout != 0:
		_ = c.below.SetDeadline(time.Time{})
	}
	c.tls, s.state = s, s.conn.ConnectionState()
	return nil
}

// tcpConn has the methods of a *net.TCPConn that don't copy. A hook that gets the *tls.Conn may call
// them on the connection below.
type tcpConn interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	File() (*os.File, error)
	MultipathTCP() (bool, error)
	SetKeepAlive(keepalive bool) error
	SetKeepAliveConfig(config net.KeepAliveConfig) error
	SetKeepAlivePeriod(d time.Duration) error
	SetLinger(sec int) error
	SetNoDelay(noDelay bool) error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// records follows the records that crypto/tls reads.
type records struct {
	below socket // immutable

	// owned by the reader
	looking bool   // Read fails with percore.ErrWouldWait instead of waiting
	at      uint8  // how many bytes of a header have come
	length  uint16 // what the header says so far
	left    uint16 // of a record: bytes that have not come
}

const recordHeaderBytes = 5 // type, version and, in the last two bytes, the length

// conn returns the connection below TLS.
func (r *records) conn() net.Conn {
	if c, ok := r.below.(tcpConn); ok {
		return tcpRecords{c, r}
	}
	return otherRecords{r.below, r}
}

// tcpRecords are records of a *percore.Conn.
type tcpRecords struct {
	tcpConn
	r *records
}

func (c tcpRecords) Read(p []byte) (int, error) { return c.r.read(p) }
func (c tcpRecords) NetConn() net.Conn          { return c.tcpConn }

// otherRecords are records of a *otherConn.
type otherRecords struct {
	net.Conn
	r *records
}

func (c otherRecords) Read(p []byte) (int, error) { return c.r.read(p) }
func (c otherRecords) NetConn() net.Conn          { return shown(c.r.below) }

// read reads for crypto/tls. A look asks the kernel, since the loop may not have reported yet what has
// come.
func (r *records) read(p []byte) (n int, err error) {
	if r.looking {
		n, err = readNow(r.below, p)
	} else {
		n, err = r.below.Read(p)
	}
	r.follow(p[:n])
	return n, err
}

func (r *records) follow(p []byte) {
	for len(p) > 0 {
		if r.left > 0 {
			n := min(int(r.left), len(p))
			r.left -= uint16(n)
			p = p[n:]
			continue
		}
		if r.at >= recordHeaderBytes-2 {
			r.length = r.length<<8 | uint16(p[0])
		}
		p = p[1:]
		if r.at++; r.at == recordHeaderBytes {
			r.at, r.length, r.left = 0, 0, r.length
		}
	}
}

// areWhole reports whether all records that have come are whole.
func (r *records) areWhole() bool { return r.at == 0 && r.left == 0 }
