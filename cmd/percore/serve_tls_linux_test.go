//go:build !percore_net

package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A client resumes its session over a restart, on new connections: the secret goes from process to
// process, or comes from the file that they share. So do processes that never knew each other.
func TestServeResumes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{InsecureSkipVerify: true, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
			g := startGenerations(t, "-tls")
			requireResumed(t, g.httpAddress, config, false)
			requireResumed(t, g.httpAddress, config, true)
			for range 2 {
				g.restart()
				requireResumed(t, g.httpAddress, config, true)
			}
			g.stop()
		})
	}
	t.Run("file", func(t *testing.T) {
		config := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		a := startGenerations(t, "-tls", "-tls-ticket-keys", file)
		b := startGenerations(t, "-tls", "-tls-ticket-keys", file)
		requireResumed(t, a.httpAddress, config, false)
		requireResumed(t, b.httpAddress, config, true)
		a.stop()
		b.restart()
		requireResumed(t, b.httpAddress, config, true)
		b.stop()
	})
}

// requireResumed makes a request on a connection of its own, and compares whether that has resumed a
// session.
func requireResumed(t *testing.T, address string, config *tls.Config, want bool) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: testnet.HangTimeout}
	resp, err := client.Get("https://" + address + "/echo")
	if err != nil {
		t.Fatalf("a request: %v", err)
	}
	defer resp.Body.Close()
	if got := resp.TLS.DidResume; got != want {
		t.Errorf("%s: got resumed %t, want %t", address, got, want)
	}
}
