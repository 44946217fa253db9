package frameworks

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/net/netutil"

	"github.com/percore/percore/internal/testnet"
)

// whoAmI answers with the address that the request seems to come from.
var whoAmI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s", r.RemoteAddr, r.URL.Path)
})

// TestLimitListener allows two connections at once, and a third when one is closed. Parked
// connections would count, too. But this listener wraps its connections, so they are not parked.
func TestLimitListener(t *testing.T) {
	onEachWay(t, func(s *stage) {
		st := s.start(&http.Server{Handler: whoAmI}, setup{around: func(l net.Listener) net.Listener { return netutil.LimitListener(l, 2) }})
		// Accept one after the other: with several sockets, Accept doesn't return connections in
		// the order they arrive.
		var conns []net.Conn
		for range 2 {
			c := s.dial(st)
			conns = append(conns, c)
			get := testnet.KeepAlive(s, c)
			for range 3 {
				s.want("a page", get("/x"), c.LocalAddr().String()+" /x")
			}
		}
		third, answer := s.dial(st), make(chan string, 1)
		testnet.GoBlocked(s, "the third's request", func() {
			fmt.Fprintf(third, "GET /third HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(third), nil)
			if err != nil {
				answer <- err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			answer <- string(body)
		})
		conns[0].Close()
		s.want("the third's page", testnet.Receive(s, "the third's answer", answer), third.LocalAddr().String()+" /third")
		s.note("done")
		if st.adapter != nil {
			if got := st.adapter.Stats(); got.Foreign != 3 {
				s.Errorf("got %+v, want 3 foreign connections", got)
			}
		}
	})
}

// TestProxyProtocol: requests come from the address in the header before them, in both versions of
// the protocol.
func TestProxyProtocol(t *testing.T) {
	for version := byte(1); version <= 2; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			onEachWay(t, func(s *stage) {
				st := s.start(&http.Server{Handler: whoAmI}, setup{around: func(l net.Listener) net.Listener {
					return &proxyproto.Listener{Listener: l, ReadHeaderTimeout: testnet.HangTimeout}
				}})
				c := s.dial(st)
				from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}
				if _, err := proxyproto.HeaderProxyFromAddrs(version, from, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}).WriteTo(c); err != nil {
					s.Fatal(err)
				}
				get := testnet.KeepAlive(s, c)
				for i := range 3 {
					path := fmt.Sprint("/", i)
					s.expect("192.0.2.7:4711 "+path, "%s", get(path))
				}
			})
		})
	}
}

// TestAutocert serves certificates from autocert's cache: a site's certificate, over HTTP/1 and
// HTTP/2, and the certificate that answers ACME's TLS-ALPN challenge.
func TestAutocert(t *testing.T) {
	const domain = "www.example.org"
	roots, cache := x509.NewCertPool(), &memoryCache{entries: map[string][]byte{}}
	siteCert := cache.put(t, domain, domain)
	tokenCert := cache.put(t, domain+"+token", domain)
	roots.AddCert(siteCert)
	roots.AddCert(tokenCert)
	onEachWay(t, func(s *stage) {
		manager := &autocert.Manager{Prompt: autocert.AcceptTOS, Cache: cache, HostPolicy: autocert.HostWhitelist(domain)}
		srv := &http.Server{Handler: whoAmI, ErrorLog: log.New(io.Discard, "", 0)}
		st := s.start(srv, setup{serverTLS: manager.TLSConfig()})
		shake := func(name string, protocols ...string) (*tls.Conn, error) {
			c := tls.Client(s.dial(st), &tls.Config{RootCAs: roots, ServerName: name, NextProtos: protocols})
			s.Cleanup(func() { c.Close() })
			return c, c.HandshakeContext(s.context())
		}
		for _, protocol := range []string{"http/1.1", "h2", acme.ALPNProto} {
			c, err := shake(domain, protocol)
			if err != nil {
				s.Fatalf("%s: %v", protocol, err)
			}
			state := c.ConnectionState()
			isToken := state.PeerCertificates[0].Equal(tokenCert)
			s.expect(fmt.Sprintf("%s %t", protocol, protocol == acme.ALPNProto), "%s %t", state.NegotiatedProtocol, isToken)
			if protocol != "http/1.1" {
				continue
			}
			get := testnet.KeepAlive(s, c)
			for range 2 {
				s.want("a page", get("/x"), c.LocalAddr().String()+" /x")
				st.awaitParked(1)
			}
		}
		_, err := shake("elsewhere.example.org", "http/1.1")
		s.expect("true", "%t", err != nil)
	})
}

// memoryCache is an autocert.Cache.
type memoryCache struct {
	mu      sync.Mutex
	entries map[string][]byte // guarded by mu
}

// put stores a new certificate for the domain in autocert's format.
func (m *memoryCache) put(t *testing.T, key, domain string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{domain}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), // renewed months from now
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	m.entries[key] = append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privateDER}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	return cert
}

func (m *memoryCache) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if data, ok := m.entries[key]; ok {
		return data, nil
	}
	return nil, autocert.ErrCacheMiss
}

func (m *memoryCache) Put(context.Context, string, []byte) error { return errors.New("read only") }
func (m *memoryCache) Delete(context.Context, string) error      { return errors.New("read only") }
