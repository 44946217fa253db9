package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestProxy: requests go to one server after the other, and past one that is down.
func TestProxy(t *testing.T) {
	var servers []string
	for i := range 2 {
		backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %s %s", i, r.URL, body)
		}))
		defer backend.Close()
		servers = append(servers, backend.Listener.Addr().String())
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	proxy := newProxy(append(servers, gone.Listener.Addr().String()))
	defer proxy.Transport.(*backends).transport.(*httpadapter.Transport).CloseIdleConnections()

	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := &http.Server{Handler: proxy}
	done := make(chan error, 1)
	go func() { done <- httpadapter.Serve(srv, ln) }()
	client := &http.Client{Transport: httpadapter.NewTransport(nil)}
	defer client.CloseIdleConnections()

	answers := make(map[string]int)
	for range 10 {
		resp, err := client.Get("http://" + ln.Addr().String() + "/path?query")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		answers[string(body)]++
	}
	if len(answers) != 2 || answers["0 /path?query "] == 0 || answers["1 /path?query "] == 0 {
		t.Errorf("got %v, want answers of both servers", answers)
	}
	down := 0
	for _, b := range proxy.Transport.(*backends).all {
		if b.downUntil.Load() > 0 {
			b.downUntil.Store(math.MaxInt64) // however slow the computer is
			down++
		}
	}
	if down != 1 {
		t.Errorf("got %d servers that are down, want 1", down)
	}
	resp, err := client.Post("http://"+ln.Addr().String()+"/", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); !strings.HasSuffix(string(body), " / hello") {
		t.Errorf("got %q, want the body back", body)
	}
	srv.Close()
	if err := testnet.Receive(t, "the server's end", done); err != http.ErrServerClosed {
		t.Errorf("got %v, want %v", err, http.ErrServerClosed)
	}
}
