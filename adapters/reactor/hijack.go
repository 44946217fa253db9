package reactor

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
)

// Hijack turns the connection into a blocking one, as http.Hijacker does. It returns the connection,
// and a copy of the bytes that were read and not used. If Data calls Hijack, these begin with all of
// p: the caller knows how many of them it has used. Callbacks, including Close, aren't called any
// more, and all calls on c fail. Hijack fails with a [net.OpError] of [net.ErrClosed] if the
// connection has ended.
//
// Call it only on the connection's loop: in its callbacks, and in functions of AfterFunc and
// [Loop.Submit]. The result is a *[percore.Conn]. If the peer has not taken everything written to c,
// it is of another type with the same methods, which Attach also takes: a goroutine sends the rest
// first, and writes wait for that, at most until the write deadline. Close drops the rest and resets
// the connection; call CloseWrite first to wait until the rest is sent. If c.CloseWrite was called and
// waits for the rest, it still happens.
//
// Waiting functions of Go still run, and their writes fail, so call Hijack when the last one has run.
// From then on Go fails. For functions of GoContext the connection has ended, with net.ErrClosed.
func (c *Conn) Hijack() (conn net.Conn, buffered []byte, err error) {
	if c.phase != open || c.asked.Load()&(askClose|askEnd) != 0 {
		return nil, nil, c.sock.opError("hijack", net.ErrClosed)
	}
	l := c.loop
	l.engine.Retain() // or the group might end before the callback has returned
	l.engine.Submit(l.engine.Release)
	switch {
	case l.fed == c:
		buffered = slices.Clone(l.feeding)
	case c.unused != nil:
		buffered = slices.Clone(c.unused.Bytes())
	}
	if c.isLayered {
		c.stopLayer()
	}
	unsent, ok := c.takeUnsent()
	if !ok {
		return nil, nil, c.sock.opError("hijack", net.ErrClosed)
	}
	ends := c.asked.Load()&askShut != 0 && !c.shut
	(*clock)(c).stop()
	c.phase = hijacked
	if l.fed != c { // or Data has it in hand
		(*input)(c).drop()
	}
	more := c.sock.unwatch()
	if !c.isLayered {
		buffered = append(buffered, more...)
	}
	l.remove(c)
	l.counts.Add(countHijacked, 1)
	l.server.left()
	if unsent == nil {
		if ends {
			_ = c.sock.conn.CloseWrite() // fails if the connection is reset, which reads and writes find
		}
		return c.leaveLayer(c.sock.conn, more), buffered, nil
	}
	s := &sendingConn{Conn: c.sock.conn, sock: &c.sock}
	s.start(unsent, ends)
	return c.leaveLayer(s, more), buffered, nil
}

// takeUnsent makes writes fail, and returns the bytes that were not sent, or nil. It reports false if
// the connection was closed, or sending has failed.
func (c *Conn) takeUnsent() (b *backlog, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing = true
	(*output)(c).awaitSenderLocked() // the backlog is in its hands
	if c.collecting {
		(*output)(c).sendCollectedLocked()
	}
	if c.asked.Or(askClose)&askClose != 0 {
		return nil, false
	}
	c.finished = true // Go fails from here on
	(*functions)(c).lostLocked(net.ErrClosed, false)
	c.cutLayerLocked()
	b, c.unsent = c.unsent, nil
	if b != nil {
		b.uncount()
	}
	return b, true
}

// sendingConn is a connection with bytes, the rest, that must be sent before anything written to it.
//
//	rest  err  meaning                         leaves by
//	some  nil  the first to come sends it: a   the peer takes all: none; the write deadline passes:
//	           goroutine, or a write           the next write goes on; another error: lost; Attach:
//	                                           none
//	none  nil  as any connection               (final, unless Attach fails)
//	none  set  lost: writes fail               (final)
type sendingConn struct {
	*percore.Conn
	sock *sock

	behind atomic.Bool // the rest is not sent yet, or lost; written with mu held

	mu struct {
		sync.Mutex // held while the rest is sent
		rest       *backlog
		ends       bool // our stream ends with the rest
		err        error
	}

	deadline struct {
		sync.Mutex
		write time.Time // as the user has set it
	}
}

// start begins a goroutine that sends the rest.
func (s *sendingConn) start(rest *backlog, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rest, s.mu.ends = rest, ends
	s.behind.Store(true)
	go s.sendRest()
}

// sendRest sends the rest, as Write does.
func (s *sendingConn) sendRest() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.rest == nil {
		return s.mu.err
	}
	rest := s.mu.rest
	rest.drop(s.sock.finishWrite())
	for rest.bytes > 0 {
		n, err := s.Conn.Write(rest.parts[0].bytes)
		rest.drop(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err != nil {
			s.mu.err = err
			break
		}
	}
	s.mu.rest = nil
	s.behind.Store(s.mu.err != nil)
	rest.release()
	if s.mu.ends && s.mu.err == nil {
		s.mu.ends = false
		return s.Conn.CloseWrite()
	}
	return s.mu.err
}

// attach gives the connection to a server, with the rest.
func (s *sendingConn) attach(to *Server, with arriving) (*Conn, error) {
	_ = s.Conn.SetWriteDeadline(monotime.LongAgo) // ends the goroutine's write
	s.mu.Lock()
	rest, ends, err := s.mu.rest, s.mu.ends, s.mu.err
	unsent := rest
	if rest != nil {
		if rest.drop(s.sock.finishWrite()); rest.bytes == 0 {
			unsent = nil
		}
	}
	s.mu.rest, s.mu.ends = nil, false
	s.mu.Unlock()
	s.deadline.Lock()
	_ = s.Conn.SetWriteDeadline(s.deadline.write)
	s.deadline.Unlock()
	var c *Conn
	if err == nil {
		with.unsent, with.ends = unsent, ends
		c, err = to.attachOrFail(s.Conn, with)
	}
	switch {
	case rest == nil:
	case err != nil:
		s.start(rest, ends) // also if all was sent: then our stream may have to end
	case unsent == nil:
		rest.release()
	}
	return c, err
}

// Read also fails if the peer has reset the connection while the rest was sent; so do the other
// methods that read. The kernel reports a reset only once: reads would find the end of a complete
// stream.
func (s *sendingConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, s.readError(err)
}

// readError returns err, or the error of a reset while the rest was sent.
func (s *sendingConn) readError(err error) error {
	if err != io.EOF || !s.behind.Load() || s.Conn.CloseRead() == nil { // at the end it fails after a reset only
		return err
	}
	if sent := s.sendRest(); sent != nil && !errors.Is(sent, os.ErrDeadlineExceeded) { // it has failed, or does at once
		return sent
	}
	return err
}

func (s *sendingConn) TryRead(p []byte) (int, error) {
	n, err := s.Conn.TryRead(p)
	return n, s.readError(err)
}

func (s *sendingConn) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	n, err := s.Conn.ReadReady(lend, takeBack)
	return n, s.readError(err)
}

func (s *sendingConn) WriteTo(w io.Writer) (int64, error) {
	n, err := s.Conn.WriteTo(w)
	if err == nil {
		if err = s.readError(io.EOF); err == io.EOF {
			err = nil
		}
	}
	return n, err
}

// Write waits until the rest is sent; so do the other methods that write, and CloseWrite.
func (s *sendingConn) Write(p []byte) (int, error) {
	if err := s.sendRest(); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

func (s *sendingConn) ReadFrom(r io.Reader) (int64, error) {
	if err := s.sendRest(); err != nil {
		return 0, err
	}
	return s.Conn.ReadFrom(r)
}

func (s *sendingConn) WriteBuffers(v *net.Buffers) (int64, error) {
	if err := s.sendRest(); err != nil {
		return 0, err
	}
	return s.Conn.WriteBuffers(v)
}

func (s *sendingConn) CloseWrite() error {
	if err := s.sendRest(); err != nil {
		return err
	}
	return s.Conn.CloseWrite()
}

// errSending is the error of a call that would overtake the bytes before, and does not wait.
var errSending = errors.New("reactor: bytes that were written before Hijack are still being sent: Write waits until they are")

// File fails, and does not wait, until the bytes before are sent. It also fails if they were lost.
// Otherwise another owner of the file would write between them, or after a gap.
func (s *sendingConn) File() (*os.File, error) {
	if s.behind.Load() {
		if err := s.sendingError(); err != nil {
			return nil, err
		}
	}
	return s.Conn.File()
}

func (s *sendingConn) sendingError() error {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		if s.mu.rest == nil {
			return s.mu.err
		}
	}
	return s.sock.opError("file", errSending)
}

// SyscallConn returns a raw connection whose Write waits until the bytes before are sent.
func (s *sendingConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.Conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return sendingRawConn{raw, s}, nil
}

type sendingRawConn struct {
	syscall.RawConn
	conn *sendingConn
}

func (r sendingRawConn) Write(f func(fd uintptr) (done bool)) error {
	if err := r.conn.sendRest(); err != nil {
		return err
	}
	return r.RawConn.Write(f)
}

// Close closes the connection, and drops the bytes before: it is reset then, as by Conn.Abort.
func (s *sendingConn) Close() error {
	if s.behind.Load() {
		_ = s.Conn.SetLinger(0)
	}
	err := s.Conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.rest != nil {
		s.mu.rest.release()
		s.mu.rest = nil // writes fail since the connection is closed
	}
	return err
}

func (s *sendingConn) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// SetWriteDeadline sets the deadline of writes, and of the bytes before.
func (s *sendingConn) SetWriteDeadline(t time.Time) error {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.deadline.write = t
	return s.Conn.SetWriteDeadline(t)
}
