package rpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore/adapters/h2"
)

// conn is what the calls of a connection share.
type conn struct {
	server *Server
	raw    net.Conn // as it was accepted
	counts *counts
	guest  bool // it is another server's

	// immutable once the connection is ready
	peer *peer.Peer
	ctx  context.Context // of which the contexts of calls derive; nil: it isn't ready

	mu    sync.Mutex
	ended bool // guarded by mu; for guests

	// owned by the connection's turn
	pingedAt time.Time
	strikes  int
}

func newConn(s *Server, raw, nc net.Conn, info credentials.AuthInfo) *conn {
	return &conn{server: s, raw: raw, counts: s.nextCounts(), peer: newPeer(nc.RemoteAddr(), nc.LocalAddr(), info)}
}

func newPeer(remote, local net.Addr, info credentials.AuthInfo) *peer.Peer {
	return &peer.Peer{Addr: remote, LocalAddr: local, AuthInfo: info}
}

// nextCounts returns the counts for a connection.
func (s *Server) nextCounts() *counts { return &s.counts[int(s.turn.Add(1))%len(s.counts)] }

// ready is called when the client has begun to speak HTTP/2.
func (c *conn) ready() {
	ctx := context.Background()
	if add := c.server.config.ConnContext; add != nil {
		ctx = add(ctx, c.raw)
	}
	c.ctx = peer.NewContext(ctx, c.peer)
	if sh := c.server.config.Stats; sh != nil {
		c.ctx = sh.TagConn(c.ctx, &stats.ConnTagInfo{RemoteAddr: c.peer.Addr, LocalAddr: c.peer.LocalAddr})
		sh.HandleConn(c.ctx, &stats.ConnBegin{})
	}
}

// closed is called when the connection has ended.
func (c *conn) closed() {
	if sh := c.server.config.Stats; sh != nil && c.ctx != nil {
		sh.HandleConn(c.ctx, &stats.ConnEnd{})
	}
	if !c.guest {
		c.server.forget()
	}
}

// The rules about PINGs, which are grpc-go's: two more than are allowed are forgiven, until
// something is sent.
const (
	strikesMost  = 2
	idlePingTime = 2 * time.Hour // between PINGs without streams, unless the policy permits more
)

// ping is called when the client has sent a PING. answered says that something was sent since the
// last one.
func (c *conn) ping(hc *h2.Conn, answered bool) {
	now := time.Now()
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
	if last.Add(least).After(now) {
		c.strikes++
	}
	if c.strikes > strikesMost {
		hc.Abort(h2.EnhanceYourCalm, "too_many_pings") // grpc-go's clients know the text
	}
}
