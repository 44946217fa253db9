package httpadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/http2"
)

// Transport is an http.RoundTripper: see [NewTransport], and [http2.Transport] for its methods
// RoundTrip, CloseIdleConnections and Stats. It has a package of its own because http.Client knows the
// name.
type Transport = http2.Transport

// NewTransport returns a RoundTripper for http.Client and httputil.ReverseProxy that calls servers on
// percore's connections, with less CPU time per call:
//
//	client := &http.Client{Transport: httpadapter.NewTransport(nil)}
//
// Its settings are the fields of base, which mean the same as in an http.Transport. They are read
// while the Transport is in use, so don't change them then. A nil base means a clone of
// [http.DefaultTransport], or a new http.Transport if that is of another type.
//
// Transport sends requests over HTTP/1.1 and HTTP/2, in cleartext or over TLS, also through an HTTP
// proxy, as http.Transport does, on connections of its own. base's Protocols, ForceAttemptHTTP2 and so
// on, and the server, decide which protocol is used. HTTP/2 is experimental. The following requests go
// to base.RoundTrip, unchanged, and are counted under these names in [TransportStats].Declined:
//
//   - "protocol": over TLS, if base has another HTTP/2 client than golang.org/x/net's, or other
//     functions in TLSNextProto, or an HTTP/2 setting that percore doesn't have, such as CountError;
//     if Protocols has neither HTTP/1 nor an HTTP/2 that is served here
//   - "dialer": over TLS, if base.DialTLSContext may choose HTTP/2 for an upgrade to WebSocket, or HTTP/1
//     though Protocols doesn't have it
//   - "proxy": if base.Proxy, which is then called again, returns a proxy other than a cleartext HTTP
//     proxy, and for CONNECT and cleartext HTTP/2 through a proxy
//   - "body": a ContentLength without a body, or other than that of a body in memory; another
//     TransferEncoding than chunked, or that with a ContentLength, CONNECT or a body that is known to be
//     empty; Expect with such a body
//   - "request": a host that isn't a name in ASCII or an address, and a method, target, header or trailer
//     that isn't valid; CONNECT, and upgrades to other protocols than WebSocket, where HTTP/2 may be spoken
//   - "scheme": other than http and https
//   - "engine": all requests, off Linux, or if the environment switches off the engine
//
// If base.DialContext is nil, or the method of a net.Dialer or a [percore.Dialer], connections are
// made on the engine, and hold nothing while they are idle. Another function, or base.Dial,
// DialTLSContext or DialTLS, may return any connection, and set deadlines for it. Unless that is a
// *percore.Conn, a goroutine reads from it, even while it is idle, as with http.Transport.
//
// Requests that are served here differ from http.Transport's in these points. The connection in
// httptrace.GotConnInfo is a *[percore.Conn], or a *tls.Conn above one, unless a function of the user
// has dialed. base.RegisterProtocol has no effect on "http", nor on "https" where that is served here.
// base.CancelRequest has no effect. Connections of Transport and of base are counted separately. At
// most 10,000 dials to a host run at a time; if its server is known to speak HTTP/2, only one, and
// more only while that takes longer than it should.
//
// Over HTTP/2 a server may send 1 MiB of an answer before the user reads it, and 64 MiB on a
// connection, unless base.HTTP2 says otherwise; net/http allows 4 MiB and 1 GiB. MaxConnsPerHost
// holds: calls for which there is no room wait. HTTP/1's connection-specific fields, and an invalid
// Content-Length, are left out of the header of an answer, as in Go 1.27.
func NewTransport(base *http.Transport) *Transport {
	if base == nil {
		base = new(http.Transport)
		if d, ok := http.DefaultTransport.(*http.Transport); ok {
			base = d.Clone()
		}
	}
	return http2.New(base)
}
