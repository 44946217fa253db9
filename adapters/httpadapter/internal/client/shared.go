package client

import (
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2"
)

// This file has the pool's part for connections that speak HTTP/2. Many calls share one, so it stays in
// host.shared while calls use it, until it takes no more streams. Package h2 reads from it, ends it when
// it has been idle for too long, and tells its state to Transport.sharedState.
//
//	place                     calls                           leaves by
//	none yet, it was dialed   the one that it was dialed for  shareAndUnlock: listed, or neither
//	listed, in host.shared    any, for which it has room      unshare: neither
//	neither, it goes away     those that have it already      its end
//
// Only the first two count for MaxConnsPerHost: the answers of the last may go on for days.
//
// A call takes the connection that had room last, without the host's lock, and reserves a stream, so
// that it is not idle. Only if the server lets it open no more streams on that one it looks for
// another, and waits if there is none: see waiter.

// shared is what a connection of HTTP/2 has besides.
type shared struct {
	streams *h2.Conn
	used    atomic.Bool // a call has got it
	opened  atomic.Bool // a call has opened a stream
	idled   atomic.Int64
	active  bool // owned by Transport.sharedState: it has streams
}

// never is for time limits that net/http doesn't have.
const never = 365 * 24 * time.Hour

// pingTimeout is net/http's default.
const pingTimeout = 15 * time.Second

// Windows, unless the base has others. Answers of a connection that are not read take no more than
// connWindow, and one of them streamWindow, so that many of them leave room for the others.
const (
	streamWindow = 1 << 20
	connWindow   = 64 << 20
)

func (t *Transport) sharedConfig() h2.ClientConfig {
	config := h2.ClientConfig{
		StreamWindow: streamWindow, ConnWindow: connWindow,
		BeginTimeout: never, WriteTimeout: -1,
		IdleTimeout: t.base.IdleConnTimeout,
		PingResets:  !t.base.DisableKeepAlives,
		Reserve:     true,
		State:       t.sharedState,
	}
	most := t.maxHeaderBytes()
	if t.base.MaxResponseHeaderBytes > 0 {
		most += 10 * 32 // as net/http: HTTP/2 counts 32 bytes more for each field
	}
	config.HeaderBytes = int(min(most, math.MaxInt32))
	config.HeaderFields = config.HeaderBytes/32 + 1 // each takes at least as many
	user := t.base.HTTP2
	if user == nil {
		return config
	}
	set(&config.DecoderTableBytes, user.MaxDecoderHeaderTableSize, 1)
	set(&config.EncoderTableBytes, user.MaxEncoderHeaderTableSize, 1)
	set(&config.FrameBytes, user.MaxReadFrameSize, 16<<10)
	set(&config.ConnWindow, user.MaxReceiveBufferPerConnection, 64<<10-1)
	set(&config.StreamWindow, user.MaxReceiveBufferPerStream, 1)
	if user.SendPingTimeout > 0 {
		config.PingAfter, config.PingIdle = min(user.SendPingTimeout, never), true
		config.PingTimeout = pingTimeout
		if user.PingTimeout > 0 {
			config.PingTimeout = min(user.PingTimeout, never)
		}
		config.BeginTimeout = config.PingAfter + config.PingTimeout // before its SETTINGS no server gets a PING
	}
	if user.WriteByteTimeout > 0 {
		config.WriteTimeout = user.WriteByteTimeout
	}
	return config
}

// set sets a field of the configuration to the user's value, unless that is not valid.
func set(field *int, value, least int) {
	if value >= least && value <= math.MaxInt32 {
		*field = value
	}
}

// speaksHTTP2 reports whether a connection that was dialed speaks HTTP/2. A server may have chosen that
// where the base doesn't speak it: TLSClientConfig may offer it by itself. Then HTTP/1.1 is spoken, as
// http.Transport does, and the server's answer is an error.
func (c *conn) speaksHTTP2() bool {
	return c.host.pool.t.mayShare(c.host.kind) && (c.tls == nil || c.tls.state.NegotiatedProtocol == "h2")
}

// attach makes a connection that was dialed one of HTTP/2.
func (c *conn) attach() error {
	c.shared = new(shared)
	c.shared.idled.Store(time.Now().UnixNano())
	c.host.count.Add(countIdleShared, 1)
	var err error
	c.shared.streams, err = c.host.pool.t.client.Attach(c.shown(), c)
	if err != nil {
		c.host.count.Add(countIdleShared, -1)
		c.close()
	}
	return err
}

// sharedState follows the state of a connection. It is called for one change at a time.
func (t *Transport) sharedState(streams *h2.Conn, s h2.ConnState) {
	c := streams.User().(*conn)
	switch s {
	case h2.Active:
		c.shared.active = true
		c.host.count.Add(countIdleShared, -1)
	case h2.Idle:
		c.shared.active = false
		c.shared.idled.Store(time.Now().UnixNano())
		c.host.count.Add(countIdleShared, 1)
	case h2.Roomy:
		c.host.mu.Lock()
		c.host.serveLocked()
		c.host.unlock()
	case h2.Leaving:
		c.host.unshare(c)
	case h2.Closed:
		if !c.shared.active {
			c.host.count.Add(countIdleShared, -1)
		}
		c.host.unshare(c)
		c.end(nil, false)
	}
}

// retire lets no call use the connection any more, which ends when its streams have ended. One that was
// for a single call keeps its place until then.
func (c *conn) retire() {
	if !c.host.pool.t.base.DisableKeepAlives {
		c.host.unshare(c)
	}
	c.shared.streams.Drain()
}

// unshare takes a connection out of the list, and gives up its place.
func (h *host) unshare(c *conn) {
	h.mu.Lock()
	if !c.left && c.ended.Load() == nil {
		c.left = true
		h.open--
		h.leaving++
	}
	if i := slices.Index(h.shared, c); i >= 0 {
		h.shared = slices.Delete(h.shared, i, i+1)
		h.latest.CompareAndSwap(c, nil)
	}
	h.unlock()
}

// shareAndUnlock makes a connection that was dialed for w available to all calls, or ends it if it is of
// no use. A stream of it is reserved. w gets that even if the server goes away already: the call has to
// learn why.
func (h *host) shareAndUnlock(c *conn, w *waiter, took time.Duration) {
	if h.pool.t.base.DisableKeepAlives {
		delivered := w.deliverLocked(dialed{conn: c})
		h.unlock()
		if !delivered {
			c.retire()
		}
		return
	}
	h.took = max(took, 1)
	needed := w.list != nil || !c.left && !h.pool.closing.Load() && !h.hasRoomLocked()
	if needed && !c.left {
		h.shared = append(h.shared, c)
		h.latest.Store(c)
		if w.list == nil && h.firstLocked() != nil {
			w = h.firstLocked()
		}
	}
	delivered := w.deliverLocked(dialed{conn: c})
	h.serveLocked()
	for other := range h.dials {
		if other.list == nil {
			other.cancel()
		}
	}
	h.unlock()
	switch {
	case !needed:
		c.retire()
	case !delivered:
		c.shared.streams.Unreserve()
	}
}

// serveLocked gives calls that wait the streams for which there is room.
func (h *host) serveLocked() {
	for w := h.firstLocked(); w != nil; w = h.firstLocked() {
		c := h.reserveLocked()
		if c == nil {
			return
		}
		w.deliverLocked(dialed{conn: c})
	}
}

// reserveLocked reserves a stream, and returns its connection, or nil. If there is no room h2.Roomy is
// reported when there is.
func (h *host) reserveLocked() *conn {
	for _, c := range h.shared {
		if c.shared.streams.Reserve() {
			h.latest.Store(c)
			return c
		}
	}
	return nil
}

// hasRoomLocked reports whether a stream could be reserved.
func (h *host) hasRoomLocked() bool {
	return slices.ContainsFunc(h.shared, func(c *conn) bool { return c.shared.streams.Room() > 0 })
}

// latestOf reserves a stream for a call on the connection that had room last, and returns that, or nil.
// It does so for no call that would overtake others.
func (p *pool) latestOf(c *call) *conn {
	v, ok := p.hosts[c.kind].Load(c.key)
	if !ok {
		return nil
	}
	h := v.(*host)
	if conn := h.latest.Load(); conn != nil && h.waiting.Load() == 0 && conn.shared.streams.Reserve() {
		return conn
	}
	return nil
}

// closeIdleShared closes the connections of HTTP/2 that have no streams, and no calls that have got
// them.
func (h *host) closeIdleShared() {
	h.mu.Lock()
	all := slices.Clone(h.shared)
	h.mu.Unlock()
	for _, c := range all {
		if c.shared.streams.DrainIfIdle() {
			h.unshare(c)
		}
	}
}

// mayShare reports whether connections of a kind are of HTTP/2 if the server speaks that. Calls share
// them then.
func (t *Transport) mayShare(k kind) bool { return k&clearH2 != 0 || k == overTLS && t.ownH2 }

// refusesH2 returns why a request is not served here that may go over HTTP/2: net/http judges it.
func (c *call) refusesH2(req *http.Request) reason {
	if req.Method == http.MethodConnect || c.kind&onlyH1 != 0 || c.target[0] != '/' && c.target != "*" {
		return otherRequest
	}
	h := req.Header
	if !isOneOf(h["Upgrade"], "", "chunked") || !isOneOf(h["Transfer-Encoding"], "", "chunked") || !isOneOf(h["Connection"], "", "close", "keep-alive") {
		return otherRequest
	}
	return served
}

// isOneOf reports whether a field is missing, or has one value, which is among those that are known.
func isOneOf(values []string, known ...string) bool {
	return len(values) == 0 || len(values) == 1 && slices.Contains(known, values[0])
}
