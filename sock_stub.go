//go:build !linux || percore_net

package percore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/netfallback"
	"github.com/percore/percore/internal/sockaddr"
)

// onNet says that package net does the work, and has wrapped the errors.
const onNet = true

// sock is a Conn's socket: package net's connection, which does everything, including deadlines,
// and Close by the garbage collector.
type sock struct {
	// immutable
	streamConn
	tcp *net.TCPConn // the same connection, or the one in it, if it is TCP, else nil
}

// streamConn has the methods that *net.TCPConn and *net.UnixConn share.
type streamConn interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	File() (*os.File, error)
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// newConn makes a connection of package net's, which it then owns.
func newConn(nc net.Conn) *Conn {
	return &Conn{sock{nc.(streamConn), netfallback.TCP(nc)}}
}

func (s *sock) ok() bool          { return s.streamConn != nil }
func (s *sock) network() string   { return s.LocalAddr().Network() }
func (s *sock) close(*Conn) error { return s.Close() }

func (s *sock) remoteAddrPort() netip.AddrPort { return sockaddr.AddrPort(s.RemoteAddr()) }

func (s *sock) proxyTLVs() []byte {
	if c, ok := s.streamConn.(interface{ ProxyTLVs() []byte }); ok {
		return c.ProxyTLVs()
	}
	return nil
}

// errNoReadiness is OnReadable's error: with package net only a read can wait for readiness, with a
// goroutine and a buffer.
var errNoReadiness = fmt.Errorf("percore: readiness callbacks need percore's engine, which is on Linux only: %w", errors.ErrUnsupported)

func (s *sock) onReadable(*Conn, func(error)) error  { return errNoReadiness }
func (s *sock) NotifyReadable(ReadableHandler) error { return errNoReadiness }
func (s *sock) TryRead([]byte) (int, error)          { return 0, errNoReadiness }
func (s *sock) SetNoWait(bool) error                 { return errNoReadiness }
func (s *sock) CancelOnReadable() bool               { return false }
func (s *sock) Loop() *engine.Loop                   { return nil }

func (s *sock) rawConn(*Conn) (syscall.RawConn, error) { return s.SyscallConn() }

func (s *sock) setNoDelay(on bool) error   { return onTCP(s, (*net.TCPConn).SetNoDelay, on) }
func (s *sock) setLinger(sec int) error    { return onTCP(s, (*net.TCPConn).SetLinger, sec) }
func (s *sock) setKeepAlive(on bool) error { return onTCP(s, (*net.TCPConn).SetKeepAlive, on) }
func (s *sock) setKeepAlivePeriod(d time.Duration) error {
	return onTCP(s, (*net.TCPConn).SetKeepAlivePeriod, d)
}
func (s *sock) setKeepAliveConfig(config net.KeepAliveConfig) error {
	return onTCP(s, (*net.TCPConn).SetKeepAliveConfig, config)
}

// onTCP makes a call that package net has for TCP connections only.
func onTCP[T any](s *sock, set func(*net.TCPConn, T) error, value T) error {
	if s.tcp == nil {
		return s.unsupported("set")
	}
	return set(s.tcp, value)
}

func (s *sock) unsupported(op string) error {
	return &net.OpError{Op: op, Net: s.network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: errors.ErrUnsupported}
}

func (s *sock) multipathTCP() bool {
	if s.tcp == nil {
		return false
	}
	is, err := s.tcp.MultipathTCP()
	return is && err == nil
}

func (s *sock) tcpInfo() (TCPInfo, error) { return TCPInfo{}, s.unsupported("get") }

// ReadReady can't wait for readiness, so it needs the memory while it waits.
func (s *sock) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	n, err := s.Read(lend())
	if n == 0 {
		takeBack()
	}
	return n, err
}

func (s *sock) writeBuffers(v *net.Buffers) (int64, error) { return v.WriteTo(s.streamConn) }

// readFrom is package net's for TCP, which knows how to move bytes without a copy on each platform.
// A *net.UnixConn's method of that name is about packets; io.Copy with a *net.UnixConn does the
// same as here, with the same errors.
func (s *sock) readFrom(_ *Conn, r io.Reader) (int64, error) {
	if c, ok := r.(*Conn); ok && c.ok() {
		r = c.sock.netConn()
	}
	if s.tcp != nil {
		return s.tcp.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{s.streamConn}, r) // without its other methods
}

// writeTo is package net's for TCP.
func (s *sock) writeTo(_ *Conn, w io.Writer) (int64, error) {
	if c, ok := w.(*Conn); ok && c.ok() {
		w = c.sock.netConn()
	}
	if s.tcp != nil {
		return s.tcp.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{s.streamConn})
}

// netConn returns package net's connection, which package net recognizes.
func (s *sock) netConn() net.Conn { return s.streamConn }

// takeOver makes a Conn of package net's connection, which stays as it is.
func (d *Dialer) takeOver(_ string, nc net.Conn, _ bool) (*Conn, error) { return newConn(nc), nil }

func (d *Dialer) hold(string) error { return nil }
func (d *Dialer) release()          {}
