//go:build !percore_net

package http2

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// wrappedConn is a connection of the user's own type.
type wrappedConn struct{ net.Conn }

func dialWrapped(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wrappedConn{c}, nil
}

// TestDialers: whatever dials, requests are served here, over connections that are used again, and come
// to the same.
func TestDialers(t *testing.T) {
	var unix net.Listener
	old := func(base *http.Transport, d dialFunc) {
		//lint:ignore SA1019 programs still use it
		base.Dial = func(network, addr string) (net.Conn, error) { return d(context.Background(), network, addr) }
	}
	for name, dial := range map[string]dialFunc{
		"net's":     new(net.Dialer).DialContext,
		"percore's": new(percore.Dialer).DialContext,
		"a function": func(ctx context.Context, n, a string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, n, a)
		},
		"wrapped":          dialWrapped,
		"wrapped, by Dial": dialWrapped,
		"unix": func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", unix.Addr().String())
		},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				server, _, _ := secured(t, secure)
				base := func() *http.Transport {
					base := new(http.Transport)
					if secure {
						_, client := testnet.TLS(t)
						client.InsecureSkipVerify = true
						base.TLSClientConfig = client
					}
					if strings.HasSuffix(name, "Dial") {
						old(base, dial)
					} else {
						base.DialContext = dial
					}
					return base
				}
				ln := listen(t)
				if name == "unix" {
					unix = testnet.Listen(t, net.Listen, testnet.Unix)
					ln = unix
				}
				newHostileOn(t, ln, server, answerBody)
				url := testnet.URL(ln, secure, "/")
				if name == "unix" {
					url = strings.Replace(url, ln.Addr().String(), "127.0.0.1:1", 1)
				}
				both(t, base, func(t *testing.T, rt http.RoundTripper) string { return postAll(t, rt, url) })
			})
		}
	}
}

// answerBody answers a request with its body.
func answerBody(c net.Conn, request string) bool {
	_, body, _ := strings.Cut(request, "\r\n\r\n")
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return err == nil
}

// postAll posts bodies of each kind to a server that answers with them, and returns what comes of it.
func postAll(t *testing.T, rt http.RoundTripper, url string) (all string) {
	t.Helper()
	for _, body := range []io.Reader{nil, strings.NewReader("short"), io.MultiReader(strings.NewReader("chunks")), strings.NewReader(strings.Repeat("long", 100_000))} {
		all += traced(rt, url, withBody(func() io.Reader { return body }))
	}
	if ours, ok := rt.(*Transport); ok && len(ours.Stats().Declined) > 0 {
		t.Errorf("%v were not served here", ours.Stats().Declined)
	}
	return all
}

// TestConnEnds: what ends an idle connection does so over one of any type: the server, bytes without a
// request, IdleConnTimeout, CloseIdleConnections. TestStall has what ends a call.
func TestConnEnds(t *testing.T) {
	for _, mode := range []string{"clear", "TLS", "wrapped, clear", "wrapped, TLS", "dials TLS"} {
		t.Run(mode, func(t *testing.T) {
			isClear := strings.HasSuffix(mode, "clear")
			server, _, _ := secured(t, !isClear)
			base := func() *http.Transport {
				base := new(http.Transport)
				if strings.HasPrefix(mode, "wrapped") {
					base.DialContext = dialWrapped
				}
				if isClear {
					return base
				}
				_, config := testnet.TLS(t)
				if config.InsecureSkipVerify = true; mode != "dials TLS" {
					base.TLSClientConfig = config
				} else {
					base.DialTLSContext = (&tls.Dialer{Config: config}).DialContext
				}
				return base
			}
			const answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
			idleEnds := func(name string, change func(*http.Transport), end func(tr *Transport, c net.Conn)) {
				conns := make(chan net.Conn, 1)
				h := newHostileOver(t, server, func(c net.Conn, _ string) bool {
					_, _ = io.WriteString(c, answer)
					conns <- c
					return true
				})
				b := base()
				change(b)
				tr := New(b)
				tr.CloseIdleConnections() // later ones are kept
				if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
					t.Fatal(name, got)
				}
				if err := emptyPool(tr); err == nil && b.IdleConnTimeout == 0 {
					t.Errorf("%s: the connection is not idle", name)
				}
				end(tr, <-conns)
				testnet.Eventually(t, name+": the connection is closed", func() bool { return tr.Stats().Conns == 0 && emptyPool(tr) == nil })
				testnet.Within(t, name+": the server has found it", h.Await)
			}
			quiet(t)
			idleEnds("the server", func(*http.Transport) {}, func(_ *Transport, c net.Conn) { c.Close() })
			idleEnds("bytes", func(*http.Transport) {}, func(_ *Transport, c net.Conn) { _, _ = io.WriteString(c, answer) })
			idleEnds("IdleConnTimeout", func(base *http.Transport) { base.IdleConnTimeout = time.Millisecond }, func(*Transport, net.Conn) {})
			idleEnds("CloseIdleConnections", func(*http.Transport) {}, func(tr *Transport, _ net.Conn) { tr.CloseIdleConnections() })
		})
	}
}

// TestOtherConnBubble: connections of net.Pipe are served in a bubble, whose time ends them.
func TestOtherConnBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		var dials atomic.Int32
		tr := New(&http.Transport{IdleConnTimeout: time.Minute, DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			client, server := net.Pipe()
			served.Go(func() {
				defer server.Close()
				for br := bufio.NewReader(server); ; {
					if _, err := http.ReadRequest(br); err != nil {
						return
					}
					_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
				}
			})
			return client, nil
		}})
		get := func(want int32) {
			t.Helper()
			if got := result(tr, "GET", "http://host/"); !strings.Contains(got, `body "hi"`) || dials.Load() != want {
				t.Errorf("got %s by %d dials, want %d", got, dials.Load(), want)
			}
		}
		get(1)
		time.Sleep(time.Minute - 1)
		get(1)
		time.Sleep(time.Minute + 1)
		get(2)
		tr.CloseIdleConnections()
		served.Wait()
	})
}

// keepingConn keeps what it is given to write, and what it is given to read into.
type keepingConn struct {
	net.Conn
	mu   sync.Mutex
	kept [][]byte
}

func (c *keepingConn) keep(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, p)
}

func (c *keepingConn) Read(p []byte) (int, error) {
	c.keep(p)
	return c.Conn.Read(p)
}

func (c *keepingConn) Write(p []byte) (int, error) {
	c.keep(p)
	return c.Conn.Write(p)
}

// TestOtherConnKeeps: memory that a connection of the user's has been given is not another one's later.
func TestOtherConnKeeps(t *testing.T) {
	const secret = "secret"
	var keeper *keepingConn
	h := newHostile(t, answerBody)
	tr := New(&http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, h.Addr().String())
		if keeper == nil && err == nil {
			keeper = &keepingConn{Conn: c}
			return keeper, nil
		}
		return c, err
	}})
	defer tr.CloseIdleConnections()
	post := func(host, body string) {
		t.Helper()
		req, err := http.NewRequest("POST", "http://"+host+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != body || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		resp.Body.Close()
	}
	post("first", "hello")
	for range 100 {
		post("second", secret)
	}
	keeper.mu.Lock()
	defer keeper.mu.Unlock()
	for _, p := range keeper.kept {
		if strings.Contains(string(p[:cap(p)]), secret) {
			t.Fatalf("the first connection has got %q", p)
		}
	}
}

// TestOtherConnDeadline: a deadline that the user's function has set for a connection ends it, and is
// not taken away.
func TestOtherConnDeadline(t *testing.T) {
	for _, name := range []string{"HTTP/1", "HTTP/2"} {
		t.Run(name, func(t *testing.T) {
			srv, base := newHTTP2Server(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			both(t, func() *http.Transport {
				base := base.Clone()
				base.Protocols = new(http.Protocols)
				base.Protocols.SetHTTP1(name == "HTTP/1")
				base.Protocols.SetHTTP2(name == "HTTP/2")
				base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					if err == nil {
						err = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
					}
					return c, err
				}
				return base
			}, func(t *testing.T, rt http.RoundTripper) string {
				resp, err := rt.RoundTrip(newGet(t, srv.URL))
				if err != nil {
					return describe(err)
				}
				defer resp.Body.Close()
				_, err = io.ReadAll(resp.Body)
				var timeout interface{ Timeout() bool }
				return fmt.Sprint(errors.As(err, &timeout) && timeout.Timeout())
			})
		})
	}
}
