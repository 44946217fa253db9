package httpadapter

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// globalServers are in no span of the heap, which weak pointers and cleanups must stand. Each run of
// TestServe shuts one down.
var (
	globalServers     [100]http.Server
	globalServersUsed int
)

// TestServe serves two listeners of one http.Server, with the same Server, and shuts them down with the
// http.Server's method.
func TestServe(t *testing.T) {
	global := &globalServers[globalServersUsed%len(globalServers)]
	globalServersUsed++
	global.Handler = http.HandlerFunc(echoPath)
	for name, srv := range map[string]*http.Server{"heap": {Handler: http.HandlerFunc(echoPath)}, "global": global} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error)
			for range 2 {
				ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
				go func() { failed <- Serve(srv, ln) }()
				resp, err := http.Get("http://" + ln.Addr().String() + "/a")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			s := serverOf(srv)
			if got := s.Stats().Requests; canPark && got != 2 {
				t.Errorf("got %d requests counted by one Server, want 2", got)
			}
			if err := srv.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("got the error %v from Serve, want that of a server that was shut down", err)
				}
			}
		})
	}
	for name, err := range map[string]error{
		"Serve, server":   Serve(nil, nil),
		"Serve, listener": Serve(new(http.Server), nil),
		"ServeTLS":        ServeTLS(nil, nil, "", ""),
	} {
		if err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: got the error %v for nil, want one that says so", name, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestWrappedServesItself gives Serve an http.Server that was wrapped with options.
func TestWrappedServesItself(t *testing.T) {
	srv := &http.Server{}
	if s := Wrap(srv); serverOf(srv) != s {
		t.Error("got another Server than the one of Wrap")
	}
}

// TestForgotten lets the garbage collector have an http.Server that was wrapped.
func TestForgotten(t *testing.T) {
	key := func() weak.Pointer[http.Server] {
		srv := &http.Server{}
		Wrap(srv)
		return weak.Make(srv)
	}()
	testnet.Eventually(t, "nothing keeps the server", func() bool {
		runtime.GC()
		enrolled.Lock()
		defer enrolled.Unlock()
		_, known := enrolled.servers[key]
		return !known && key.Value() == nil
	})
}
