package percore

import (
	"net"
	"net/netip"
	"time"
)

// ProxyProtocol says which peers of a listener must send a header of the PROXY protocol, versions 1
// and 2 (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt):
//
//	the peer         its connection
//	trusted          must begin with a header, whose addresses become the connection's
//	any other        is closed at once, whether there is a header or not; with
//	                 ServeUntrusted it is served as it is: a header is data, and no address
//	                 is taken from it
//
// A connection whose header is malformed or not complete in time is closed, counted
// (AcceptStats.BadHeaders) and logged, at most once a minute (slog's default logger). A connection
// that ends before its first byte, as a health check's may, is closed silently.
//
// Accept returns a connection once its header has been read; the bytes after the header are still in
// the kernel. Neither other connections nor a goroutine wait for a header. Off Linux a goroutine
// does, for up to 64 connections at a time; there, connections count towards MaxConns only when
// Accept returns them. Listener.Close closes connections that wait for their header.
//
// With the command LOCAL or an unknown protocol the connection keeps its own addresses. A checksum
// (PP2_TYPE_CRC32C) is verified if there is one. A header of version 2 may have more after the
// addresses, such as the client's TLS parameters: [ProxyTLVs] returns it. It takes up its length in
// memory, at most 64 KiB, for as long as the connection lives. While headers are awaited, their
// bytes beyond 4 KiB each may take 64 MiB in total, and 16 MiB for one proxy; a connection that
// would exceed this is closed. Stray bytes after the last complete TLV are ignored.
type ProxyProtocol struct {
	// Trusted are the networks of the proxies. On TCP there must be at least one. On unix sockets
	// Trusted has no effect: the permissions of the socket's file decide which peers may connect,
	// and all of them are trusted.
	Trusted []netip.Prefix

	// ServeUntrusted makes Accept also return connections from elsewhere, without a header.
	ServeUntrusted bool

	// HeaderTimeout is how long a header may take, from the time at which Accept first looks at the
	// connection. 0 means 5 seconds. At MaxConns, when a client comes, connections that have waited for
	// a tenth of this time are closed first.
	HeaderTimeout time.Duration
}

// ProxyTLVs returns the type-length-value vectors in the PROXY header, version 2, that the connection
// began with: the client's TLS parameters and certificate, the host name it asked for, the proxy's
// identifier of the connection, the endpoint at a cloud provider (the specification's section 2.2;
// providers document their own types). nil means that there are none.
//
// The vectors are complete, one after the other, as the proxy sent them: one byte for the type, two for
// the length of the value, big-endian, and the value. github.com/pires/go-proxyproto reads that form:
//
//	tlvs, err := proxyproto.SplitTLVs(percore.ProxyTLVs(c))
//	endpoint := tlvparse.FindAWSVPCEndpointID(tlvs)
//
// c is a connection of a [Listener] with a [ProxyProtocol], or a connection above it with a method
// NetConn, such as a *tls.Conn or the connections of this module's adapters. An HTTP handler can get it
// through http.Server's ConnContext (see the example), a gRPC handler through the ServerHandshake of
// credentials (see package grpcadapter's example). The vectors stay after Close, and go along when a
// connection is handed over to another process. The caller owns the result. ProxyTLVs doesn't block.
func ProxyTLVs(c net.Conn) []byte {
	for {
		switch at := c.(type) {
		case interface{ ProxyTLVs() []byte }:
			return at.ProxyTLVs()
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

// ProxyTLVs is the function [ProxyTLVs] for c.
func (c *Conn) ProxyTLVs() []byte {
	if !c.ok() {
		return nil
	}
	return c.sock.proxyTLVs()
}
