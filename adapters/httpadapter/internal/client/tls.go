package client

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http/httptrace"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/tlsread"
)

// This file has what is different over TLS.
//
// The callback of an idle connection reports bytes of the socket. They may be the server's farewell, or
// a part of a record, or a message to crypto/tls such as a session ticket, which is no reason to close
// the connection. Only crypto/tls can tell, so a goroutine looks, for a moment, without waiting: see
// conn.OnReadable and conn.look. crypto/tls may also have read bytes ahead. So a connection becomes idle
// only when it has nothing that it can return, and is used again only if it has no part of a record
// either: the rest might be taken for the next answer.

// settle makes the base decide whether it speaks HTTP/2, as it does with its first request, and takes
// over the decision. It may change fields of the base, so they are read only afterwards.
func (t *Transport) settle() {
	t.settled.Do(func() {
		again := t.base.Clone() // which decides, and is safe for concurrent use
		t.alpn = len(t.base.TLSNextProto) > 0
		isUsers := again.TLSNextProto != nil // the user has set the field, or has configured another client
		counts := t.base.HTTP2 != nil && t.base.HTTP2.CountError != nil
		if t.ownH2 = t.alpn && !isUsers && !counts; t.ownH2 {
			t.client = h2.NewClient(t.sharedConfig())
		}
	})
}

// speaksOnlyH2 reports whether requests of a scheme are served over HTTP/2 here and never over HTTP/1.1.
func (t *Transport) speaksOnlyH2(scheme string) bool {
	p := t.base.Protocols
	if p == nil || p.HTTP1() || !(scheme == "http" && p.UnencryptedHTTP2() || scheme == "https" && p.HTTP2()) {
		return false
	}
	t.settle()
	return t.ownH2
}

// servesTLS returns why requests over TLS are not served here. onlyH1 says that the request is for
// HTTP/1.1, even if the base speaks HTTP/2.
func (t *Transport) servesTLS(onlyH1 bool) reason {
	//lint:ignore SA1019 programs still use it
	if t.base.DialTLSContext != nil || t.base.DialTLS != nil {
		return otherDialer
	}
	t.settle()
	if !onlyH1 && t.alpn && !t.ownH2 || probeTLS() != nil {
		return otherProtocol
	}
	return served
}

// session is a connection's TLS.
type session struct {
	conn    *tls.Conn // above records
	records records
	state   tls.ConnectionState // TLS of all answers, as with net/http

	looks   sync.Mutex // held by a look
	spoiled bool       // guarded by looks: one has found bytes, or the end
}

// look reports whether nothing has come that a program could read: no byte, and no end. It doesn't wait.
// No exchange may use the connection.
func (c *conn) look() bool {
	c.tls.looks.Lock()
	defer c.tls.looks.Unlock()
	return c.lookLocked()
}

// wakeTLS reports whether a connection that was idle can be used. Its callback has been disarmed, or has
// come: then its goroutine has looked, or looks now, or leaves when it sees that the connection isn't
// idle.
func (c *conn) wakeTLS(came bool) bool {
	c.tls.looks.Lock()
	defer c.tls.looks.Unlock()
	if c.tls.spoiled || (came || hasUnread(c.nc)) && !c.lookLocked() {
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

// config returns the configuration of the host's connections.
func (h *host) config() *tls.Config {
	h.mu.Lock()
	defer h.mu.Unlock()
	cfg := h.pool.t.base.TLSClientConfig
	if h.tls != nil && h.tlsFrom == cfg {
		return h.tls
	}
	h.tls, h.tlsFrom = &tls.Config{}, cfg
	if cfg != nil {
		h.tls = cfg.Clone()
	}
	if h.tls.ServerName == "" {
		h.tls.ServerName, _, _ = net.SplitHostPort(h.server)
	}
	if h.kind&onlyH1 != 0 {
		h.tls.NextProtos = nil
	}
	return h.tls
}

// shake performs the handshake over a new connection. If it fails the connection is closed.
func (h *host) shake(ctx context.Context, l link) (*conn, error) {
	c := &conn{host: h, nc: l, tls: &session{records: records{below: l}}}
	c.tls.conn = tls.Client(c.tls.records.conn(), h.config())
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.TLSHandshakeStart != nil {
		trace.TLSHandshakeStart()
	}
	err := c.shakeInTime(ctx, h.pool.t.base.TLSHandshakeTimeout)
	if err != nil {
		l.Close() // before the hook
	} else {
		c.tls.state = c.tls.conn.ConnectionState()
	}
	if trace != nil && trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(c.tls.state, err)
	}
	return c, err
}

// shakeInTime performs the handshake, which fails if it takes longer than timeout.
func (c *conn) shakeInTime(ctx context.Context, timeout time.Duration) error {
	if timeout == 0 {
		return c.tls.conn.HandshakeContext(ctx)
	}
	end := time.Now().Add(timeout)
	_ = c.nc.SetDeadline(end)
	err := c.tls.conn.HandshakeContext(ctx)
	if err != nil && !time.Now().Before(end) {
		return errHandshakeTimeout
	}
	_ = c.nc.SetDeadline(time.Time{})
	return err
}

// tcpConn has the methods of a *net.TCPConn that don't copy. A user may want them, who has got the
// connection below TLS in a hook.
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
	below link // immutable

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

// read reads for crypto/tls. A look asks the kernel: the loop may not have reported yet what has come.
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

// probeTLS is a variable for tests.
var probeTLS = tlsread.Probe
