package grpcadapter

import (
	"context"
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// Credentials returns c with connections that hold no read buffer while they wait. It is for TLS:
// otherwise grpc-go keeps a read buffer of 32 KiB for each TLS connection as long as it is open.
// Pass the result to grpc.Creds and grpc.WithTransportCredentials, on any listener. It changes
// neither the handshake nor how c describes itself:
//
//	creds := grpcadapter.Credentials(credentials.NewTLS(config))
//
// Besides this, an idle connection keeps the memory of grpc-go and of crypto/tls, and half a KiB
// here.
func Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	refuseNil(c == nil, "Credentials", "credentials.TransportCredentials", "credentials.NewTLS makes some")
	if xds, ok := c.(interface{ UsesXDS() bool }); ok && xds.UsesXDS() {
		return c // grpc-go checks for this interface
	}
	return &sparingCredentials{c}
}

// sparingCredentials turns the connections that a handshake has put on top of a connection into
// sparingConns.
type sparingCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c *sparingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	return spare(raw, conn), info, err
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *sparingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return spare(raw, conn), info, err
}

// Clone implements [credentials.TransportCredentials].
func (c *sparingCredentials) Clone() credentials.TransportCredentials {
	return &sparingCredentials{c.TransportCredentials.Clone()}
}

// spare wraps conn, which a handshake has made from raw. It doesn't if the handshake failed, put
// nothing on top, or put something there that can wait by itself.
func spare(raw, conn net.Conn) net.Conn {
	if conn == nil || conn == raw {
		return conn
	}
	if _, ok := conn.(interface {
		ReadOnReady(int, mem.BufferPool) (*[]byte, int, error)
	}); ok {
		return conn
	}
	counts.sparing.Add(1)
	if socket, ok := conn.(syscall.Conn); ok {
		return &sparingSocketConn{sparingConn{Conn: conn}, socket}
	}
	return &sparingConn{Conn: conn}
}

// firstBytes is the array that an idle connection holds instead of a read buffer. The frames of a
// small call fit: some 200 bytes of headers and a message of the same size. For a larger call,
// these bytes are copied once more.
const firstBytes = 512

// sparingConn reads from a connection that can't say whether it has data: it waits with a small
// buffer of its own, and takes one from the pool when bytes have arrived.
type sparingConn struct {
	net.Conn

	mu    sync.Mutex // serializes ReadOnReady; guards the fields below
	first [firstBytes]byte
	more  bool // the last read filled its buffer: there may be more, without waiting
}

// sparingSocketConn is a sparingConn that gives access to its socket, which channelz needs.
type sparingSocketConn struct {
	sparingConn
	syscall.Conn
}

// ReadOnReady does the same as ReadOnReady of [Conn], for any connection. It takes a buffer before
// there is something to read only after a read that filled its buffer completely: then there is
// usually more.
func (c *sparingConn) ReadOnReady(bufSize int, pool mem.BufferPool) (*[]byte, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more {
		b := pool.Get(bufSize)
		n, err := c.Read(*b)
		if n == 0 {
			pool.Put(b)
			b = nil
		}
		c.more = b != nil && n == len(*b)
		return b, n, err
	}
	first := c.first[:min(len(c.first), bufSize)]
	n, err := c.Read(first)
	if n == 0 {
		return nil, 0, err
	}
	c.more = n == len(first)
	b := pool.Get(bufSize)
	copy(*b, first[:n])
	return b, n, err
}
