package httpadapter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// SetKeepAlivesEnabled(false), Shutdown and Close close the connections that wait without net/http
// before they return, also if they are the http.Server's own. Serve ends with the last two.
func TestOwnMethodsCloseIdle(t *testing.T) {
	type server interface {
		SetKeepAlivesEnabled(bool)
		Shutdown(context.Context) error
		Close() error
	}
	for name, call := range map[string]func(s server) error{
		"SetKeepAlivesEnabled": func(s server) error { s.SetKeepAlivesEnabled(false); return nil },
		"Shutdown":             func(s server) error { return s.Shutdown(t.Context()) },
		"Close":                func(s server) error { return s.Close() },
	} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the http.Server's own %t", name, own), func(t *testing.T) {
				needParking(t)
				f := start(t, echoPath, nil)
				clients := []*client{f.dial(), f.dial(), f.dial()}
				for _, c := range clients {
					c.get("/")
				}
				f.awaitParked(len(clients))
				keeps := name == "SetKeepAlivesEnabled" // those that have had no request
				if !keeps {
					clients = append(clients, f.dial())
					f.awaitWaiting(1)
				}
				var s server = f.server
				if own {
					s = f.srv
				}
				if err := call(s); err != nil {
					t.Error(err)
				}
				if got := f.server.Stats(); got.Parked > 0 {
					t.Errorf("%d connections are parked, want none", got.Parked)
				}
				for _, c := range clients {
					c.awaitEOF()
				}
				f.wantClosedOnce()
				if keeps {
					return
				}
				f.wantServed(http.ErrServerClosed)
				if err := f.server.Serve(f.ln); err != http.ErrServerClosed {
					t.Errorf("Serve again: got %v, want http.ErrServerClosed", err)
				}
			})
		}
	}
}

// A request that comes after keep-alives were turned on keeps its connection, though requests before it
// still ask whether they are on.
func TestOwnKeepAlivesAsked(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil)
	for range 20 {
		f.srv.SetKeepAlivesEnabled(false)
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				c, err := net.Dial("tcp", f.ln.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = io.WriteString(c, strings.Repeat(request("/off"), 2))
				_, _ = io.Copy(io.Discard, io.LimitReader(c, 1))
			})
		}
		f.dial().get("/off")
		f.srv.SetKeepAlivesEnabled(true)
		c := f.dial()
		for range 2 {
			c.get("/on")
		}
		c.Close()
		asking.Wait()
	}
}

// No hook or handler sees the connections in memory, though the handler takes OPTIONS *. Shutting
// down does not wait for them.
func TestGuardsUnnoticed(t *testing.T) {
	needParking(t)
	for _, handled := range []bool{false, true} {
		requests := make(chan string, 10)
		f := start(t, func(rw http.ResponseWriter, r *http.Request) { requests <- r.RequestURI }, func(f *fixture) {
			f.srv.DisableGeneralOptionsHandler = handled
			f.srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
		})
		f.dial().get("/a")
		f.awaitParked(1)
		if got := <-requests; got != "/a" || len(requests) > 0 {
			t.Errorf("the handler got %s and %d more requests, want /a alone", got, len(requests))
		}
		if got := len(f.snapshot()); got != 1 {
			t.Errorf("ConnState got %d connections, want 1", got)
		}
		f.shutdown()
		if f.log.String() != "" {
			t.Errorf("got the log %q, want none", f.log.String())
		}
	}
}
