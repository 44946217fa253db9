package main

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestEvents: a browser gets the news, and one that comes back what it has missed. When the server ends
// it is told.
func TestEvents(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := newServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	defer server.Close()
	url := "http://" + ln.Addr().String()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

	post := func(text string) {
		t.Helper()
		resp, err := c.Post(url, "text/plain", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("got %s", resp.Status)
		}
	}
	listen := func(lastID string) (want func(lines ...string)) {
		t.Helper()
		req, err := http.NewRequest("GET", url+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Last-Event-ID", lastID)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		lines := bufio.NewScanner(resp.Body)
		return func(all ...string) {
			t.Helper()
			for _, line := range all {
				for lines.Scan() && (lines.Text() == "" || strings.HasPrefix(lines.Text(), "retry: ")) {
				}
				if got := lines.Text(); got != line {
					t.Errorf("got %q, want %q", got, line)
				}
			}
		}
	}
	want := listen("")
	testnet.Eventually(t, "the browser waits", func() bool { return server.Stats().Detached == 1 })
	post("it rains")
	want("id: 1", "data: it rains")
	post("still")
	want("id: 2", "data: still")
	again := listen("1")
	again("id: 2", "data: still")
	if err := server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	want("")
	again("")
	if err := testnet.Receive(t, "the server's end", done); err != http.ErrServerClosed {
		t.Errorf("got %v", err)
	}
}
