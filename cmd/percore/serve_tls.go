package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/percore/percore/tlsfiles"
)

// selfSignedLife is how long a certificate that serve makes is valid: longer than a demonstration
// runs.
const selfSignedLife = 30 * 24 * time.Hour

// certificatePause is the time between two looks at the files of -tls. Kubernetes takes a minute to
// bring a new certificate into a container.
const certificatePause = 5 * time.Second

// openTLS reads the files of -tls. Without a certificate it makes one for this run.
func (d *demo) openTLS() (err error) {
	paths := tlsfiles.Paths{Cert: d.opts.certFile, Key: d.opts.keyFile, Secrets: d.opts.ticketKeys}
	if paths.Cert == "" {
		made, err := selfSigned(d.opts.httpAddress)
		if err != nil {
			return err
		}
		paths.Certificate = &made
	}
	if d.tls, err = tlsfiles.Open(paths, d.log); err != nil {
		return fmt.Errorf("-tls: %w", err)
	}
	return nil
}

// selfSigned makes a certificate for the names of this machine and the host in an address. The key
// exists only in this process.
func selfSigned(address string) (cert tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return cert, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "percore serve, self-signed"},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.Add(selfSignedLife),
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if host, _, _ := net.SplitHostPort(address); net.ParseIP(host) != nil {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(host))
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return cert, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// fingerprint returns the SHA-256 of a certificate. Browsers show it too, so people can recognize
// the certificate.
func fingerprint(cert *tls.Certificate) string {
	return fmt.Sprintf("% X", sha256.Sum256(cert.Certificate[0]))
}
