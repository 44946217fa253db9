package percore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/proxyproto"
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

// headerTimeout is ProxyProtocol.HeaderTimeout by default: a proxy sends the header with the first
// packet, which TCP repeats after 1 and 3 seconds if it is lost.
const headerTimeout = 5 * time.Second

// check finds mistakes, for a listener on the network.
func (p *ProxyProtocol) check(network string) error {
	switch {
	case p.HeaderTimeout < 0:
		return fmt.Errorf("ProxyProtocol.HeaderTimeout is %v: want 0, for %v, or more", p.HeaderTimeout, headerTimeout)
	case len(p.Trusted) == 0 && network != "unix":
		return errors.New("ProxyProtocol trusts no peers: Trusted must have the networks of the proxies")
	}
	for i, prefix := range p.Trusted {
		if !prefix.IsValid() {
			return fmt.Errorf("ProxyProtocol.Trusted[%d] is not a valid network", i)
		}
	}
	return nil
}

// proxyRules are a ProxyProtocol of a listener, and its counters.
type proxyRules struct {
	// immutable
	trusted        []netip.Prefix
	serveUntrusted bool
	timeout        time.Duration
	addr           net.Addr // the listener's

	// atomic
	bad      atomic.Uint64 // connections that were closed because of their header
	refused  atomic.Uint64 // connections that were closed because their peer is not trusted
	reported atomic.Int64  // when the log was last told, as monotime has it; 0: never
}

// rules returns p's rules for the listener at addr; p may be nil.
func (p *ProxyProtocol) rules(addr net.Addr) *proxyRules {
	if p == nil {
		return nil
	}
	r := &proxyRules{serveUntrusted: p.ServeUntrusted, timeout: p.HeaderTimeout, addr: addr}
	if r.timeout == 0 {
		r.timeout = headerTimeout
	}
	for _, prefix := range p.Trusted {
		if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		r.trusted = append(r.trusted, prefix)
	}
	return r
}

// trusts reports whether a header of the peer is awaited. A peer without an address is one of a
// unix socket.
func (r *proxyRules) trusts(peer netip.AddrPort) bool {
	addr := peer.Addr().WithZone("")
	if !addr.IsValid() {
		return true
	}
	for _, prefix := range r.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// errHeaderTimeout is the reason for closing a connection without a whole header.
var errHeaderTimeout = errors.New("the PROXY header was not complete in time")

// errHeaderEnded is the reason for closing a connection that ended in its header.
var errHeaderEnded = errors.New("the connection ended in the PROXY header")

// errNoHeader is that of one that ended before.
var errNoHeader = errors.New("the connection ended before its first byte")

// isBad reports whether err is a reason to count a connection and to tell the log of it.
func (r *proxyRules) isBad(err error) bool {
	return err != nil && err != errNoHeader && !errors.Is(err, net.ErrClosed)
}

// reject counts a connection from a peer that was closed because of err, and tells the log.
func (r *proxyRules) reject(peer net.Addr, err error) {
	if !r.isBad(err) {
		return
	}
	r.bad.Add(1)
	acceptTotals[countBadHeader].Add(1)
	r.report("percore: a connection was closed because of its PROXY header", peer, err)
}

// errUntrusted is the reason for closing a connection at once.
var errUntrusted = errors.New("the peer is not in ProxyProtocol.Trusted")

// refuse counts a connection from a peer that is not trusted, and tells the log.
func (r *proxyRules) refuse(peer net.Addr) {
	r.refused.Add(1)
	acceptTotals[countRefused].Add(1)
	r.report("percore: a connection was refused", peer, errUntrusted)
}

// receive reads the header of a connection, exactly: never more bytes than belong to it for certain,
// since they could not be given back. It blocks for as long as the header may take.
func (r *proxyRules) receive(c net.Conn) (h proxyproto.Header, err error) {
	_ = c.SetReadDeadline(time.Now().Add(r.timeout))
	var header []byte
	for {
		more, complete, err := proxyproto.Scan(header)
		switch {
		case err != nil:
			return h, err
		case complete:
			_ = c.SetReadDeadline(time.Time{})
			return proxyproto.Parse(header[:more])
		}
		n := len(header)
		header = slices.Grow(header, more)[:n+more]
		got, err := c.Read(header[n:])
		header = header[:n+got]
		switch {
		case got > 0 || err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return h, errHeaderTimeout
		case errors.Is(err, net.ErrClosed):
			return h, err
		case n == 0:
			return h, errNoHeader
		case err == io.EOF:
			return h, errHeaderEnded
		default:
			return h, err
		}
	}
}

// report tells the log, once a minute at most.
func (r *proxyRules) report(message string, peer net.Addr, err error) {
	last, now := r.reported.Load(), monotime.Now()
	if last != 0 && now-last < int64(time.Minute) || !r.reported.CompareAndSwap(last, now) {
		return
	}
	// On a goroutine of its own: the caller may be a loop, and a logger may block.
	go slog.Warn(message, "listener", r.addr.String(), "peer", peer.String(), "error", err, "badHeaders", r.bad.Load())
}

// addTo adds the counters. r may be nil.
func (r *proxyRules) addTo(s *ListenerStats) {
	if r != nil {
		s.Refused += r.refused.Load()
		s.BadHeaders = r.bad.Load()
	}
}

// clientAddrs returns the addresses in a header as package net has them, nil if there are none.
func clientAddrs(h proxyproto.Header) (local, remote net.Addr) {
	switch {
	case h.IsUnix:
		return &net.UnixAddr{Name: h.DestinationName, Net: "unix"}, &net.UnixAddr{Name: h.SourceName, Net: "unix"}
	case h.Source.IsValid():
		return net.TCPAddrFromAddrPort(h.Destination), net.TCPAddrFromAddrPort(h.Source)
	}
	return nil, nil
}
