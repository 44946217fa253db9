package httpadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
)

// This file gives connections that speak HTTP/2 to a server of package h2, which calls the http.Server's
// handler through package httpstream: when ALPN has chosen "h2", or a connection in cleartext begins
// with HTTP/2's preface, and srv.Protocols allows that. For package h1 the connection is hijacked from
// then on; its reference to the call ends with its last state, Closed.

// newStreams returns the server of the call's HTTP/2 connections. It is nil if the http.Server has no
// HTTP/2 for them, or whyNetHTTP2 has a reason why net/http serves them.
func (call *serveCall) newStreams() *h2.Server {
	s := call.server
	offered := protocols(s.srv).HTTP2()
	if !call.overTLS {
		offered = protocols(s.srv).UnencryptedHTTP2()
	}
	if !offered || !speaksHTTP2(s.srv) {
		return nil
	}
	if why := s.whyNetHTTP2(); why != "" {
		s.logf("httpadapter: HTTP/2 is not served by percore, and each connection that waits has a goroutine: %s", why)
		return nil
	}
	own, config := &httpstream.Handler{HTTP: s.srv, Host: call}, s.http2Config()
	if h := s.streamHandler(); h != nil {
		config.Resets, config.Log = streamHandlerResets, slog.New(errorLog{server: call.server})
		config.AnyTarget = true // and shared is as strict as HTTP with what isn't the StreamHandler's
		return h2.New(newShared(own, h), config)
	}
	return h2.New(own, config)
}

// whyNetHTTP2 returns why net/http must serve HTTP/2, or "".
func (s *Server) whyNetHTTP2() string {
	switch {
	case s.ownH2:
		return `the program has set TLSNextProto["h2"], so that is the server of HTTP/2`
	case s.srv.HTTP2 != nil && s.srv.HTTP2.CountError != nil:
		return "HTTP2Config.CountError is set, and counts by net/http's own names"
	}
	return ""
}

// http2Config returns the http.Server's limits and timeouts. If the program sets none, and net/http has
// none or a higher one, package h2's count.
func (s *Server) http2Config() h2.Config {
	const perField, typicalFields = 32, 10 // net/http's overhead for MaxHeaderBytes
	limit := s.srv.MaxHeaderBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	c := h2.Config{
		HeaderBytes:     min(limit, math.MaxInt32-perField*typicalFields) + perField*typicalFields,
		IdleTimeout:     -1,
		ExtendedConnect: httpstream.ExtendedConnect,
		Priorities:      prioritiesOf(s.srv),
		MaxAge:          s.maxAge, // also of one without requests
	}
	if n := maxHeaderValueCount(s.srv); n > 0 && n < 1<<30 {
		c.HeaderFields = n
	}
	if d := s.srv.IdleTimeout; d > 0 {
		c.IdleTimeout = d
	} else if d == 0 && s.srv.ReadTimeout > 0 {
		c.IdleTimeout = s.srv.ReadTimeout
	}
	if from := s.srv.HTTP2; from != nil {
		// Like net/http, take a negative number for the default.
		c.Streams = max(from.MaxConcurrentStreams, 0)
		c.DecoderTableBytes = from.MaxDecoderHeaderTableSize
		c.EncoderTableBytes = from.MaxEncoderHeaderTableSize
		c.FrameBytes = max(from.MaxReadFrameSize, 0)
		c.ConnWindow = max(from.MaxReceiveBufferPerConnection, 0)
		c.StreamWindow = max(from.MaxReceiveBufferPerStream, 0)
		c.PingAfter = max(from.SendPingTimeout, 0)
		c.PingTimeout = max(from.PingTimeout, 0)
		c.WriteTimeout = from.WriteByteTimeout
	}
	return c
}

// ConnState and CountDetached are for the call as an httpstream.Host.
func (call *serveCall) ConnState(c *h2.Conn, state http.ConnState) {
	own := c.User().(*h1.Conn)
	if !own.ReportSafely(state) {
		_ = c.Close()
	}
	switch {
	case state == http.StateClosed:
		call.release()
	case state == http.StateActive && call.isDraining():
		c.GoAway()
	}
}

func (call *serveCall) CountDetached(by int64) { call.server.counts.Add(h1.CountDetached, by) }

// allowsHTTP2 reports whether a handshake has agreed on HTTP/2 with a version and cipher suite that
// allow it.
func (s *Server) allowsHTTP2(state tls.ConnectionState) bool {
	if state.NegotiatedProtocol != "h2" || state.Version < tls.VersionTLS12 {
		return false
	}
	config := s.srv.HTTP2
	return state.Version > tls.VersionTLS12 || isModern(state.CipherSuite) || config != nil && config.PermitProhibitedCipherSuites
}

// isModern reports whether a cipher suite of TLS 1.2 is ephemeral and authenticated (RFC 9113, 9.2.2).
func isModern(suite uint16) bool {
	name := tls.CipherSuiteName(suite)
	return strings.HasPrefix(name, "TLS_ECDHE_") && (strings.Contains(name, "_GCM_") || strings.Contains(name, "_POLY1305"))
}

// serveHTTP2 gives a connection, with the bytes that were read, to the call's server of streams.
func (call *serveCall) serveHTTP2(c *h1.Conn, unread []byte) {
	if !c.Leave(false) {
		return
	}
	defer c.Forget() // only then: HandOver waits for connections that are in neither server
	call.server.counts.Add(countHTTP2, 1)
	err, below := errHook, net.Conn(c.Conn)
	if tc := c.TLS(); tc != nil {
		below = tc
	}
	var hc *h2.Conn
	if c.ReportSafely(http.StateActive) && c.ReportSafely(http.StateIdle) { // as net/http does then
		hc, err = call.streams.Attach(below, unread, c)
	}
	switch {
	case err != nil:
		_ = c.Conn.Close()
		c.ReportSafely(http.StateClosed)
		call.release()
	case call.isDraining(): // set before the others were drained
		time.AfterFunc(firstStreamTime, func() { hc.GoAway() })
	}
}

// firstStreamTime is how long a connection that begins during a drain stays for its first stream. A
// client that is told to leave before that takes the connection for a failed one: net/http's fails the
// request.
const firstStreamTime = time.Second

// isDraining reports whether HTTP/2 clients are told to open no more streams.
func (call *serveCall) isDraining() bool { return call.leaving.Load() || call.server.draining.Load() }

// errHook is for a connection whose hook has panicked.
var errHook = errors.New("httpadapter: a hook has panicked")

// drainHTTP2 tells HTTP/2 clients to open no more streams.
func (call *serveCall) drainHTTP2() {
	if call.streams == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = call.streams.Shutdown(ctx) // without waiting
}

func (call *serveCall) closeHTTP2() {
	if call.streams != nil {
		_ = call.streams.Close()
	}
}

// drainIdleHTTP2 is drainHTTP2 for connections without streams.
func (call *serveCall) drainIdleHTTP2() {
	if call.streams != nil {
		call.streams.GoAwayIdle()
	}
}
