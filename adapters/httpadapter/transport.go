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
// percore's connections, for less CPU time per call:
//
//	client := &http.Client{Transport: httpadapter.NewTransport(nil)}
//
// Its settings are the fields of base, which mean what they mean for an http.Transport. They are read
// while it is in use, so don't change them then. A nil base is a clone of [http.DefaultTransport], or
// a new http.Transport if that is of another type.
//
// Transport serves requests over HTTP/1.1 and HTTP/2, in clear or over TLS, also through a proxy of
// HTTP, as http.Transport does, on connections of its own. Which of the two is decided by base's
// Protocols, ForceAttemptHTTP2 and so on, and by the server. HTTP/2 is experimental. Any other request
// goes to base.RoundTrip, unchanged. The names are those of [TransportStats].Declined:
//
//   - "protocol": over TLS, if base has been given another HTTP/2 client than golang.org/x/net's, or other
//     functions in TLSNextProto, or a setting of HTTP/2 that percore doesn't have, such as CountError; if
//     Protocols has neither HTTP/1 nor an HTTP/2 that is served
//   - "dialer": over TLS, if base.DialTLSContext may choose HTTP/2 for an upgrade to WebSocket, or HTTP/1
//     though Protocols doesn't have it
//   - "proxy": if base.Proxy, which is called again then, returns another proxy than one of HTTP in clear,
//     and for CONNECT and HTTP/2 in clear through a proxy
//   - "body": a ContentLength without a body, or other than that of a body in memory; another
//     TransferEncoding than chunked, or that with a ContentLength, CONNECT or a body that is known to be
//     empty; Expect with such a body
//   - "request": a host that isn't a name in ASCII or an address, and a method, target, header or trailer
//     that isn't valid; CONNECT, and upgrades to other protocols than WebSocket, where HTTP/2 may be spoken
//   - "scheme": other than http and https
//   - "engine": all, off Linux, or if the environment switches the engine off
//
// A base.DialContext that is nil, or the method of a net.Dialer or a [percore.Dialer], makes connections
// on the engine, which hold nothing while they are idle. Another function, or base.Dial, DialTLSContext
// or DialTLS, may return any connection, and set deadlines for it; a goroutine reads from that, also
// while it is idle, as http.Transport's does, unless it is a *percore.Conn.
//
// Requests that are served here differ from http.Transport's in this: the connection in
// httptrace.GotConnInfo is a *[percore.Conn], or a *tls.Conn above one, unless a function of the user's
// has dialed; base.RegisterProtocol has no effect on "http", nor on "https" where that is served here,
// nor base.CancelRequest on any request; connections of Transport and of base are counted separately;
// and no more than 10,000 dials to a host are under way at a time, or one, if its server is known to
// speak HTTP/2, and more only while that takes longer than it should.
//
// Over HTTP/2 a server may send 1 MiB of an answer ahead of the user's reads, and 64 MiB on a
// connection, unless base.HTTP2 says otherwise; net/http allows 4 MiB and 1 GiB. MaxConnsPerHost is
// heeded: calls for which there is no room wait. Fields that belong to a connection of HTTP/1, and a
// Content-Length that is not valid, are left out of the header of an answer, as Go 1.27 does.
func NewTransport(base *http.Transport) *Transport {
	if base == nil {
		base = new(http.Transport)
		if d, ok := http.DefaultTransport.(*http.Transport); ok {
			base = d.Clone()
		}
	}
	return http2.New(base)
}
