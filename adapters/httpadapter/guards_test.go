package httpadapter

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// The http.Server's own SetKeepAlivesEnabled(false), Shutdown and Close close the connections that wait
// without net/http before they return.
func TestOwnMethodsCloseIdle(t *testing.T) {
	for name, call := range map[string]func(srv *http.Server) error{
		"SetKeepAlivesEnabled": func(srv *http.Server) error { srv.SetKeepAlivesEnabled(false); return nil },
		"Shutdown":             func(srv *http.Server) error { return srv.Shutdown(context.Background()) },
		"Close":                func(srv *http.Server) error { return srv.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			needParking(t)
			f := start(t, echoPath, nil)
			clients := []*client{f.dial(), f.dial(), f.dial()}
			for _, c := range clients {
				c.get("/")
			}
			f.awaitParked(len(clients))
			if err := call(f.srv); err != nil {
				t.Error(err)
			}
			if got := f.server.Stats(); got.Parked > 0 {
				t.Errorf("%d connections are parked, want none", got.Parked)
			}
			for _, c := range clients {
				c.awaitEOF()
			}
		})
	}
}

// While keep-alives are turned off with the http.Server's own method, each request is the
// connection's last. When they are on again, connections wait without goroutines again.
func TestOwnKeepAlives(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil)
	for range 3 {
		f.srv.SetKeepAlivesEnabled(false)
		for range 2 {
			c := f.dial()
			c.send(request("/off"))
			resp, err := http.ReadResponse(c.br, nil)
			if err != nil || !resp.Close {
				t.Fatalf("keep-alives are off: got %+v, %v", resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			c.awaitEOF()
		}
		f.srv.SetKeepAlivesEnabled(true)
		c := f.dial()
		for range 2 {
			c.get("/on")
		}
		f.awaitParked(1)
		c.Close()
		f.awaitParked(0)
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
