package grpcadapter

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// clientWithURIs returns a certificate of a client.
func clientWithURIs(t *testing.T, uris ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour)}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// describePeer says what a context tells of a call's client.
func describePeer(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "no peer"
	}
	text := fmt.Sprintf("%T %s %T %s", p.Addr, p.Addr.Network(), p.LocalAddr, p.LocalAddr.Network())
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return fmt.Sprintf("%s %v", text, p.AuthInfo)
	}
	s := &info.State
	return fmt.Sprintf("%s; %s %v SPIFFE %v; version %x, %s for %s, complete %v, resumed %v, %d certificates, %d chains, %d signatures", text,
		info.AuthType(), info.SecurityLevel, info.SPIFFEID, s.Version, s.NegotiatedProtocol, s.ServerName,
		s.HandshakeComplete, s.DidResume, len(s.PeerCertificates), len(s.VerifiedChains), len(s.SignedCertificateTimestamps))
}

func tellPeer(_ any, stream grpc.ServerStream) error {
	return status.Error(codes.OutOfRange, describePeer(stream.Context())+"; "+fmt.Sprint(stream.Context().Value(statsKey("conn"))))
}

// connPeers is a stats handler that gives connections their addresses' types.
type connPeers struct{ noStats }

func (connPeers) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, statsKey("conn"), fmt.Sprintf("tag %T %T; %s", info.RemoteAddr, info.LocalAddr, describePeer(ctx)))
}

// TestServerPeers compares what the context says of a client over TLS with grpc-go's.
func TestServerPeers(t *testing.T) {
	server, client := testnet.TLS(t)
	server = server.Clone()
	server.ClientAuth = tls.RequestClientCert
	long := "spiffe://a/" + strings.Repeat("x", 2048)
	var clients []*tls.Config
	for _, certs := range [][]tls.Certificate{
		nil, server.Certificates,
		{clientWithURIs(t, "spiffe://a/b")}, {clientWithURIs(t, "spiffe://a")}, {clientWithURIs(t, "spiffe://u@a/b")},
		{clientWithURIs(t, "spiffe:a")}, {clientWithURIs(t, "https://a/b")}, {clientWithURIs(t, long)},
		{clientWithURIs(t, "spiffe://a/b", "spiffe://a/c")}, {clientWithURIs(t, "spiffe://"+strings.Repeat("a", 256)+"/b")},
	} {
		config := client.Clone()
		config.Certificates = certs
		clients = append(clients, config)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := client.Clone()
		config.MaxVersion = version
		clients = append(clients, config, config)
	}
	verifying := server.Clone()
	verifying.ClientAuth, verifying.ClientCAs = tls.VerifyClientCertIfGiven, client.RootCAs
	for _, config := range []*tls.Config{server, verifying} {
		testServerPeers(t, config, clients)
	}
}

func testServerPeers(t *testing.T, server *tls.Config, clients []*tls.Config) {
	testnet.NoLeaks(t)
	play := func(lis net.Listener, srv testServer) (lines []string) {
		serveOn(t, lis, srv)
		sessions := tls.NewLRUClientSessionCache(10)
		for _, config := range clients {
			if config.MaxVersion != 0 { // there are two of these: the second connection resumes
				config = config.Clone()
				config.ClientSessionCache = sessions
			}
			cc := dialServer(t, lis, grpc.WithTransportCredentials(credentials.NewTLS(config)))
			err := cc.Invoke(callContext(t), "/a/B", new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
			if lines = append(lines, status.Convert(err).Message()); status.Code(err) == codes.Unavailable {
				lines[len(lines)-1] = "Unavailable"
			}
			cc.Close()
		}
		return lines
	}
	creds := credentials.NewTLS(server)
	theirs := []grpc.ServerOption{grpc.Creds(creds), grpc.StatsHandler(connPeers{}), grpc.UnknownServiceHandler(tellPeer)}
	ours := []Option{StatsHandler(connPeers{}), UnknownServiceHandler(tellPeer)}
	want := play(testnet.Listen(t, net.Listen, testnet.TCP4), grpc.NewServer(theirs...))
	servers := map[string]testServer{"NewServer": NewServer(append(ours, Creds(creds))...), "Wrap": newWrapped(theirs)}
	if portWays[0].past {
		servers["port"] = newPort(0, NewServer(ours...), server.Clone())
	}
	for name, srv := range servers {
		got := play(testnet.Listen(t, percore.Listen, testnet.TCP4), srv)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: client %d: got the peer\n%s\nwant\n%s", name, i, got[i], want[i])
			}
		}
	}
	if !strings.Contains(want[len(want)-1], "resumed true") {
		t.Errorf("grpc-go: got the peer %s, want a connection that resumes", want[len(want)-1])
	}
}
