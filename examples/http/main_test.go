package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestServe(t *testing.T) {
	cert, key := certificate(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln, newServer(), cert, key) }()

	for _, http2 := range []bool{false, true} {
		_, config := testnet.TLS(t)
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: http2}
		client := &http.Client{Transport: transport}
		resp, err := client.Get("https://" + ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := "hello over HTTP/1.1\n"
		if http2 {
			want = "hello over HTTP/2.0\n"
		}
		if err != nil || string(body) != want {
			t.Errorf("got %q, %v, want %q", body, err, want)
		}
		transport.CloseIdleConnections()
	}

	stop()
	if err := testnet.Receive(t, "the server's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// certificate writes the test certificate and its key to files.
func certificate(t *testing.T) (cert, key string) {
	config, _ := testnet.TLS(t)
	pair := config.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
