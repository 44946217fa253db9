package testnet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// TLS returns matching configurations for both sides of a connection: a server certificate for
// localhost, 127.0.0.1 and ::1, made once per process, and a client that trusts it and nothing
// else. The caller may modify both.
func TLS(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	id, err := selfSigned()
	if err != nil {
		t.Fatalf("making a certificate: %v", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{id.cert}},
		&tls.Config{RootCAs: id.roots, ServerName: "localhost"}
}

// identity is a certificate with its key, and the pool that trusts it.
type identity struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

var selfSigned = sync.OnceValues(makeIdentity)

func makeIdentity() (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "percore test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return identity{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return identity{}, fmt.Errorf("parsing our own certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots}, nil
}
