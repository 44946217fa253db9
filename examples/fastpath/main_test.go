package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestServe(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := newServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()

	client := &http.Client{Transport: &http.Transport{}}
	get := func(path, body string) string {
		t.Helper()
		resp, err := client.Post("http://"+ln.Addr().String()+path, "text/plain", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := get("/", "chunks"); got != "hello\n" {
		t.Errorf("got %q, want hello: net/http serves chunked bodies", got)
	}
	if got := get("/stats", ""); !strings.Contains(got, "requests served on the fast path") {
		t.Errorf("got %q, want the counters", got)
	}
	client.CloseIdleConnections()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := testnet.Receive(t, "the server's end", done); err != http.ErrServerClosed {
		t.Errorf("got %v, want %v", err, http.ErrServerClosed)
	}
}
