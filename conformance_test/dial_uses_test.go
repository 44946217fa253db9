package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

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

// TestDialHTTPManyAtOnce runs many requests at once.
func TestDialHTTPManyAtOnce(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		w, _ := dialedWeb(t, u, protocols[0], http.HandlerFunc(echo))
		w.transport.MaxIdleConnsPerHost = 4 // so that others are closed and dialed again
		var all sync.WaitGroup
		const clients, requests = 16, 20
		for i := range clients {
			all.Go(func() {
				for j := range requests {
					text := fmt.Sprintf("request %d of client %d", j, i)
					resp, err := w.client.Post(w.url, "text/plain", strings.NewReader(text))
					if err != nil {
						t.Errorf("%s: %v", text, err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if string(body) != text || err != nil {
						t.Errorf("%s: got %q, %v", text, body, err)
					}
				}
			})
		}
		testnet.Within(t, "all requests", all.Wait)
	})
}

// TestDialHTTPServerCloses: the server closes a connection that the client believes it can reuse.
// The transport notices, and dials.
func TestDialHTTPServerCloses(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		closed := make(chan net.Conn, 1)
		w, dials := dialedWeb(t, u, protocols[0], http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			conn, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(buffered, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			buffered.Flush()
			closed <- conn
		}))
		for n := range int32(3) {
			if got := w.get(t, "/"); got != "ok" {
				t.Errorf("got %q, want ok", got)
			}
			testnet.Receive(t, "the connection", closed).Close()
			if got := dials.Load(); got != n+1 {
				t.Errorf("got %d connections, want %d", got, n+1)
			}
		}
	})
}

// TestDialHTTPProxy reaches servers through a proxy. For a plain server it requests the whole URL.
// For a TLS server it uses CONNECT, for which the proxy dials, too.
func TestDialHTTPProxy(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		for _, p := range []protocol{protocols[0], protocols[2], protocols[3]} {
			t.Run(p.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				backend, _ := dialedWeb(t, u, p, http.HandlerFunc(digestOrPattern))
				address := backend.ln.Addr().String()
				var forwarded atomic.Int32
				forward := &httputil.ReverseProxy{
					Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Host = address },
					Transport: backend.transport,
				}
				front, dials := dialedWeb(t, u, protocols[0], http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					forwarded.Add(1)
					if r.Method == http.MethodConnect {
						tunnel(t, u, rw, address)
						return
					}
					forward.ServeHTTP(rw, r)
				}))
				proxied := front.transport
				proxied.Protocols = p.enabled()
				proxied.TLSClientConfig = backend.transport.TLSClientConfig
				proxied.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: front.ln.Addr().String()})
				resp, err := front.client.Get(backend.url + "/10")
				if err != nil {
					t.Fatal(err)
				}
				if got := readResponse(t, resp); resp.ProtoMajor != p.major || got != string(pattern(10)) {
					t.Errorf("got %s, %s, want HTTP/%d, %s", resp.Proto, digest([]byte(got)), p.major, digest(pattern(10)))
				}
				proxiedWeb := &web{client: front.client, url: backend.url}
				proxiedWeb.tryBodies(t, 10, 200_000)
				if forwarded.Load() == 0 || dials.Load() == 0 {
					t.Errorf("got %d requests at the proxy, on %d connections, want some", forwarded.Load(), dials.Load())
				}
			})
		}
	})
}

// tunnel answers a CONNECT: it dials address and copies both ways until both
// have ended.
func tunnel(t *testing.T, u dialUse, rw http.ResponseWriter, address string) {
	far, err := u.dial(context.Background(), "tcp", address)
	if err != nil {
		t.Error(err)
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer near.Close()
	io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	var copies sync.WaitGroup
	copies.Go(func() {
		io.Copy(far, buffered)
		far.(interface{ CloseWrite() error }).CloseWrite()
	})
	copies.Go(func() {
		io.Copy(near, far)
		near.(interface{ CloseWrite() error }).CloseWrite()
	})
	copies.Wait()
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

// TestDialGRPC connects a gRPC client using grpc.WithContextDialer, which passes its own forms of
// addresses.
func TestDialGRPC(t *testing.T) {
	for _, test := range []struct {
		name   string
		kind   testnet.Kind
		target string // ADDRESS stands for the listener's
		secure bool
	}{
		{"passthrough", testnet.TCP4, "passthrough:///ADDRESS", false},
		{"passthrough over TLS", testnet.TCP4, "passthrough:///ADDRESS", true},
		{"dns", testnet.TCP4, "dns:///ADDRESS", false},
		{"IPv6", testnet.TCP6, "ADDRESS", false},
		{"unix", testnet.Unix, "unix:ADDRESS", false},
		{"unix over TLS", testnet.Unix, "unix:ADDRESS", true},
		{"unix with an empty authority", testnet.Unix, "unix://ADDRESS", false},
		{"unix, passed through", testnet.Unix, "passthrough:///unix://ADDRESS", false},
		{"abstract", testnet.Abstract, "unix-abstract:ADDRESS", false},
	} {
		for _, server := range engines {
			t.Run(test.name+"/"+server.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
				if test.secure {
					serverConfig, clientConfig := testnet.TLS(t)
					serverCredentials, clientCredentials = credentials.NewTLS(serverConfig), credentials.NewTLS(clientConfig)
				}
				ln := testnet.Listen(t, server.listen, test.kind)
				srv := grpc.NewServer(grpc.Creds(serverCredentials), grpc.MaxRecvMsgSize(muchData+1000))
				srv.RegisterService(&echoService, nil)
				served := make(chan error, 1)
				go func() { served <- srv.Serve(ln) }()
				defer func() {
					srv.Stop()
					if err := testnet.Receive(t, "Serve ending", served); err != nil {
						t.Errorf("Serve: got %v, want nil", err)
					}
				}()
				var dialed atomic.Pointer[string]
				target := strings.Replace(test.target, "ADDRESS", strings.TrimPrefix(ln.Addr().String(), "@"), 1)
				cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(clientCredentials),
					grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(muchData+1000)),
					grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
						c, err := new(percore.Dialer).DialTarget(ctx, target)
						kind := fmt.Sprintf("%T", c)
						dialed.Store(&kind)
						return c, err
					}))
				if err != nil {
					t.Fatal(err)
				}
				defer cc.Close()
				ctx := callContext(t)
				for _, size := range []int{0, 1000, 3 << 20} {
					if err := echoUnary(ctx, cc, pattern(size)); err != nil {
						t.Fatalf("unary of %d: %v", size, err)
					}
				}
				if err := converse(ctx, cc, 50, 1000); err != nil {
					t.Errorf("stream: %v", err)
				}
				if got := dialed.Load(); got == nil || *got != "*percore.Conn" {
					t.Errorf("got a connection of type %v, want a *percore.Conn", got)
				}
			})
		}
	}
}
