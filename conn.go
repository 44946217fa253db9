package percore

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/loop"
)

// Conn is a connection accepted by a [Listener] or made by a [Dialer]. It implements [net.Conn] and
// has all methods of *net.TCPConn, with the same semantics, so that libraries find the interfaces
// that they look for. On a unix socket the methods that set TCP options fail with the kernel's error.
//
// All methods are safe for concurrent use. Reads don't hold up writes, and the bytes of one Write are
// not interleaved with those of another.
//
// A Conn that becomes unreachable is closed by the garbage collector.
type Conn struct {
	sock sock
}

// Lock in the interfaces that servers and libraries look for.
var (
	_ net.Conn      = (*Conn)(nil)
	_ io.ReaderFrom = (*Conn)(nil)
	_ io.WriterTo   = (*Conn)(nil)
	_ syscall.Conn  = (*Conn)(nil)
)

func (c *Conn) ok() bool { return c != nil && c.sock.ok() }

// Read reads up to len(b) bytes into b, which it does not keep. It blocks until there is at least one
// byte, the stream ends (0, [io.EOF]), reading fails, or the read deadline passes
// ([os.ErrDeadlineExceeded]). With an empty b it returns at once.
func (c *Conn) Read(b []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.sock.Read(b)
	if err == ErrWouldWait {
		return n, err
	}
	return n, c.done("read", err)
}

// Write writes all of b, which it does not keep, and blocks until the kernel has taken it. If it
// fails, for example because the write deadline passes, it returns how much the kernel has taken.
func (c *Conn) Write(b []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.sock.Write(b)
	return n, c.done("write", err)
}

// ReadFrom copies from r to the connection until r ends or one of the two fails, and returns how
// many bytes the connection took. It blocks as Write and r do, until the write deadline passes, and
// r's own if it has one. It implements [io.ReaderFrom].
//
// If r is an *os.File, a *net.TCPConn, a *net.UnixConn or a *Conn, or one of these in an
// *[io.LimitedReader], the kernel moves the bytes itself if it can (sendfile(2), splice(2); see
// package zerocopy), and the count, the file's offset and the limit are as usual. io.Copy calls
// ReadFrom. Any other r reads into memory of this call, at most 32 KiB, which is lent to nothing
// else.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if r == nil {
		return 0, c.opError("readfrom", nilArgument("ReadFrom", "io.Reader"))
	}
	n, err := c.sock.readFrom(c, r)
	runtime.KeepAlive(c)
	return n, err
}

// WriteTo copies from the connection to w until the stream ends or one of the two fails, and returns
// how many bytes w took. It blocks as Read and w do. It implements [io.WriterTo]. While it waits for
// the peer it holds no memory; the memory that is passed to w is lent to nothing else. If w is one of
// the types that ReadFrom knows, the kernel moves the bytes itself; if w then fails, up to a megabyte
// that was taken from the connection is lost, while a copy through a buffer loses 32 KiB.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if w == nil {
		return 0, c.opError("writeto", nilArgument("WriteTo", "io.Writer"))
	}
	n, err := c.sock.writeTo(c, w)
	runtime.KeepAlive(c)
	return n, err
}

// ReadReady is Read into memory that it asks for only once there is something to read. lend returns
// that memory, and the bytes read are at its start. ReadReady calls takeBack if nothing was read
// into the memory that lend returned last: there was nothing to read after all, and ReadReady waits
// again; the stream has ended; or reading failed. So the caller has memory to look after exactly if
// ReadReady returns n > 0.
//
// Both functions run on the caller's goroutine, before ReadReady returns, and must not read from c.
// If lend returns an empty slice, ReadReady returns 0 and nil. lend may block: Close does not wait
// for it, and ReadReady then calls takeBack and fails.
//
// Off Linux lend is called first, since package net can't wait without memory.
func (c *Conn) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if lend == nil || takeBack == nil {
		return 0, c.opError("read", nilArgument("ReadReady", "function"))
	}
	n, err := c.sock.ReadReady(lend, takeBack)
	return n, c.done("read", err)
}

// TryRead is Read for callers that wait with [Conn.NotifyReadable] or [Conn.OnReadable]: it does not
// block. It returns 0 and nil if there is nothing to read; a callback will come when that changes.
// It may wait for a moment while another read is running.
//
// Off Linux it fails with an error that wraps [errors.ErrUnsupported].
func (c *Conn) TryRead(b []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.sock.TryRead(b)
	return n, c.done("read", err)
}

// ErrWouldWait is the error of reads that find nothing after [Conn.SetNoWait]. It is a [net.Error]
// that is temporary and no timeout.
var ErrWouldWait error = engine.ErrWouldWait

// SetNoWait sets whether reads that find nothing to read wait. With true they fail with
// [ErrWouldWait], or an error that wraps it, and so does a read that is already waiting; with
// false, the default, they wait.
//
// It is for a caller that must know whether a reader above the connection, such as a crypto/tls.Conn
// or a bufio.Reader, has bytes buffered, before it arms a callback with [Conn.OnReadable]: if a read
// of that reader fails with ErrWouldWait it has reached the connection, so nothing is buffered that
// could be returned. crypto/tls and bufio can read on afterwards as if nothing had happened. No
// other goroutine may read at the same time: its read would fail as well.
//
// Off Linux it fails with an error that wraps [errors.ErrUnsupported].
func (c *Conn) SetNoWait(noWait bool) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.doneHere("set", c.sock.SetNoWait(noWait))
}

// WriteBuffers writes the slices of v one after the other, like one Write of all of them, without
// copying them into one: the kernel takes up to 1024 at a time (writev(2)). It removes the written
// bytes from v and its slices, as v.WriteTo does, and keeps nothing; the bytes themselves are not
// changed. If it fails it returns how many bytes the kernel has taken.
//
// v.WriteTo(c) works too, but writes each slice by itself: the interface that lets a connection take
// all of them is private to package net.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	if v == nil {
		return 0, c.opError("writev", nilArgument("WriteBuffers", "*net.Buffers"))
	}
	n, err := c.sock.writeBuffers(v)
	return n, c.done("writev", err)
}

// Close closes the connection. Reads and writes that are blocked, and all later calls, fail with
// [net.ErrClosed]. Data that was written is still sent, unless SetLinger says otherwise.
func (c *Conn) Close() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	err := c.sock.close(c)
	if err != nil {
		err = c.opError("close", err) // without a second layer, as package net's
	}
	runtime.KeepAlive(c)
	return err
}

// CloseRead shuts down the reading side of the connection.
func (c *Conn) CloseRead() error { return c.setting("close", (*sock).CloseRead) }

// CloseWrite shuts down the writing side of the connection: the peer reads the end of the stream.
func (c *Conn) CloseWrite() error { return c.setting("close", (*sock).CloseWrite) }

// LocalAddr returns the local address. All callers share it, so do not change it.
func (c *Conn) LocalAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	a := c.sock.LocalAddr()
	runtime.KeepAlive(c)
	return a
}

// RemoteAddr returns the peer's address. All callers share it, so do not change it.
func (c *Conn) RemoteAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	a := c.sock.RemoteAddr()
	runtime.KeepAlive(c)
	return a
}

// RemoteAddrPort returns the peer's address as a value, without the allocation that RemoteAddr may
// need. It is an IPv4 address if RemoteAddr prints one. It is the zero AddrPort if the connection
// is not TCP, or the address is not known.
func (c *Conn) RemoteAddrPort() netip.AddrPort {
	if !c.ok() {
		return netip.AddrPort{}
	}
	return c.sock.remoteAddrPort()
}

// SetDeadline sets the read and the write deadline. It costs neither an allocation nor a system call.
//
// After the deadline all calls, including blocked ones, fail with an error that wraps
// [os.ErrDeadlineExceeded]: never earlier, and at most a few milliseconds later. A time in the past
// wakes a blocked call at once. The zero time means that calls wait without limit. A deadline can be
// moved at any time, even after it has passed.
func (c *Conn) SetDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.doneHere("set", c.sock.SetDeadline(t))
}

// SetReadDeadline sets the deadline of reads; see SetDeadline.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.doneHere("set", c.sock.SetReadDeadline(t))
}

// SetWriteDeadline sets the deadline of writes; see SetDeadline. A write that times out may have
// written some of the data.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.doneHere("set", c.sock.SetWriteDeadline(t))
}

// OnReadable calls f once: with nil when a read may find data, the end of the stream or an error; with
// [os.ErrDeadlineExceeded] when the read deadline passes; or with [net.ErrClosed] when the connection
// is closed, whichever comes first. Until then the connection holds no goroutine and no buffer, only f.
//
// f runs on a loop's goroutine, which many connections share: it must not block, and must not change
// the goroutine's profile labels or lock it to its thread. Typically it passes the connection to a
// goroutine of a pool. f is never called from within OnReadable. A nil may be spurious; then a read
// blocks as usual. f may arm the callback again. While it is armed the connection is not garbage. The
// loop's goroutine is in no bubble of testing/synctest: f must not use channels and timers that were
// made in one.
//
// f is called for bytes that are in the kernel, not for bytes that a reader above c has already
// taken and buffered. Two messages may arrive together: if the reader takes both and returns the
// first, and the callback is then armed, f is not called until the peer sends more, and the second
// message waits, forever if the peer waits for the answer. So read until nothing is buffered before
// you arm the callback ([bufio.Reader.Buffered]; see the example). Some readers, such as
// crypto/tls, don't tell how much they have buffered: use [Conn.SetNoWait] with them. For WebSocket
// libraries there is package wsadapter.
//
// Only one callback can be armed at a time. If the connection is closed or past its read deadline
// OnReadable fails and does not call f. Off Linux it always fails, with an error that wraps
// [errors.ErrUnsupported].
func (c *Conn) OnReadable(f func(error)) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if f == nil { // or the loop would crash, later
		return c.localOpError("set", nilArgument("OnReadable", "function"))
	}
	return c.doneHere("set", c.sock.onReadable(c, f))
}

// ReadableHandler is the handler for [Conn.NotifyReadable].
type ReadableHandler interface {
	// OnReadable runs on a loop's goroutine and must not block.
	OnReadable(err error)
}

// NotifyReadable is OnReadable for programs with many waiting connections: it calls h.OnReadable
// once, on a loop's goroutine, and fails as OnReadable does. It costs no memory if h is an object
// that exists anyway. To save more, the connection forgets its addresses, and looks them up again
// when they are asked for; they are equal, but not the same objects. h must refer to the Conn: a
// waiting Conn that nothing else refers to is garbage, and is closed.
func (c *Conn) NotifyReadable(h ReadableHandler) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if h == nil {
		return c.localOpError("set", nilArgument("NotifyReadable", "ReadableHandler"))
	}
	return c.doneHere("set", c.sock.NotifyReadable(h))
}

// CancelOnReadable disarms the callback. It reports false if no callback is armed: it was called, is
// being called, or was never armed.
func (c *Conn) CancelOnReadable() bool {
	if !c.ok() {
		return false
	}
	cancelled := c.sock.CancelOnReadable()
	runtime.KeepAlive(c)
	return cancelled
}

// Loop returns the loop that the connection is on, for code that runs there. It is nil off Linux.
func (c *Conn) Loop() *loop.Loop {
	if !c.ok() {
		return nil
	}
	return (*loop.Loop)(c.sock.Loop())
}

// SyscallConn returns a raw connection whose Read and Write wait for readiness on this connection's
// loop. The function must not close the descriptor, nor keep it after it returns. After each call
// percore checks whether the socket is still a plain one. If a short read no longer means that
// nothing is left (TCP_ULP, SO_RCVLOWAT), later reads ask the kernel each time, as package net does.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	return c.sock.rawConn(c)
}

// File returns a copy of the connection as a file, with a descriptor of its own that the caller must
// close. Closing one does not affect the other.
func (c *Conn) File() (*os.File, error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	f, err := c.sock.File()
	return f, c.done("file", err)
}

// SetNoDelay turns TCP_NODELAY on or off: if it is on, the default, data is sent as soon as it is
// written; otherwise it may wait for more.
func (c *Conn) SetNoDelay(noDelay bool) error {
	return c.setting("set", func(s *sock) error { return s.setNoDelay(noDelay) })
}

// SetLinger sets what Close does with data that is not sent or not acknowledged yet. Below 0 (the
// default) it is sent in the background; with 0 it is discarded and the peer's connection is reset;
// above 0 Close may block for up to sec seconds (socket(7), SO_LINGER).
func (c *Conn) SetLinger(sec int) error {
	return c.setting("set", func(s *sock) error { return s.setLinger(sec) })
}

// SetKeepAlive turns keep-alive probes on (the listener's default) or off.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return c.setting("set", func(s *sock) error { return s.setKeepAlive(keepalive) })
}

// SetKeepAlivePeriod sets how long the connection must be idle before the first probe, rounded up to
// seconds. 0 means 15 seconds, a negative value changes nothing.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return c.setting("set", func(s *sock) error { return s.setKeepAlivePeriod(d) })
}

// SetKeepAliveConfig sets all of the keep-alive parameters.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.setting("set", func(s *sock) error { return s.setKeepAliveConfig(config) })
}

// SetReadBuffer sets the size of the kernel's receive buffer in bytes (socket(7), SO_RCVBUF; the
// kernel doubles it).
func (c *Conn) SetReadBuffer(bytes int) error {
	return c.localSetting(func(s *sock) error { return s.SetReadBuffer(bytes) })
}

// SetWriteBuffer sets the size of the kernel's send buffer in bytes (socket(7), SO_SNDBUF; the kernel
// doubles it).
func (c *Conn) SetWriteBuffer(bytes int) error {
	return c.localSetting(func(s *sock) error { return s.SetWriteBuffer(bytes) })
}

// MultipathTCP reports whether the connection uses Multipath TCP (RFC 8684).
func (c *Conn) MultipathTCP() (bool, error) {
	if !c.ok() {
		return false, syscall.EINVAL
	}
	is := c.sock.multipathTCP()
	runtime.KeepAlive(c)
	return is, nil
}

// A TCPInfo is what the kernel knows about a TCP connection (tcp(7), TCP_INFO). A field is 0 if the
// kernel has not measured it, or is too old: the number behind a field is the first Linux version
// that has it.
type TCPInfo struct {
	RTT    time.Duration // the round trip, smoothed
	RTTVar time.Duration // how much the round trip varies
	MinRTT time.Duration // the shortest of the last minutes; 4.6
	RTO    time.Duration // unacknowledged bytes are sent again after it

	DeliveryRate uint64 // bytes per second that the peer has got lately; 4.9

	SegmentBytes int    // length of the segments that are sent
	Window       int    // segments that may be on their way
	Unacked      int    // segments that are on their way
	Lost         int    // of these, segments that seem to be lost
	NotSent      int    // bytes that were written and not sent yet; 4.6
	BytesAcked   uint64 // by the peer; 4.1

	Sent          uint64 // segments with bytes that were sent, including those sent again; 4.6
	Retransmitted uint64 // segments that were sent again
	Spurious      uint64 // of these, segments that the peer had already; 4.19
	BytesReceived uint64 // 4.1
}

// TCPInfo asks the kernel what it knows about the connection, with a system call that doesn't block.
// It fails for unix sockets, and with errors.ErrUnsupported off Linux and where package net serves.
func (c *Conn) TCPInfo() (TCPInfo, error) {
	if !c.ok() {
		return TCPInfo{}, syscall.EINVAL
	}
	info, err := c.sock.tcpInfo()
	return info, c.doneHere("get", err)
}

// setting makes a call whose error names both ends.
func (c *Conn) setting(op string, set func(*sock) error) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.done(op, set(&c.sock))
}

// localSetting makes a call whose error names the local end only: package net makes that
// difference, and so do we.
func (c *Conn) localSetting(set func(*sock) error) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.doneHere("set", set(&c.sock))
}

// done ends a call of one of the socket's methods; until then c must not be collected. It adds the
// second and third layers to an error, except to io.EOF. op is also the name of the system call, unless
// the error has one already.
func (c *Conn) done(op string, err error) error {
	if err != nil && err != io.EOF {
		err = c.opError(op, syscallError(op, err))
	}
	runtime.KeepAlive(c)
	return err
}

// doneHere is done for operations that concern this end only.
func (c *Conn) doneHere(op string, err error) error {
	if err != nil {
		err = c.localOpError(op, err)
	}
	runtime.KeepAlive(c)
	return err
}

// syscallError adds the second layer of an error: to an errno the name of the system call. It
// returns other errors as they are.
func syscallError(name string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(name, errno)
	}
	return err
}

// opError adds the third layer of an error, the operation and the addresses, to the errno and the
// name of the system call.
func (c *Conn) opError(op string, err error) error {
	if onNet {
		return err // package net has wrapped it
	}
	return &net.OpError{Op: op, Net: c.sock.network(), Source: c.sock.LocalAddr(), Addr: c.sock.RemoteAddr(), Err: err}
}

// localOpError is opError for operations that concern this end only.
func (c *Conn) localOpError(op string, err error) error {
	if onNet {
		return err
	}
	return &net.OpError{Op: op, Net: c.sock.network(), Addr: c.sock.LocalAddr(), Err: err}
}

// nilArgument is the error of a call that was passed a nil. The nil would otherwise crash the
// program later, on another goroutine than the caller's.
func nilArgument(call, what string) error {
	return errors.New(call + " was called with a nil " + what + ": pass one")
}
