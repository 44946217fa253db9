package http2

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/streams"
)

// dialFunc is an http.Transport's DialContext.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns the function to dial with, and with secures the one that also does the handshake.
func (t *Transport) dialer(secures bool) dialFunc {
	//lint:ignore SA1019 programs still use it
	dialContext, dial := t.base.DialContext, t.base.Dial
	if secures {
		//lint:ignore SA1019 programs still use it
		dialContext, dial = t.base.DialTLSContext, t.base.DialTLS
	}
	switch {
	case dialContext != nil:
		return dialContext
	case dial != nil:
		return func(_ context.Context, network, addr string) (net.Conn, error) { return dial(network, addr) }
	}
	return zeroDial
}

// dialsTLS reports whether the base has a function that dials and does the handshake.
func (t *Transport) dialsTLS() bool {
	//lint:ignore SA1019 programs still use it
	return t.base.DialTLSContext != nil || t.base.DialTLS != nil
}

// isKnownDialer reports whether a function is the method DialContext of a net.Dialer or a
// percore.Dialer, whatever its options, as in http.DefaultTransport.
func isKnownDialer(dial dialFunc) bool {
	code := reflect.ValueOf(dial).Pointer()
	return code == netDialer || code == percoreDialer
}

// The code of the two methods, which is the same for all dialers.
var (
	zeroDial      = new(net.Dialer).DialContext
	netDialer     = reflect.ValueOf(zeroDial).Pointer()
	percoreDialer = reflect.ValueOf(new(percore.Dialer).DialContext).Pointer()
)

// dial connects to a host: to its server, or through its proxy.
func (t *Transport) dial(ctx context.Context, h *pool.Host) (l link.Conn, err error) {
	secures := h.Kind&overTLS != 0 && h.Proxy == nil && t.dialsTLS()
	dial := t.dialer(secures)
	nc, err := dial(ctx, "tcp", h.Addr)
	if nc == nil && err == nil {
		err = errNoConn
		if secures {
			err = errNoConnTLS
		}
	}
	if err != nil {
		if h.Proxy != nil {
			err = &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
		}
		return l, err
	}
	if l, err = t.linkOf(nc, dial); err != nil || h.Kind&overTLS == 0 {
		return l, err
	}
	whole := false
	defer func() {
		if !whole { // or a function of the user's has ended the goroutine
			l.Close(false)
		}
	}()
	if h.Proxy != nil {
		if err := t.tunnel(ctx, h, l.Stream()); err != nil {
			return l, err
		}
	}
	switch {
	case !secures:
		err = shake(ctx, &l, func() error { return l.Handshake(ctx, t.tlsConfig(h), t.base.TLSHandshakeTimeout) })
	case l.TellsTLS(): // else the server speaks HTTP/1, whatever it has chosen
		err = shake(ctx, &l, func() error { return l.TakeTLS(ctx) })
	}
	whole = err == nil
	return l, err
}

// linkOf returns a Conn for a connection that dial has returned. A connection of a known dialer is taken
// over onto the engine. A function of the user's may have set deadlines, which must hold, or may keep
// the connection, to close it later, so its connection is used as it is.
func (t *Transport) linkOf(nc net.Conn, dial dialFunc) (link.Conn, error) {
	if isKnownDialer(dial) {
		return link.TakeOver(nc)
	}
	return link.Other(nc, t.base.ResponseHeaderTimeout > 0), nil
}

// shake performs a handshake with its hooks. If it fails, shake closes the connection.
func shake(ctx context.Context, l *link.Conn, handshake func() error) error {
	trace := traceOf(ctx)
	if trace != nil && trace.TLSHandshakeStart != nil {
		trace.TLSHandshakeStart()
	}
	err := handshake()
	var state tls.ConnectionState
	if err != nil {
		l.Close(false) // before the hook
	} else {
		state = *l.TLS()
	}
	if trace != nil && trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(state, err)
	}
	return err
}

// tlsConfig returns the configuration of a host's connections. Dials at the same time may make equal
// ones.
func (t *Transport) tlsConfig(h *pool.Host) *tls.Config {
	base := t.base.TLSClientConfig
	if kept := h.TLS.Load(); kept != nil && kept.From == base {
		return kept.Own
	}
	own := &tls.Config{}
	if base != nil {
		own = base.Clone()
	}
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(h.Server)
	}
	if h.Kind&onlyH1 != 0 {
		own.NextProtos = nil
	}
	h.TLS.Store(&pool.TLSConfig{Own: own, From: base})
	return own
}

// share attaches HTTP/2 to a new connection that negotiated it. If the base doesn't speak HTTP/2 but its
// TLSClientConfig offers it, share leaves the connection to HTTP/1.1, as http.Transport does, and the
// server's answer is an error.
func (t *Transport) share(c *pool.Conn) error {
	state := c.Link.TLS()
	if c.Host.Shares && (c.Host.Kind&clearH2 != 0 || state != nil && state.NegotiatedProtocol == "h2") {
		return streams.Attach(t.client, c)
	}
	c.Link.DropFinalizer()
	return nil
}
