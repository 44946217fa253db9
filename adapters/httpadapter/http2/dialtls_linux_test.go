//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/testnet"
)

// namedTLS is a *tls.Conn in a type of the user's own, and statedTLS has nothing of it but its state.
type (
	namedTLS  struct{ *tls.Conn }
	statedTLS struct {
		net.Conn
		state tls.ConnectionState
	}
)

func (c *statedTLS) ConnectionState() tls.ConnectionState { return c.state }

// TestDialTLS: whatever a DialTLSContext of the user's returns, requests are served here, over
// connections that are used again, and come to the same.
func TestDialTLS(t *testing.T) {
	type dialer = func(ctx context.Context, addr string, config *tls.Config) (net.Conn, error)
	over := func(dial dialFunc, wrap func(*tls.Conn) (net.Conn, error)) dialer {
		return func(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
			c, err := dial(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return wrap(tls.Client(c, config))
		}
	}
	netDial, percoreDial := new(net.Dialer).DialContext, new(percore.Dialer).DialContext
	unshaken := func(c *tls.Conn) (net.Conn, error) { return c, nil }
	shaken := func(c *tls.Conn) (net.Conn, error) { return c, c.Handshake() }
	for name, dial := range map[string]dialer{
		"net":                   over(netDial, shaken),
		"net, no handshake":     over(netDial, unshaken),
		"percore":               over(percoreDial, shaken),
		"percore, no handshake": over(percoreDial, unshaken),
		"wrapped":               over(dialWrapped, shaken),
		"an own type":           over(netDial, func(c *tls.Conn) (net.Conn, error) { return &wrappedConn{c}, c.Handshake() }),
		"an own type that tells its TLS": over(netDial, func(c *tls.Conn) (net.Conn, error) {
			return &namedTLS{c}, c.Handshake()
		}),
		"an own type that only tells its TLS": over(netDial, func(c *tls.Conn) (net.Conn, error) {
			err := c.Handshake()
			return &statedTLS{c, c.ConnectionState()}, err
		}),
		"a handshake fails": over(netDial, func(c *tls.Conn) (net.Conn, error) { c.NetConn().Close(); return c, nil }),
		"an error":          func(context.Context, string, *tls.Config) (net.Conn, error) { return nil, errors.New("an error") },
		"nothing":           func(context.Context, string, *tls.Config) (net.Conn, error) { return nil, nil },
		"net's in clear": func(ctx context.Context, addr string, _ *tls.Config) (net.Conn, error) {
			return netDial(ctx, "tcp", addr)
		},
		"percore's in clear": func(ctx context.Context, addr string, _ *tls.Config) (net.Conn, error) {
			return percoreDial(ctx, "tcp", addr)
		},
	} {
		for _, speaksHTTP2 := range []bool{false, true} {
			hidden := name == "an own type" || strings.HasSuffix(name, "tells its TLS") && !request.Drains // Go 1.26
			if hidden && speaksHTTP2 {
				continue // then HTTP/1 is sent to a server that has chosen HTTP/2
			}
			for _, isOld := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/2 %t, DialTLS %t", name, speaksHTTP2, isOld), func(t *testing.T) {
					playDialTLS(t, speaksHTTP2, strings.HasSuffix(name, "in clear"), func(base *http.Transport, config *tls.Config) {
						if isOld {
							//lint:ignore SA1019 programs still use it
							base.DialTLS = func(_, addr string) (net.Conn, error) { return dial(context.Background(), addr, config) }
						} else {
							base.DialTLSContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr, config) }
						}
					})
				})
			}
		}
	}
}

// playDialTLS makes requests with a base that set changes.
func playDialTLS(t *testing.T, speaksHTTP2, clear bool, set func(*http.Transport, *tls.Config)) {
	testnet.NoLeaks(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	defer srv.Close()
	var client *tls.Config
	if srv.TLS, client = testnet.TLS(t); clear {
		srv.Start()
	} else {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	}
	url := "https" + srv.URL[strings.Index(srv.URL, ":"):]
	base := func() *http.Transport {
		base := &http.Transport{ForceAttemptHTTP2: speaksHTTP2}
		config := client.Clone()
		if config.InsecureSkipVerify = true; speaksHTTP2 {
			config.NextProtos = []string{"h2", "http/1.1"}
		}
		set(base, config)
		return base
	}
	both(t, base, func(t *testing.T, rt http.RoundTripper) string { return postAll(t, rt, url) })
}
