package percore

import (
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
// A connection whose header is malformed, longer than 4096 bytes, or not complete in time is closed,
// counted (AcceptStats.BadHeaders) and logged (slog's default logger), at most once a minute. A
// connection that ends before its first byte, as those of health checks do, is closed without notice.
//
// Accept returns a connection when its header has been read, and nothing more: the bytes after it are
// still in the kernel. Other connections don't wait for it, nor does a goroutine. Off Linux a
// goroutine does, for up to 64 connections at a time; there these count towards MaxConns only when
// Accept returns them. Listener.Close closes connections that wait for their header.
//
// With the command LOCAL or an unknown protocol the connection keeps its own addresses. A checksum
// (PP2_TYPE_CRC32C) is verified if there is one; all other extensions are ignored.
type ProxyProtocol struct {
	// Trusted are the networks of the proxies. On TCP there must be at least one. On unix sockets
	// Trusted has no effect: the permissions of the socket's file decide which peers may connect,
	// and all of them are trusted.
	Trusted []netip.Prefix

	// ServeUntrusted makes Accept return connections from elsewhere too, without a header.
	ServeUntrusted bool

	// HeaderTimeout is how long a header may take, from the time at which Accept first looks at the
	// connection. 0 means 5 seconds.
	HeaderTimeout time.Duration
}
