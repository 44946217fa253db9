//go:build !percore_net

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	file := testnet.WritePEM(t, config.Certificates[0])
	admin = testnet.Reserve(t)
	server = testnet.StartRestarts(t, "PRODUCTION_EXAMPLE=1", append(args, "-any-parent", "-addr", "127.0.0.1:0", "-admin", admin,
		"-cert", file, "-key", file)...)
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

// The pages for operators are there.
func TestAdmin(t *testing.T) {
	_, admin, client := start(t)
	for path, want := range map[string]string{
		"/metrics": "percore_accepted_connections_total ", "/debug/percore": "<title>", "/debug/pprof/": "goroutine",
	} {
		if status, body, _, err := get(client, "http://"+admin+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, %.80q, %v, want %q in it", path, status, body, err, want)
		}
	}
}

// systemd accepts the units.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the units are checked by systemd-analyze: install the package systemd (Debian)")
	}
	exe, err := os.Executable() // the program isn't installed here
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, unit := range []string{"percore-production.service", "percore-production.socket"} {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, unit)
		if err := os.WriteFile(copied, []byte(strings.Replace(string(text), "/usr/local/bin/percore-production", exe, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
