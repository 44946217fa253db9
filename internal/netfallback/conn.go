package netfallback

import (
	"errors"
	"net"
	"runtime"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/sockaddr"
)

// slot is a connection's place in the limits of its listener.
type slot struct {
	limits        *accepting.Limits
	local, remote net.Addr // the client's, if a PROXY header gave them
	tlvs          string   // of the PROXY header
}

// admit calls the user's function, and closes the connection if it isn't wanted.
func (s *slot) admit(nc net.Conn) bool {
	return s.limits.Admit(sockaddr.AddrPort(s.local), sockaddr.AddrPort(s.remote), func() {
		nc.Close()
		s.limits.Release()
	})
}

// free is called when the connection is closed.
func (s *slot) free() {
	s.limits.Closed(sockaddr.AddrPort(s.local), sockaddr.AddrPort(s.remote))
}

// Connections of package net with a slot. They have all methods of package net's connections.
type (
	limitedTCP struct {
		*tcpConn
		limited
	}
	limitedUnix struct {
		*unixConn
		limited
	}
)

// These names make embedded fields inaccessible to other packages.
type (
	tcpConn  = net.TCPConn
	unixConn = net.UnixConn
)

// limited is the part of a connection that counts towards the limits. Its methods are above those that
// package net's connections have in common, one level deeper.
type limited struct {
	conn      net.Conn
	slot      *slot
	collected runtime.Cleanup
}

// newLimited returns nc with a slot. The slot is freed when nc is closed, also when the garbage
// collector closes it. (A finalizer of the result could run during a call on the connection.)
func newLimited(nc net.Conn, s *slot) net.Conn {
	switch nc := nc.(type) {
	case *net.TCPConn:
		return &limitedTCP{nc, limited{nc, s, runtime.AddCleanup(nc, (*slot).free, s)}}
	case *net.UnixConn:
		return &limitedUnix{nc, limited{nc, s, runtime.AddCleanup(nc, (*slot).free, s)}}
	}
	panic("percore: package net accepted a connection of another kind than its listener's")
}

// TCP returns the TCP connection of nc, which a Listener has accepted: nc itself, the one inside
// it, or nil if there isn't any.
func TCP(nc net.Conn) *net.TCPConn {
	switch nc := nc.(type) {
	case *net.TCPConn:
		return nc
	case *limitedTCP:
		return nc.tcpConn
	}
	return nil
}

// Close closes the connection and frees its slot, unless it was already closed.
func (l *limited) Close() error {
	err := l.conn.Close()
	if !errors.Is(err, net.ErrClosed) {
		l.collected.Stop()
		l.slot.free()
	}
	runtime.KeepAlive(l)
	return err
}

// LocalAddr returns the local address, or the one in the PROXY header.
func (l *limited) LocalAddr() net.Addr { return l.slot.local }

// RemoteAddr returns the peer's address, or the one in the PROXY header.
func (l *limited) RemoteAddr() net.Addr { return l.slot.remote }

// ProxyTLVs returns a copy of the TLVs in the PROXY header.
func (l *limited) ProxyTLVs() []byte {
	if l.slot.tlvs == "" {
		return nil
	}
	return []byte(l.slot.tlvs)
}
