package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter/internal/channel"
	"github.com/percore/percore/adapters/h2"
)

// clientConn is a connection of a Client.
type clientConn struct {
	client *Client
	link   *channel.Link
	counts *counts
	peer   peer.Peer
	name   string          // the server name that the handshake has checked; the :authority of calls
	ctx    context.Context // for events of the stats handler

	pingTime int64 // a PING is sent after that much silence

	begun chan bool // whether the server's first SETTINGS have come; false: they won't

	hc *h2.Conn
}

// connectionError returns the error of a failed connection attempt, worded as in grpc-go.
func connectionError(format string, args ...any) error {
	return fmt.Errorf("connection error: desc = %q", fmt.Sprintf(format, args...))
}

// dial implements [channel.Config.Dial].
func (c *Client) dial(ctx context.Context, addr resolver.Address, link *channel.Link) (channel.Conn, error) {
	// Dialers and credentials get the attributes of the address with ClientHandshakeInfoFromContext.
	ctx = context.WithValue(ctx, keys.handshake, credentials.ClientHandshakeInfo{Attributes: addr.Attributes})
	raw, err := c.config.Dial(ctx, c.dialed(addr.Addr))
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, connectionError("transport: Error while dialing: %v", err)
	}
	cc := &clientConn{
		client: c, link: link, name: addr.ServerName, ctx: context.Background(), begun: make(chan bool, 1),
		counts: c.counters.Next(), pingTime: c.pingTime.Load(),
	}
	nc, info, err := cc.shakeHands(ctx, raw, addr)
	if err != nil {
		_ = raw.Close()
		return nil, connectionError("transport: authentication handshake failed: %v", err)
	}
	cc.peer = peer.Peer{Addr: nc.RemoteAddr(), LocalAddr: nc.LocalAddr(), AuthInfo: info}
	if cc.insecure() && c.hasSecrets() {
		_ = nc.Close()
		return nil, connectionError("transport: cannot send secure credentials on an insecure connection")
	}
	if sh := c.stats; sh != nil {
		cc.ctx = sh.TagConn(cc.ctx, &stats.ConnTagInfo{RemoteAddr: cc.peer.Addr, LocalAddr: cc.peer.LocalAddr})
		sh.HandleConn(cc.ctx, &stats.ConnBegin{Client: true})
	}
	hc, err := c.http.Attach(nc, cc)
	if err != nil {
		_ = nc.Close()
		cc.end()
		return nil, connectionError("%v", err)
	}
	cc.hc = hc
	hc.SetPingAfter(time.Duration(cc.pingTime))
	select {
	case settled := <-cc.begun:
		if settled {
			return cc, nil // even if the connection is leaving already: the server is reachable
		}
		_ = hc.Close()
		return nil, connectionError("error reading server preface: %v", reasonOf(hc.Err()))
	case <-ctx.Done():
		_ = hc.Close()
		<-cc.begun
		return nil, connectionError("error reading server preface: %v", ctx.Err())
	}
}

// dialed returns the address that the function of grpc.WithContextDialer gets for addr.
func (c *Client) dialed(addr string) string {
	scheme, _, _ := strings.Cut(c.CanonicalTarget(), ":")
	switch {
	case scheme != "unix" && scheme != "unix-abstract" || strings.HasPrefix(addr, "\x00"):
		return addr
	case filepath.IsAbs(addr):
		return "unix://" + addr
	}
	return "unix:" + addr
}

// insecure reports whether others may read or change the data: some credentials only identify the peer.
func (cc *clientConn) insecure() bool {
	return credentials.CheckSecurityLevel(cc.peer.AuthInfo, credentials.PrivacyAndIntegrity) != nil
}

// reasonOf returns why a connection has ended, or that it is leaving.
func reasonOf(err error) error {
	var gone *h2.ConnError
	switch {
	case errors.As(err, &gone) && gone.Err != nil:
		return gone.Err
	case err == nil:
		return errors.New("the server goes away")
	}
	return err
}

// shakeHands makes the handshake of the credentials. TLS credentials get only the methods of a
// net.Conn: otherwise they would not return a *tls.Conn, which package h2 reads without a goroutine.
func (cc *clientConn) shakeHands(ctx context.Context, raw net.Conn, addr resolver.Address) (net.Conn, credentials.AuthInfo, error) {
	creds := cc.client.config.Creds
	below := raw
	if makesTLS(creds, raw) {
		below = bareConn{raw}
	}
	undo := context.AfterFunc(ctx, func() { _ = raw.Close() }) // the credentials may ignore ctx
	nc, info, err := creds.ClientHandshake(ctx, addr.ServerName, below)
	if !undo() && err == nil {
		_ = nc.Close()
		return nil, nil, ctx.Err()
	}
	if err == nil && nc == net.Conn(bareConn{raw}) {
		nc = raw
	}
	return nc, info, err
}

// bareConn hides all methods of a connection that are not in net.Conn.
type bareConn struct{ net.Conn }

// NetConn returns the connection.
func (b bareConn) NetConn() net.Conn { return b.Conn }

// connState implements [h2.ClientConfig.State].
func connState(hc *h2.Conn, state h2.ConnState) {
	cc := hc.User().(*clientConn)
	switch state {
	case h2.Ready:
		cc.beginning(true)
	case h2.Leaving:
		if gone, _, ok := hc.GoneAway(); ok {
			cc.heed(gone)
		}
		cc.link.Ended(hc.Answered())
		cc.beginning(false) // closing may take a second, for data that was sent
	case h2.Closed:
		cc.link.Ended(hc.Answered()) // without Leaving before, if the server has closed the connection
		cc.end()
	}
}

// beginning reports to dial whether the server's first SETTINGS have come.
func (cc *clientConn) beginning(settled bool) {
	select {
	case cc.begun <- settled:
	default: // dial knows, or is about to
	}
}

// heed doubles the time before PINGs for later connections if the server got too many PINGs (gRFC A8).
func (cc *clientConn) heed(gone h2.GoAway) {
	if gone.Code != h2.EnhanceYourCalm || gone.Debug != "too_many_pings" {
		return
	}
	logger.Errorf("Client received GoAway with error code ENHANCE_YOUR_CALM and debug data equal to ASCII \"too_many_pings\".")
	for to := 2 * cc.pingTime; ; {
		now := cc.client.pingTime.Load()
		if to <= now || cc.client.pingTime.CompareAndSwap(now, to) {
			return
		}
	}
}

// lost returns the status of a call whose connection has ended with err, worded as in grpc-go.
func (cc *clientConn) lost(err error) *status.Status {
	text := fmt.Sprintf("error reading from server: %v", reasonOf(err))
	gone, _, ok := cc.hc.GoneAway()
	if !ok {
		return status.New(codes.Unavailable, text)
	}
	said := "code: " + gone.Code.String()
	if gone.Debug != "" {
		said += fmt.Sprintf(", debug data: %q", gone.Debug)
	}
	return status.Newf(codes.Unavailable, "closing transport due to: %v, received prior goaway: %s", connectionError("%s", text), said)
}

// end cleans up after the connection has ended.
func (cc *clientConn) end() {
	cc.link.Gone()
	cc.beginning(false)
	if sh := cc.client.stats; sh != nil {
		sh.HandleConn(cc.ctx, &stats.ConnEnd{Client: true})
	}
}

// Close implements [channel.Conn].
func (cc *clientConn) Close() { cc.hc.GoAway() }

// Abort implements [channel.Conn]. It sends the same text as grpc-go's client.
func (cc *clientConn) Abort() {
	cc.hc.Abort(h2.NoError, "client transport shutdown")
	_ = cc.hc.Close() // in case it was ending already
}
