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
// A connection whose header is malformed or not complete in time is closed,
// counted (AcceptStats.BadHeaders) and logged (slog's default logger), at most once a minute. A
// connection that ends before its first byte, as those of health checks do, is closed without notice.
//
// Accept returns a connection when its header has been read, and nothing more: the bytes after it are
// still in the kernel. Other connections don't wait for it, nor does a goroutine. Off Linux a
// goroutine does, for up to 64 connections at a time; there these count towards MaxConns only when
// Accept returns them. Listener.Close closes connections that wait for their header.
//
// With the command LOCAL or an unknown protocol the connection keeps its own addresses. A checksum
// (PP2_TYPE_CRC32C) is verified if there is one. A header of version 2 may have more after the
// addresses, such as the client's TLS parameters: [ProxyTLVs] returns it. It takes its length in
// memory, at most 64 KiB a connection, as long as the connection lives. While headers are awaited, what
// they have beyond 4 KiB takes 64 MiB together at most, and 16 MiB of one proxy; a connection with more
// is closed. Nothing is wrong with odd bytes behind the last complete TLV: they are ignored.
type ProxyProtocol struct {
	// Trusted are the networks of the proxies. On TCP there must be at least one. On unix sockets
	// Trusted has no effect: the permissions of the socket's file decide which peers may connect,
	// and all of them are trusted.
	Trusted []netip.Prefix

	// ServeUntrusted makes Accept return connections from elsewhere too, without a header.
	ServeUntrusted bool

	// HeaderTimeout is how long a header may take, from the time at which Accept first looks at the
	// connection. 0 means 5 seconds. At MaxConns, when a client comes, connections that have waited
	// for a tenth of it are closed first.
	HeaderTimeout time.Duration
}

// ProxyTLVs returns the type-length-value vectors in the PROXY header, version 2, that the connection
// began with: the client's TLS parameters and certificate, the host name it asked for, the proxy's
// identifier of the connection, the endpoint at a cloud provider (the specification's section 2.2;
// providers document their own types). nil means that there are none.
//
// The vectors are as the proxy sent them, one after the other, complete: a byte with the type, two with
// the length of the value, big-endian, and the value. github.com/pires/go-proxyproto reads that form:
//
//	tlvs, err := proxyproto.SplitTLVs(percore.ProxyTLVs(c))
//	endpoint := tlvparse.FindAWSVPCEndpointID(tlvs)
//
// c is a connection of a [Listener] with a [ProxyProtocol], or one above it that has a method NetConn,
// as *tls.Conn and the connections of this module's adapters have. A handler of net/http gets at it
// through http.Server's ConnContext (see the example), one of gRPC through the ServerHandshake of
// credentials (see package grpcadapter's example). The vectors stay after Close, and a connection that
// is handed over to another process takes them along. The caller owns the result. ProxyTLVs doesn't
// block.
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
