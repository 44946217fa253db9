//go:build !linux || percore_net

package percore

import (
	"io"
	"net"
)

// onlyWriter and onlyReader hide a connection's other methods from io.Copy.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// readFrom is package net's for TCP, which knows the platform's ways to do
// without a copy. A *net.UnixConn's method of that name is about packets; io.Copy
// does with it what it does here, errors included.
func (s *sock) readFrom(_ *Conn, r io.Reader) (int64, error) {
	if c, ok := r.(*Conn); ok && c.ok() {
		r = c.sock.netConn()
	}
	if s.tcp != nil {
		return s.tcp.ReadFrom(r)
	}
	return io.Copy(onlyWriter{s.conn}, r)
}

// writeTo is package net's for TCP.
func (s *sock) writeTo(_ *Conn, w io.Writer) (int64, error) {
	if c, ok := w.(*Conn); ok && c.ok() {
		w = c.sock.netConn()
	}
	if s.tcp != nil {
		return s.tcp.WriteTo(w)
	}
	return io.Copy(w, onlyReader{s.conn})
}

// netConn returns the connection of package net's, which it recognizes.
func (s *sock) netConn() net.Conn { return s.conn }
