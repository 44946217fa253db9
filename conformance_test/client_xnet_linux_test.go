package conformance

//lint:file-ignore SA1019 programs still use it

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestClientXNet: a base that x/net's ConfigureTransports was given is served as http.Transport serves
// it, over HTTP/2 by percore if all that the program has set is known.
func TestClientXNet(t *testing.T) {
	testnet.NoLeaks(t)
	if percoreIsNet() {
		t.Skip("there is no engine in this build: run it without the build tag percore_net")
	}
	none := func(*http.Transport, *http2.Transport) {}
	for name, test := range map[string]struct {
		change  func(*http.Transport, *http2.Transport)
		silent  bool // the server
		only1   bool // the server speaks HTTP/1.1
		result  string
		decline string // the reason; "": percore serves the request
	}{
		"HTTP/2":               {change: none, result: "HTTP/2.0 hello"},
		"a server of HTTP/1.1": {change: none, only1: true, result: "HTTP/1.1 hello"},
		"a server that is silent": {
			change: func(_ *http.Transport, xnet *http2.Transport) {
				xnet.ReadIdleTimeout, xnet.PingTimeout = time.Millisecond, time.Millisecond
			},
			silent: true, result: "http2: client connection lost",
		},
		"the base's settings": {
			change: func(base *http.Transport, xnet *http2.Transport) {
				xnet.ReadIdleTimeout, xnet.PingTimeout = time.Hour, time.Hour
				base.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Millisecond, PingTimeout: time.Millisecond}
			},
			silent: true, result: "http2: client connection lost",
		},
		"a setting of x/net's": {
			change:  func(_ *http.Transport, xnet *http2.Transport) { xnet.DisableCompression = true },
			decline: "protocol", result: "HTTP/2.0 hello",
		},
		"errors are counted": {
			change:  func(_ *http.Transport, xnet *http2.Transport) { xnet.CountError = func(string) {} },
			decline: "protocol", result: "HTTP/2.0 hello",
		},
		"another pool": {
			change:  func(_ *http.Transport, xnet *http2.Transport) { xnet.ConnPool = noConns{} },
			decline: "protocol", result: "no connections",
		},
		"a function of the user's": {
			change: func(base *http.Transport, _ *http2.Transport) {
				base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{
					"h2": func(_ string, c *tls.Conn) http.RoundTripper { c.Close(); return noConns{} },
				}
			},
			decline: "protocol", result: "no connections",
		},
		"another protocol": {
			change: func(base *http.Transport, _ *http2.Transport) {
				if base.TLSNextProto == nil {
					base.TLSNextProto = make(map[string]func(string, *tls.Conn) http.RoundTripper)
				}
				base.TLSNextProto["other"] = func(string, *tls.Conn) http.RoundTripper { return noConns{} }
			},
			decline: "protocol", result: "HTTP/2.0 hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a function of the user's" && servesPriorities() {
				test.result = "HTTP/1.1 hello" // Go 1.27: then x/net hasn't got HTTP/2 offered
			}
			for who, wrap := range map[string]func(*http.Transport) http.RoundTripper{
				"net/http": func(base *http.Transport) http.RoundTripper { return base },
				"ours":     func(base *http.Transport) http.RoundTripper { return httpadapter.NewTransport(base) },
			} {
				srv := xnetServer(t, test.only1, test.silent)
				base := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
				xnet, err := http2.ConfigureTransports(base)
				if err != nil {
					t.Fatal(err)
				}
				test.change(base, xnet)
				rt := wrap(base)
				got := xnetCall(t, rt, srv.URL)
				for i := 0; i < 10 && test.silent && got == "http2: client conn could not be established"; i++ {
					got = xnetCall(t, rt, srv.URL) // the PING was lost before the request was on its connection
				}
				if got != test.result {
					t.Errorf("%s: got %q, want %q", who, got, test.result)
				}
				if ours, ok := rt.(*httpadapter.Transport); ok {
					stats := ours.Stats()
					if declined := stats.Requests == 0; declined != (test.decline != "") || declined && stats.Declined[test.decline] != 1 {
						t.Errorf("got %+v, want the request declined for %q", stats, test.decline)
					}
					ours.CloseIdleConnections()
				}
				base.CloseIdleConnections()
			}
		})
	}
}

// xnetCall makes a call, and says what it returns.
func xnetCall(t *testing.T, rt http.RoundTripper, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return resp.Proto + " " + string(body)
}

// xnetServer starts a server. A silent one says nothing after the handshake.
func xnetServer(t *testing.T, only1, silent bool) *httptest.Server {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	srv.EnableHTTP2 = !only1
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // the client may leave before the server ends a handshake
	if silent {
		srv.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) { _, _ = io.Copy(io.Discard, c) },
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// noConns is a pool of the user's, and what a function of the user's returns.
type noConns struct{}

var errNoConns = errors.New("no connections")

func (noConns) GetClientConn(*http.Request, string) (*http2.ClientConn, error) {
	return nil, errNoConns
}
func (noConns) MarkDead(*http2.ClientConn)                      {}
func (noConns) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNoConns }
