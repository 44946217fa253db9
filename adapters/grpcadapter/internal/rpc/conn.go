package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
)

// conn is what the calls of a connection share. As a context it is a connContext.
type conn struct {
	server *Server
	raw    net.Conn // as it was accepted; nil for shared ones
	counts *counts

	peer atomic.Pointer[peer.Peer] // nil: it is made when it is first asked for

	// immutable once the connection is ready
	ctx context.Context // the parent of the contexts of calls; nil: it isn't ready

	mu sync.Mutex

	// owned by the connection's turn
	pingedAt time.Duration // after epoch; 0: never
	strikes  int32

	shared bool // it is another server's; immutable
	ended  bool // guarded by mu; for shared ones
}

// epoch is the zero of the times of connections.
var epoch = time.Now()

func newPeer(remote, local net.Addr, info credentials.AuthInfo) *peer.Peer {
	return &peer.Peer{Addr: remote, LocalAddr: local, AuthInfo: info}
}

// getPeer returns the peer, always the same one.
func (c *conn) getPeer() *peer.Peer {
	if c.peer.Load() == nil {
		c.peer.CompareAndSwap(nil, newPeer(c.raw.RemoteAddr(), c.raw.LocalAddr(), nil))
	}
	return c.peer.Load()
}

var tlsCreds = reflect.TypeOf(credentials.NewTLS(nil))

// speaksTLS reports whether the credentials are grpc-go's for TLS: the client's bytes come first.
func (c *Config) speaksTLS() bool { return reflect.TypeOf(c.Creds) == tlsCreds }

// makesTLS reports whether credentials make a *tls.Conn of raw, which package h2 reads without a
// goroutine. grpc-go's do so on any connection, and on percore's all that say so in Info.
func makesTLS(creds credentials.TransportCredentials, raw net.Conn) bool {
	_, ours := raw.(*percore.Conn)
	return reflect.TypeOf(creds) == tlsCreds || ours && creds.Info().SecurityProtocol == "tls"
}

// shakeHands does the handshake of the credentials. Credentials of TLS get nc, which is above raw and
// has only the methods of a net.Conn: otherwise they would return no *tls.Conn. Others get the
// connection as it was accepted: they may know it by its type.
func (c *conn) shakeHands(nc net.Conn) (net.Conn, error) {
	if !makesTLS(c.server.config.Creds, c.raw) {
		nc = c.raw
	}
	served, info, err := c.server.config.Creds.ServerHandshake(nc)
	switch {
	case errors.Is(err, credentials.ErrConnDispatched): // it belongs to another server now
		return nil, nil
	case err != nil:
		return nil, err
	case served != c.raw || info != nil: // otherwise the peer is what raw says
		c.peer.Store(newPeer(served.RemoteAddr(), served.LocalAddr(), info))
	}
	return served, nil
}

// connContext is a connection as a context, which never ends. An idle connection needs no contexts
// around it, nor a peer that no call has asked for.
type connContext conn

// String says what is printed: see callContext.
func (x *connContext) String() string { return "grpcadapter.conn" }

// Deadline implements context.Context.
func (x *connContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Done implements context.Context.
func (x *connContext) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (x *connContext) Err() error { return nil }

// Value implements context.Context.
func (x *connContext) Value(key any) any {
	if key == keys.peer && key != nil {
		return (*conn)(x).getPeer()
	}
	if find := x.server.config.ConnValue; find != nil {
		return find(x.raw, key)
	}
	return nil
}

// ready is called when the client has begun to speak HTTP/2.
func (c *conn) ready() {
	c.ctx = (*connContext)(c)
	if keys.peer == nil {
		c.ctx = peer.NewContext(c.ctx, c.getPeer())
	}
	if sh := c.server.stats; sh != nil {
		p := c.getPeer()
		c.ctx = sh.TagConn(c.ctx, &stats.ConnTagInfo{RemoteAddr: p.Addr, LocalAddr: p.LocalAddr})
		sh.HandleConn(c.ctx, &stats.ConnBegin{})
	}
}

// closed is called when the connection has ended.
func (c *conn) closed() {
	if sh := c.server.stats; sh != nil && c.ctx != nil {
		sh.HandleConn(c.ctx, &stats.ConnEnd{})
	}
}

// The rules about PINGs are grpc-go's: it forgives two more than it allows, until something is sent.
const (
	strikesMost  = 2
	idlePingTime = 2 * time.Hour // between PINGs without streams, unless the policy permits more
)

// ping is called when the client has sent a PING. answered reports that something was sent since the
// last PING.
func (c *conn) ping(hc *h2.Conn, answered bool) {
	now := time.Since(epoch)
	last := c.pingedAt
	c.pingedAt = now
	if answered {
		c.strikes = 0
		return
	}
	least := c.server.config.Pings.MinTime
	if least == 0 {
		least = 5 * time.Minute
	}
	if hc.Streams() == 0 && !c.server.config.Pings.PermitWithoutStream {
		least = idlePingTime
	}
	if last != 0 && now < last+least {
		c.strikes++
	}
	if c.strikes > strikesMost {
		hc.Abort(h2.EnhanceYourCalm, "too_many_pings") // grpc-go's clients know the text
	}
}

// authInfo returns the AuthInfo that grpc-go's TLS credentials would return; nil without TLS.
func authInfo(state *tls.ConnectionState) credentials.AuthInfo {
	if state == nil {
		return nil
	}
	return credentials.TLSInfo{
		State:          *state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		SPIFFEID:       spiffeID(state),
	}
}

// spiffeID returns the client's SPIFFE ID, or nil if its certificate has none or a wrong one: as
// grpc-go, by the specification's section 4 (X.509-SVID).
func spiffeID(state *tls.ConnectionState) *url.URL {
	const lengthMax, hostMax = 2048, 255
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].URIs) != 1 {
		return nil
	}
	id := state.PeerCertificates[0].URIs[0]
	switch {
	case id == nil, id.Scheme != "spiffe", id.Opaque != "", id.User != nil && id.User.Username() != "":
		return nil
	case len(id.String()) > lengthMax, id.Host == "", id.Path == "", len(id.Host) > hostMax:
		return nil
	}
	return id
}
