package main

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func init() { caddy.RegisterModule(transport{}) }

// transport is the transport "percore" of reverse_proxy. Its options are those of Caddy's own
// transport, "http", which it embeds.
//
// Caddy's own still calls servers on sockets that aren't TCP, and all servers if one of these is set,
// since it does them while it dials: resolver, local_address, proxy_protocol, read_timeout,
// write_timeout, a tls_server_name with placeholders, HTTP/3, and h2c with TLS.
type transport struct {
	reverseproxy.HTTPTransport

	calls *httpadapter.Transport // nil: there is such an option
}

// CaddyModule implements caddy.Module.
func (transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.percore",
		New: func() caddy.Module { return new(transport) },
	}
}

// Provision implements caddy.Provisioner. It sets the defaults of the embedded transport.
func (t *transport) Provision(ctx caddy.Context) error {
	if err := t.HTTPTransport.Provision(ctx); err != nil {
		return err
	}
	if t.needsCaddys() {
		return nil
	}
	base := t.Transport.Clone()
	base.DialContext = (&percore.Dialer{
		Timeout:       time.Duration(t.DialTimeout),
		FallbackDelay: time.Duration(t.FallbackDelay),
		KeepAlive:     time.Duration(t.KeepAlive.ProbeInterval),
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   t.KeepAlive.ProbeInterval > 0,
			Interval: time.Duration(t.KeepAlive.ProbeInterval),
		},
	}).DialContext
	base.ForceAttemptHTTP2 = slices.Contains(t.Versions, "2") || slices.Contains(t.Versions, "h2c")
	base.TLSNextProto = nil // has golang.org/x/net's HTTP/2
	t.calls = httpadapter.NewTransport(base)
	return nil
}

func (t *transport) needsCaddys() bool {
	set := t.Resolver != nil || t.LocalAddress != "" || t.ProxyProtocol != "" || t.ReadTimeout > 0 || t.WriteTimeout > 0
	withTLS := t.Transport.DialTLSContext != nil || t.TLS != nil && slices.Contains(t.Versions, "h2c")
	return set || withTLS || slices.Contains(t.Versions, "3")
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	server, ok := reverseproxy.GetDialInfo(req.Context())
	if t.calls == nil || ok && server.Network != "tcp" {
		return t.HTTPTransport.RoundTrip(req)
	}
	t.SetScheme(req)
	resp, err := t.calls.RoundTrip(req)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = reverseproxy.NewDialError(err) // Caddy may try another server with any request
	}
	return resp, err
}

// Cleanup implements caddy.CleanerUpper.
func (t *transport) Cleanup() error {
	if t.calls != nil {
		t.calls.CloseIdleConnections()
	}
	return t.HTTPTransport.Cleanup()
}

var (
	_ caddy.Provisioner                                = (*transport)(nil)
	_ caddy.CleanerUpper                               = (*transport)(nil)
	_ reverseproxy.TLSTransport                        = (*transport)(nil)
	_ reverseproxy.H2CTransport                        = (*transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*transport)(nil)
)
