//go:build !percore_net

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// start starts the server with a certificate, and returns it with the address of its other pages and a
// client.
func start(t *testing.T, args ...string) (server *testnet.Restarts, admin string, client *http.Client) {
	t.Helper()
	config, clientConfig := testnet.TLS(t)
	pair := config.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, data []byte) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	admin = testnet.Reserve(t)
	server = testnet.StartRestarts(t, "PRODUCTION_EXAMPLE=1", append(args, "-any-parent", "-addr", "127.0.0.1:0", "-admin", admin,
		"-cert", write("cert.pem", "CERTIFICATE", pair.Certificate[0]), "-key", write("key.pem", "PRIVATE KEY", key))...)
	clientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	transport := &http.Transport{TLSClientConfig: clientConfig}
	t.Cleanup(transport.CloseIdleConnections)
	return server, admin, &http.Client{Transport: transport, Timeout: testnet.HangTimeout}
}

// get returns the answer's status and body, and whether its connection has resumed a session.
func get(client *http.Client, url string) (status int, body string, resumed bool, err error) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, "", false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), resp.TLS != nil && resp.TLS.DidResume, err
}

// A client that sends requests all the time loses none in a restart, and resumes its session.
func TestRestart(t *testing.T) {
	server, _, client := start(t)
	url := "https://" + server.Address + "/"
	if _, body, _, err := get(client, url); err != nil || body != fmt.Sprintln("hello from process", server.PID) {
		t.Fatalf("got %q, %v", body, err)
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if status, _, _, err := get(client, url); err != nil || status != http.StatusOK {
				t.Errorf("during the restart: got %d, %v", status, err)
				return
			}
		}
	})
	server.Restart()
	if err := server.WaitFirst(); err != nil {
		t.Errorf("the first process: %v", err)
	}
	close(stop)
	busy.Wait()
	client.CloseIdleConnections()
	_, body, resumed, err := get(client, url)
	if err != nil || body != fmt.Sprintln("hello from process", server.PID) || !resumed {
		t.Errorf("after the restart: got %q, resumed %t, %v", body, resumed, err)
	}
}

// SIGTERM makes /ready fail while requests are served on; without a delay the process ends by itself.
func TestDrain(t *testing.T) {
	server, admin, client := start(t, "-drain-delay", "1h")
	ready := "http://" + admin + "/ready"
	if status, _, _, err := get(client, ready); status != http.StatusOK {
		t.Fatalf("/ready: got %d, %v", status, err)
	}
	_ = syscall.Kill(server.PID, syscall.SIGTERM)
	testnet.Eventually(t, "/ready to fail", func() bool {
		status, _, _, _ := get(client, ready)
		return status == http.StatusServiceUnavailable
	})
	if status, _, _, err := get(client, "https://"+server.Address+"/"); status != http.StatusOK {
		t.Errorf("during the delay: got %d, %v", status, err)
	}

	server, _, _ = start(t)
	_ = syscall.Kill(server.PID, syscall.SIGTERM)
	if err := server.WaitFirst(); err != nil {
		t.Errorf("without a delay: %v", err)
	}
}
