// Package link has the client's connections, in cleartext or with TLS. They can be watched while no call
// reads from them, and asked whether something has come.
package link

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// Conn is a connection in cleartext, or TLS above one. Its methods are safe for concurrent use like a
// net.Conn's, unless they say otherwise.
type Conn struct {
	below socket
	tls   *session // above it; nil: none
}

// socket is the connection itself: a *percore.Conn, or a *otherConn.
type socket interface {
	net.Conn
	CloseWrite() error
	ReadFrom(r io.Reader) (int64, error)
	WriteBuffers(v *net.Buffers) (int64, error)

	// TryRead reads what has come, without waiting. It returns no bytes and no error if that is nothing.
	TryRead(p []byte) (int, error)

	// NotifyReadable makes h's OnReadable be called, once, when there is something to read, the read
	// deadline has passed, or the connection is closed. CancelOnReadable undoes that, or reports false if
	// it is too late.
	NotifyReadable(h percore.ReadableHandler) error
	CancelOnReadable() bool
}

// TakeOver makes a Conn of a connection of package net, which it moves onto the engine, or of percore's.
func TakeOver(nc net.Conn) (Conn, error) {
	if c, ok := nc.(*percore.Conn); ok {
		return Conn{below: c}, nil
	}
	c, err := seam.TakeOver("tcp", nc)
	if err != nil {
		return Conn{}, err
	}
	return Conn{below: c.(*percore.Conn)}, nil
}

// Other makes a Conn of a connection of any type. Unless that is percore's, a goroutine reads from it.
// timed says that deadlines may be set while a Read waits.
func Other(nc net.Conn, timed bool) Conn {
	if c, ok := nc.(*percore.Conn); ok {
		return Conn{below: c}
	}
	return Conn{below: newOther(nc, timed)}
}

// Stream is a *percore.Conn, a *tls.Conn, or a connection of another type.
type Stream interface {
	net.Conn
	CloseWrite() error
}

// Stream returns what requests and answers are written to and read from.
func (c *Conn) Stream() Stream {
	if c.tls != nil {
		return c.tls.conn
	}
	return c.below
}

// Shown returns what users get to see: the *tls.Conn, the *percore.Conn, or what their function has
// dialed.
func (c *Conn) Shown() net.Conn {
	if c.tls != nil {
		return c.tls.conn
	}
	return shown(c.below)
}

func shown(s socket) net.Conn {
	if w, ok := s.(*otherConn); ok {
		return w.Conn
	}
	return s
}

// TLS returns what answers have as their TLS, or nil.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.tls != nil {
		return &c.tls.state
	}
	if w, ok := c.below.(*otherConn); ok {
		return w.tls
	}
	return nil
}

// IsTLS reports whether there is TLS above the connection.
func (c *Conn) IsTLS() bool { return c.tls != nil }

// KeepsWrites reports whether Write may keep what it is given, since the user's function has dialed.
func (c *Conn) KeepsWrites() bool {
	_, others := c.below.(*otherConn)
	return others
}

// Read reads from the stream.
func (c *Conn) Read(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.conn.Read(p)
	}
	return c.below.Read(p)
}

// Write writes to the stream.
func (c *Conn) Write(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.conn.Write(p)
	}
	return c.below.Write(p)
}

// ReadFrom copies from r. Without TLS the kernel does it, if it can.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if c.tls != nil {
		return io.Copy(c.tls.conn, r)
	}
	return c.below.ReadFrom(r)
}

// WriteBuffers writes the pieces with one system call. It must not be called if there is TLS.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) { return c.below.WriteBuffers(v) }

// SetReadDeadline sets the time until which a Read may wait.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.below.SetReadDeadline(t) }

// Close closes the connection. With TLS it first sends the farewell, and waits for calls that write;
// with hurries a Read fails at once even then.
func (c *Conn) Close(hurries bool) {
	if hurries && c.TLS() != nil {
		_ = c.Shown().SetReadDeadline(time.Unix(1, 0))
	}
	_ = c.Stream().Close()
}

// DropFinalizer promises that the connection will be closed, so it needs no finalizer.
func (c *Conn) DropFinalizer() { seam.DropFinalizer(c.below) }

// RestoreFinalizer takes that back, for a connection that is given away.
func (c *Conn) RestoreFinalizer() { seam.RestoreFinalizer(c.below) }

// Await blocks until there is something to read, where that needs no memory.
func (c *Conn) Await() {
	if pc, ok := c.below.(*percore.Conn); ok && c.tls == nil {
		serving.Await(pc)
	}
}

// Sleep arms the callback of a connection without a call: h's OnReadable is called, once, when something
// comes or the time has passed. The zero time leaves the time of the last Sleep, at first none.
func (c *Conn) Sleep(until time.Time, h percore.ReadableHandler) error {
	if !until.IsZero() {
		if err := c.below.SetReadDeadline(until); err != nil {
			return err
		}
	}
	return serving.Arm(c.below, h)
}

// CancelSleep disarms the callback, and reports false if it has come, or comes.
func (c *Conn) CancelSleep() bool { return c.below.CancelOnReadable() }

// Wake disarms the callback, and reports whether the connection can be used: nothing has come that a
// program could read, and no part of a record of TLS.
func (c *Conn) Wake() bool {
	cancelled := c.CancelSleep()
	if !cancelled && c.tls == nil {
		return false
	}
	if err := c.below.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	if c.tls != nil {
		return c.wakeTLS(!cancelled)
	}
	return !hasUnread(c.below)
}

// HasUnread reports whether something has come that was not read: bytes, or the end. With TLS it may be
// a message that no program sees.
func (c *Conn) HasUnread() bool { return hasUnread(c.below) }

// IsWhole reports whether no part of a record of TLS has come.
func (c *Conn) IsWhole() bool { return c.tls == nil || c.tls.records.areWhole() }

// Hold makes other looks, and Wake, wait until Release. In clear nothing waits.
func (c *Conn) Hold() {
	if c.tls != nil {
		c.tls.looks.Lock()
	}
}

// Release ends what Hold has begun.
func (c *Conn) Release() {
	if c.tls != nil {
		c.tls.looks.Unlock()
	}
}

// Look reports whether nothing has come that a program could read: no byte, and no end. It doesn't wait
// for any. No call may use the connection.
func (c *Conn) Look() bool {
	c.Hold()
	defer c.Release()
	return c.LookHeld()
}

// LookHeld is Look, between Hold and Release.
func (c *Conn) LookHeld() bool {
	var unasked [64]byte
	var n int
	var err error
	if c.tls != nil {
		n, err = c.tls.tryRead(unasked[:])
		c.tls.spoiled = c.tls.spoiled || n > 0 || err != nil
	} else {
		n, err = c.below.TryRead(unasked[:])
	}
	if n > 0 {
		go WarnUnasked(bytes.Clone(unasked[:n]), err)
	}
	return n == 0 && err == nil
}

// WarnUnasked logs that a server has sent something without a request, unless it says that it has
// waited for too long.
func WarnUnasked(p []byte, err error) {
	if len(p) >= len("HTTP/1.x 408") && string(p[:7]) == "HTTP/1." && string(p[8:12]) == " 408" {
		return
	}
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", p, err)
}

// hasUnread reports whether something has come over s that was not read: bytes, or the end.
func hasUnread(s socket) bool {
	if w, ok := s.(*otherConn); ok {
		return w.hasUnread()
	}
	return seam.HasUnread(s)
}

// readNow is TryRead for crypto/tls: it fails with percore.ErrWouldWait if nothing has come.
func readNow(s socket, p []byte) (n int, err error) {
	w, ok := s.(*otherConn)
	if !ok {
		return seam.ReadNow(s, p)
	}
	if n, err = w.TryRead(p); n == 0 && err == nil {
		err = percore.ErrWouldWait
	}
	return n, err
}
