package frameworks

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// The values that headerWithTLVs sends.
const (
	sentEndpoint  = "vpce-0123456789abcdef0"
	sentLink      = 0x01020304
	sentPSC       = 18446744072646845442
	sentAuthority = "www.example.org"
	sentProtocol  = "h2"
	sentID        = "unique \x00 bytes"
	sentName      = "client.example.org"
)

// headerWithTLVs returns a header with what proxies and cloud providers send about a client, and a
// checksum.
func headerWithTLVs(t testing.TB) string {
	t.Helper()
	ssl, err := tlvparse.PP2SSL{
		Client: tlvparse.PP2_BITFIELD_CLIENT_SSL | tlvparse.PP2_BITFIELD_CLIENT_CERT_CONN,
		TLV: []proxyproto.TLV{
			{Type: proxyproto.PP2_SUBTYPE_SSL_VERSION, Value: []byte("TLSv1.3")},
			{Type: proxyproto.PP2_SUBTYPE_SSL_CIPHER, Value: []byte("TLS_AES_128_GCM_SHA256")},
			{Type: proxyproto.PP2_SUBTYPE_SSL_CN, Value: []byte(sentName)},
		},
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const linkType, endpointType = tlvparse.PP2_TYPE_AZURE, tlvparse.PP2_TYPE_AWS
	link := binary.LittleEndian.AppendUint32([]byte{tlvparse.PP2_SUBTYPE_AZURE_PRIVATEENDPOINT_LINKID}, sentLink)
	h := proxyproto.HeaderProxyFromAddrs(2, tcp4From, tcp4To)
	if err := h.SetTLVs([]proxyproto.TLV{
		ssl,
		{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte(sentAuthority)},
		{Type: proxyproto.PP2_TYPE_ALPN, Value: []byte(sentProtocol)},
		{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: []byte(sentID)},
		{Type: endpointType, Value: append([]byte{tlvparse.PP2_SUBTYPE_AWS_VPCE_ID}, sentEndpoint...)},
		{Type: linkType, Value: link},
		{Type: tlvparse.PP2_TYPE_GCP, Value: binary.BigEndian.AppendUint64(nil, sentPSC)},
		{Type: proxyproto.PP2_TYPE_CRC32C, Value: make([]byte, 4)},
	}); err != nil {
		t.Fatal(err)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return string(b)
}

// wantTLVs is what describeTLVs returns for headerWithTLVs.
var wantTLVs = fmt.Sprintf("ssl TLSv1.3 %s verified, authority %s, alpn %s, id %q, aws %s, azure %d, gcp %d",
	sentName, sentAuthority, sentProtocol, sentID, sentEndpoint, sentLink, uint64(sentPSC))

// describeTLVs is how a program reads a connection's TLVs with go-proxyproto.
func describeTLVs(c net.Conn) string {
	tlvs, err := proxyproto.SplitTLVs(percore.ProxyTLVs(c))
	if err != nil {
		return err.Error()
	}
	if len(tlvs) == 0 {
		return "none"
	}
	var b strings.Builder
	if ssl, ok := tlvparse.FindSSL(tlvs); ok {
		version, _ := ssl.SSLVersion()
		name, _ := ssl.ClientCN()
		fmt.Fprintf(&b, "ssl %s %s ", version, name)
		if ssl.Verified() {
			b.WriteString("verified, ")
		}
	}
	for _, tlv := range tlvs {
		switch tlv.Type {
		case proxyproto.PP2_TYPE_AUTHORITY:
			fmt.Fprintf(&b, "authority %s, ", tlv.Value)
		case proxyproto.PP2_TYPE_ALPN:
			fmt.Fprintf(&b, "alpn %s, ", tlv.Value)
		case proxyproto.PP2_TYPE_UNIQUE_ID:
			fmt.Fprintf(&b, "id %q, ", tlv.Value)
		}
	}
	link, _ := tlvparse.FindAzurePrivateEndpointLinkID(tlvs)
	psc, _ := tlvparse.ExtractPSCConnectionID(tlvs)
	fmt.Fprintf(&b, "aws %s, azure %d, gcp %d", tlvparse.FindAWSVPCEndpointID(tlvs), link, psc)
	return b.String()
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// TestProxyTLVs: a handler of net/http reads the TLVs of its connection with go-proxyproto, for each
// request, also after the connection was parked; in clear and over TLS, with HTTP/1.1 and HTTP/2.
func TestProxyTLVs(t *testing.T) {
	header := headerWithTLVs(t)
	lc := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}
	serverTLS, clientTLS := testnet.TLS(t)
	for _, way := range ways[1:] {
		for _, overTLS := range []bool{false, true} {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/TLS=%t/HTTP2=%t", way.name, overTLS, http2), func(t *testing.T) {
					testnet.NoLeaks(t)
					ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					protocols := new(http.Protocols)
					protocols.SetHTTP1(!http2)
					protocols.SetHTTP2(http2 && overTLS)
					protocols.SetUnencryptedHTTP2(http2 && !overTLS)
					srv := &http.Server{
						Protocols: protocols,
						TLSConfig: serverTLS.Clone(),
						ConnContext: func(ctx context.Context, c net.Conn) context.Context {
							return context.WithValue(ctx, connKey{}, c)
						},
						Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							fmt.Fprint(w, describeTLVs(r.Context().Value(connKey{}).(net.Conn)))
						}),
					}
					testnet.ServeWeb(t, way.wrap(srv), ln, overTLS)
					c := testnet.Dial(t, ln)
					if _, err := io.WriteString(c, header); err != nil {
						t.Fatal(err)
					}
					get := getHTTP2(t, c, clientTLS, testnet.URL(ln, overTLS, ""))
					if !http2 && overTLS {
						c = tls.Client(c, clientTLS)
					}
					if !http2 {
						get = testnet.KeepAlive(t, c)
					}
					for range 3 {
						if got := get("/"); got != wantTLVs {
							t.Errorf("got %q, want %q", got, wantTLVs)
						}
					}
				})
			}
		}
	}
}

// getHTTP2 returns a function that makes a request over HTTP/2 on a connection, and returns the body.
func getHTTP2(t *testing.T, c net.Conn, config *tls.Config, base string) func(path string) string {
	conns, ended := make(chan net.Conn, 1), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	conns <- c
	transport := &http.Transport{
		Protocols: new(http.Protocols), TLSClientConfig: config.Clone(),
		// net/http may begin to dial for a call just before it knows that the first connection can be
		// shared, and then uses that. A call that needs a second connection fails when its time is over.
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-conns:
				return c, nil
			case <-ended:
				return nil, errors.New("the client wants a second connection")
			}
		},
	}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return func(path string) string {
		t.Helper()
		r, err := (&http.Client{Transport: transport, Timeout: testnet.HangTimeout}).Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ProtoMajor != 2 {
			t.Errorf("got %s, %v, want all of an answer over HTTP/2", r.Proto, err)
		}
		return string(body)
	}
}
