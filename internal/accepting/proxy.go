package accepting

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/proxyproto"
)

// ProxyConfig is percore.ProxyProtocol; see there for its description.
type ProxyConfig struct {
	Trusted        []netip.Prefix
	ServeUntrusted bool
	HeaderTimeout  time.Duration
}

// headerTimeout is the default of HeaderTimeout: a proxy sends the header with the first
// packet, which TCP repeats after 1 and 3 seconds if it is lost.
const headerTimeout = 5 * time.Second

// check returns an error if the options are wrong for a listener on the network.
func (p *ProxyConfig) check(network string) error {
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

// ProxyRules decides which peers of a listener must send a header, and counts those that don't.
type ProxyRules struct {
	// immutable
	ServeUntrusted bool
	Timeout        time.Duration // for a header
	trusted        []netip.Prefix
	addr           net.Addr // of the listener
	counts         *Counts

	Long LongHeaders // has its own lock

	// atomic
	reported monotime.Throttle // for lines in the log
}

// LongHeaders bounds the memory of headers that are awaited. Ordinary headers are free: only the part
// beyond headerBytesFree counts. One proxy can't use all of the memory. The zero value is ready to use.
type LongHeaders struct {
	mu    sync.Mutex
	bytes int
	peers map[netip.Prefix]int // those that have some
}

const (
	headerBytesFree = 4 << 10
	longBytesMax    = 64 << 20
	longPeerShare   = 4 // a peer may have this part of longBytesMax: 256 of the longest headers
)

// ErrLongHeaders is the reason for closing a connection.
var ErrLongHeaders = fmt.Errorf("the PROXY headers that are awaited, and that are longer than %d KiB, take too much memory",
	headerBytesFree>>10)

// Hold counts a header of the peer that has grown to the given bytes, held of which are already counted.
// It returns how many are counted now, for Free, and fails if that is too much.
func (h *LongHeaders) Hold(peer netip.Prefix, held, bytes int) (int, error) {
	more := bytes - headerBytesFree - held
	if more <= 0 {
		return held, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes+more > longBytesMax || h.peers[peer]+more > longBytesMax/longPeerShare {
		return held, ErrLongHeaders
	}
	if h.peers == nil {
		h.peers = make(map[netip.Prefix]int)
	}
	h.bytes += more
	h.peers[peer] += more
	return held + more, nil
}

// Bytes returns how many bytes all headers have.
func (h *LongHeaders) Bytes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// Free gives back what a header has held.
func (h *LongHeaders) Free(peer netip.Prefix, held int) {
	if held == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes -= held
	if h.peers[peer] -= held; h.peers[peer] == 0 {
		delete(h.peers, peer)
	}
}

// ProxyRules returns the rules of a listener at addr with the given counters, or nil.
func (c *Config) ProxyRules(addr net.Addr, counts *Counts) *ProxyRules {
	p := c.Proxy
	if p == nil {
		return nil
	}
	r := &ProxyRules{ServeUntrusted: p.ServeUntrusted, Timeout: p.HeaderTimeout, addr: addr, counts: counts}
	if r.Timeout == 0 {
		r.Timeout = headerTimeout
	}
	for _, prefix := range p.Trusted {
		if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		r.trusted = append(r.trusted, prefix)
	}
	return r
}

// Trusts reports whether the peer must send a header. One without an address is on a unix socket.
func (r *ProxyRules) Trusts(peer netip.AddrPort) bool {
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

// The reasons for closing a connection without a header.
var (
	ErrHeaderTimeout = errors.New("the PROXY header was not complete in time")
	ErrHeaderEnded   = errors.New("the connection ended in the PROXY header")
	ErrNoHeader      = errors.New("the connection ended before its first byte")
)

// Reject counts and logs a connection that was closed because of err. It does neither if the
// connection ended before its first byte, as a health check does, or the listener was closed.
func (r *ProxyRules) Reject(peer net.Addr, err error) {
	if err == ErrNoHeader || errors.Is(err, net.ErrClosed) {
		return
	}
	r.counts.Add(BadHeaders)
	r.report("percore: a connection was closed because of its PROXY header", peer, err)
}

// errUntrusted is the reason why a connection is closed at once.
var errUntrusted = errors.New("the peer is not in ProxyProtocol.Trusted")

// Refuse counts and logs a connection from a peer that is not trusted.
func (r *ProxyRules) Refuse(peer net.Addr) {
	r.counts.Add(Refused)
	r.report("percore: a connection was refused", peer, errUntrusted)
}

// Receive reads the header of a connection, and not a byte more, since it could not put the byte
// back. It blocks until the header has arrived or Timeout has passed.
func (r *ProxyRules) Receive(c net.Conn) (h proxyproto.Header, err error) {
	_ = c.SetReadDeadline(time.Now().Add(r.Timeout))
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
			return h, ErrHeaderTimeout
		case errors.Is(err, net.ErrClosed):
			return h, err
		case n == 0:
			return h, ErrNoHeader
		case err == io.EOF:
			return h, ErrHeaderEnded
		default:
			return h, err
		}
	}
}

// report logs a line, at most once a minute.
func (r *ProxyRules) report(message string, peer net.Addr, err error) {
	if !r.reported.Allow(time.Minute) {
		return
	}
	// On a goroutine of its own: the caller may be a loop, and a logger may block.
	go slog.Warn(message, "listener", r.addr.String(), "peer", peer.String(), "error", err, "badHeaders", r.counts.Load(BadHeaders))
}
