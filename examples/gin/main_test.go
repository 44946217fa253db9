package main

import (
	"io"
	"net/http"
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
	resp, err := client.Get("http://" + ln.Addr().String() + "/hello/world")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := "hello world\n"; err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}
	client.CloseIdleConnections()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := testnet.Receive(t, "the server's end", done); err != http.ErrServerClosed {
		t.Errorf("got %v, want http.ErrServerClosed", err)
	}
}
