package main

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	// fasthttp's first answer starts the goroutine that updates the date, which never ends.
	new(fasthttp.ResponseHeader).Header()
	testnet.Main(m)
}

func TestServe(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := newServer()
	server.MaxIdleWorkerDuration = time.Millisecond // its workers end that long after the server
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()

	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + ln.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := "hello\n"; err != nil || string(body) != want {
		t.Errorf("got %q, %v, want %q", body, err, want)
	}
	client.CloseIdleConnections()
	if err := server.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := testnet.Receive(t, "the server's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
