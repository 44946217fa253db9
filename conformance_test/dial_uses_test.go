package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A dialUse is the package that dials, net or percore, and the server's engine. A library must
// do the same with a dialed connection on either.
type dialUse struct {
	name   string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	server engine
}

// onEachDialUse runs test with net's dialer, for comparison, and with percore's dialer and a server
// on either engine.
func onEachDialUse(t *testing.T, test func(t *testing.T, u dialUse)) {
	for _, u := range []dialUse{
		{"net to net", new(net.Dialer).DialContext, netEngine},
		{"percore to net", new(percore.Dialer).DialContext, netEngine},
		{"percore to percore", new(percore.Dialer).DialContext, percoreEngine},
	} {
		t.Run(u.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			test(t, u)
		})
	}
}

// dialedWeb is startWeb with a client that dials through u, and a count of the dials.
func dialedWeb(t *testing.T, u dialUse, p protocol, handler http.Handler) (w *web, dials *atomic.Int32) {
	t.Helper()
	w, dials = startWeb(t, u.server, p, handler), new(atomic.Int32)
	w.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials.Add(1)
		return u.dial(ctx, w.ln.Addr().Network(), w.ln.Addr().String())
	}
	return w, dials
}

// TestDialHTTPTransport sends bodies of all sizes, one after the other, on connections that the
// transport reuses, and abandons a response halfway.
func TestDialHTTPTransport(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		for _, p := range protocols {
			t.Run(p.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				gone := make(chan struct{})
				w, dials := dialedWeb(t, u, p, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/endless" {
						echo(rw, r)
						return
					}
					defer close(gone)
					for r.Context().Err() == nil {
						if _, err := rw.Write(pattern(10_000)); err != nil {
							break
						}
					}
					// The TLS client sends a closing alert before it closes. It must not take the
					// handler's return for the regular end.
					panic(http.ErrAbortHandler)
				}))
				requests := int32(0)
				for _, size := range []int{0, 1, 4096, 70_000, 3 << 20} {
					for _, body := range []io.Reader{bytes.NewReader(pattern(size)), onlyReader{bytes.NewReader(pattern(size))}} {
						requests++
						resp, err := w.client.Post(w.url, "application/octet-stream", body)
						if err != nil {
							t.Fatalf("body of %d: %v", size, err)
						}
						if got := readResponse(t, resp); got != string(pattern(size)) {
							t.Errorf("got %s, want %s", digest([]byte(got)), digest(pattern(size)))
						}
					}
				}
				// There is nearly always one. The transport dials again if a request overtakes the
				// goroutine that would have put the connection back (Transport.dialConnFor for
				// HTTP/2, persistConn.wroteRequest).
				if got := dials.Load(); got > requests/2 {
					t.Errorf("got %d connections for %d requests, want them used again", got, requests)
				}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, "GET", w.url+"/endless", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := w.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.CopyN(io.Discard, resp.Body, 100_000); err != nil {
					t.Errorf("reading: %v", err)
				}
				cancel()
				if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.Canceled) {
					t.Errorf("reading on: got %v, want context.Canceled", err)
				}
				resp.Body.Close()
				testnet.Receive(t, "the end of the handler", gone)
			})
		}
	})
}

// TestDialReverseProxy: httputil's proxy dials the server behind it. It transfers bodies, and an
// upgraded connection, which it copies between an accepted connection and a dialed one.
func TestDialReverseProxy(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		backend, _ := dialedWeb(t, u, protocols[0], http.HandlerFunc(digestOrUpgrade))
		front, _ := dialedWeb(t, u, protocols[0], backend.proxy(t))
		front.tryBodies(t, 0, 10, 2<<20)
		tryUpgrade(t, front)
	})
}

// TestDialTLS runs a TLS client on a dialed connection, as tls.Dialer does on a connection of
// package net.
func TestDialTLS(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		serverConfig, clientConfig := testnet.TLS(t)
		ln := tls.NewListener(testnet.Listen(t, u.server.listen, testnet.TCP4), serverConfig)
		served := make(chan error, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				served <- err
				return
			}
			defer c.Close()
			_, err = io.Copy(c, c)
			served <- err
		}()
		raw, err := u.dial(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, clientConfig)
		defer c.Close()
		if err := c.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.NetConn() != raw {
			t.Errorf("NetConn: got %v, want the dialed connection", c.NetConn())
		}
		for _, size := range []int{1, 20_000, 1 << 20} {
			go c.Write(pattern(size))
			got := make([]byte, size)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, pattern(size)) {
				t.Errorf("message of %d: got %s, %v, want it back", size, digest(got), err)
			}
		}
		if err := c.CloseWrite(); err != nil {
			t.Errorf("CloseWrite: %v", err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end: got %d, %v, want io.EOF", n, err)
		}
		if err := testnet.Receive(t, "the server's end", served); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
}
