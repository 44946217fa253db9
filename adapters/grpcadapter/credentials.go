package grpcadapter

import (
	"context"
	"net"
	"sync"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// Credentials returns c with connections that hold no read buffer while they wait:
// for TLS, whose connections grpc-go otherwise reads through 32 KiB each for as long
// as they live. It is for grpc.Creds and grpc.WithTransportCredentials, on any
// listener, and changes neither the handshake nor c's own description:
//
//	creds := grpcadapter.Credentials(credentials.NewTLS(config))
//
// The rest of an idle connection's memory, besides grpc-go's own and half a KiB here, is
// crypto/tls's.
func Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	if xds, ok := c.(interface{ UsesXDS() bool }); ok && xds.UsesXDS() {
		return c // which grpc-go asks for by interface
	}
	return &sparingCredentials{c}
}

// sparingCredentials makes sparingConns of the connections that a handshake has put on top of a
// connection.
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

// spare wraps conn, which a handshake has made of raw, unless it failed, or has put
// nothing on top, or has put something there that can wait by itself.
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

// firstBytes is the array that an idle connection holds instead of a read buffer. The frames
// of a small call fit: some 200 bytes of headers and a message of as many. A larger one
// costs a copy of so much more.
const firstBytes = 512

// sparingConn reads from a connection that can't say whether it has something: it waits with
// a small buffer of its own, and takes one from the pool for the bytes that came.
type sparingConn struct {
	net.Conn

	mu    sync.Mutex // serializes ReadOnReady; guards the fields below
	first [firstBytes]byte
	more  bool // the last read filled its buffer: there may be more, without waiting
}

// sparingSocketConn is a sparingConn that can be asked for its socket, as channelz
// does.
type sparingSocketConn struct {
	sparingConn
	syscall.Conn
}

// ReadOnReady is as that of [Conn], for any connection. It takes a buffer before
// there is something to read only after a read that filled its buffer to the last
// byte: mostly there is more then.
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
