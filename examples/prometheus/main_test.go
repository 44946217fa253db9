package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestServe(t *testing.T) {
	ln, adminListener := testnet.Listen(t, percore.Listen, testnet.TCP4), testnet.Listen(t, net.Listen, testnet.TCP4)
	server, admin := newServers()
	done := make(chan error, 2)
	go func() { done <- server.Serve(ln) }()
	go func() { done <- admin.Serve(adminListener) }()

	client := &http.Client{Transport: &http.Transport{}}
	get := func(ln net.Listener, path string) string {
		t.Helper()
		resp, err := client.Get("http://" + ln.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s, %v, want 200", path, resp.Status, err)
		}
		return string(body)
	}
	if got := get(ln, "/"); got != "hello\n" {
		t.Errorf("got %q, want hello", got)
	}
	metrics := get(adminListener, "/metrics")
	for _, want := range []string{`http_requests_total{code="200",method="get"} 1`, "percore_accepted_connections_total ", "go_goroutines "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %q", want)
		}
	}
	for path, want := range map[string]string{"/debug/percore": "<title>", "/debug/percore?format=json": `"Stats"`, "/debug/pprof/": "goroutine"} {
		if got := get(adminListener, path); !strings.Contains(got, want) {
			t.Errorf("%s: got %.80q, want %q in it", path, got, want)
		}
	}

	client.CloseIdleConnections()
	if err := errors.Join(server.Shutdown(t.Context()), admin.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := testnet.Receive(t, "a server's end", done); err != http.ErrServerClosed {
			t.Errorf("got %v, want %v", err, http.ErrServerClosed)
		}
	}
}
