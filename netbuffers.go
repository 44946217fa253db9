package percore

import (
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Buffers is [net.Buffers] with a WriteTo that also knows percore's connections. A net.Buffers can be
// converted to it, and back.
type Buffers net.Buffers

// WriteTo writes the slices of v to w, one after the other, and removes the written bytes from v
// and its slices, as net.Buffers does. If w has a method WriteBuffers, as a [Conn] has, that method
// writes all of them, with one writev(2) for up to 1024. Package net's connections also take all of
// them. Any other w gets a Write for each slice. WriteTo returns how many bytes w took, and blocks
// and fails as w does.
func (v *Buffers) WriteTo(w io.Writer) (int64, error) {
	if w == nil {
		return 0, nilArgument("Buffers.WriteTo", "io.Writer")
	}
	all := (*net.Buffers)(v)
	if c, ok := w.(interface {
		WriteBuffers(v *net.Buffers) (int64, error)
	}); ok {
		return c.WriteBuffers(all)
	}
	return all.WriteTo(w)
}

// Read reads from the slices, and removes the bytes that it has read from v.
func (v *Buffers) Read(p []byte) (int, error) { return (*net.Buffers)(v).Read(p) }

// netConn is a TCP connection with NetBuffers (see [ListenConfig]). It has the methods of a Conn,
// and one more, which net.Buffers looks for and which is private to package net. The only way to
// have that method is to embed package net's connection. So there are two halves, each with its own
// descriptor for the same socket:
//
//	half    methods                                     waits with
//	write   Write, ReadFrom, CloseWrite,                package net, the runtime's poller
//	        SetWriteDeadline, net.Buffers, options
//	read    Read, WriteTo, CloseRead, SetReadDeadline,  a Conn, its loop
//	        OnReadable, addresses
//	both    Close, SetDeadline, SyscallConn
//
// Writes are serialized, since they never use the Conn. If a later version of Go adds a method to
// net.TCPConn, it is promoted as it is: it works on the socket, but if it reads, it ignores the
// Conn's reads and their deadline.
type netConn struct {
	*tcpConn
	read *Conn
}

// tcpConn is a name for the embedded field that no other package can select.
type tcpConn = net.TCPConn

var (
	_ net.Conn      = (*netConn)(nil)
	_ io.ReaderFrom = (*netConn)(nil)
	_ io.WriterTo   = (*netConn)(nil)
	_ syscall.Conn  = (*netConn)(nil)
)

func (c *netConn) Read(b []byte) (int, error)         { return c.read.Read(b) }
func (c *netConn) WriteTo(w io.Writer) (int64, error) { return c.read.WriteTo(w) }
func (c *netConn) CloseRead() error                   { return c.read.CloseRead() }
func (c *netConn) SetReadDeadline(t time.Time) error  { return c.read.SetReadDeadline(t) }
func (c *netConn) LocalAddr() net.Addr                { return c.read.LocalAddr() }
func (c *netConn) RemoteAddr() net.Addr               { return c.read.RemoteAddr() }
func (c *netConn) RemoteAddrPort() netip.AddrPort     { return c.read.RemoteAddrPort() }
func (c *netConn) ProxyTLVs() []byte                  { return c.read.ProxyTLVs() }
func (c *netConn) TryRead(b []byte) (int, error)      { return c.read.TryRead(b) }
func (c *netConn) File() (*os.File, error)            { return c.read.File() }
func (c *netConn) TCPInfo() (TCPInfo, error)          { return c.read.TCPInfo() }

func (c *netConn) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	return c.read.ReadReady(lend, takeBack)
}

// WriteBuffers does what v.WriteTo does.
func (c *netConn) WriteBuffers(v *net.Buffers) (int64, error) {
	if v == nil {
		return c.read.WriteBuffers(nil) // which fails
	}
	return v.WriteTo(c.tcpConn)
}

// Close closes both halves, the write half first: once a read fails because of Close, writes must
// fail too, since net/http may end a handler because of the read. The write half also decides which
// of several calls of Close has closed the connection. The socket is closed with the read half.
func (c *netConn) Close() error {
	if onNet { // the two halves are one connection
		return c.read.Close()
	}
	err := c.tcpConn.Close()
	_ = c.read.Close()
	return err
}

func (c *netConn) SetDeadline(t time.Time) error {
	if err := c.read.SetReadDeadline(t); err != nil {
		return err
	}
	return c.tcpConn.SetWriteDeadline(t)
}

// OnReadable keeps c from being collected until f is called, as Conn's does.
func (c *netConn) OnReadable(f func(error)) error {
	if f == nil {
		return c.read.OnReadable(nil) // which fails
	}
	return c.read.OnReadable(func(err error) {
		f(err)
		runtime.KeepAlive(c)
	})
}

func (c *netConn) NotifyReadable(h ReadableHandler) error { return c.read.NotifyReadable(h) }
func (c *netConn) CancelOnReadable() bool                 { return c.read.CancelOnReadable() }
func (c *netConn) SetNoWait(noWait bool) error            { return c.read.SetNoWait(noWait) }

// SyscallConn returns a raw connection. Each of its methods uses one half to wait and to exclude
// other calls in the same direction.
func (c *netConn) SyscallConn() (syscall.RawConn, error) {
	write, err := c.tcpConn.SyscallConn()
	if err != nil || onNet {
		return write, err
	}
	read, err := c.read.SyscallConn()
	return netRawConn{read, write}, err
}

// netRawConn is what a netConn's SyscallConn returns.
type netRawConn struct {
	syscall.RawConn // the read half's
	write           syscall.RawConn
}

func (r netRawConn) Write(f func(fd uintptr) (done bool)) error { return r.write.Write(f) }
