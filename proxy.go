package percore

import (
	"net/netip"
	"time"
)

// ProxyProtocol says from which peers a listener awaits a header of the PROXY protocol, versions 1
// and 2 (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt), and of which it believes one:
//
//	the peer         its connection
//	trusted          must begin with a header, whose addresses are the connection's from then on
//	any other        is closed at once, whether there is a header or not; with
//	                 ServeUntrusted it is served as it is: a header is data, and no address
//	                 is taken from it
//
// A connection whose header is malformed, longer than 4096 bytes, or not complete in time is
// closed and counted (AcceptStats.BadHeaders), and the log (slog's default logger) is told, once a
// minute at most. A connection that ends before its first byte, as of a health check, is closed
// without a word.
//
// Accept returns a connection when its header has been read, and exactly that: the bytes behind
// it are still in the kernel. Other connections don't wait for it, nor does a goroutine. Off
// Linux a goroutine does, for up to 64 connections at a time; there these count towards MaxConns only
// when Accept returns them. Listener.Close closes connections that wait for their header.
//
// A header with the command LOCAL or an unknown protocol leaves the connection its own
// addresses. A checksum (PP2_TYPE_CRC32C) is verified if there is one; all other extensions are
// ignored.
type ProxyProtocol struct {
	// Trusted are the networks of the proxies. On TCP there must be at least one; on unix
	// sockets it has no effect: whether a peer may connect is up to the permissions of the
	// socket's file, and every peer that may is trusted.
	Trusted []netip.Prefix

	// ServeUntrusted has connections from elsewhere served, without a header.
	ServeUntrusted bool

	// HeaderTimeout is for how long a header may take, from Accept's first look at the connection
	// on. 0 means 5 seconds.
	HeaderTimeout time.Duration
}
