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
	"net/url"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// newProxy makes a proxy. proxyAnswer is what it answers to CONNECT; "": it connects.
func newProxy(t *testing.T, proxyAnswer string) *hostile {
	t.Helper()
	return newHostile(t, func(c net.Conn, request string) bool {
		method, rest, _ := strings.Cut(request, " ")
		switch {
		case method != http.MethodConnect:
			return answerHello(c, request)
		case proxyAnswer != "":
			_, _ = io.WriteString(c, proxyAnswer)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c) // a close would reset the stream if something comes
			return false
		}
		addr, _, _ := strings.Cut(rest, " ")
		to, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer to.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(to, c)
			to.Close()
		}()
		_, _ = io.Copy(c, to)
		return false
	})
}

// TestProxies makes the same calls through a proxy, here and by http.Transport: the results are the
// same, and so is what the proxy gets, on as many connections.
func TestProxies(t *testing.T) {
	quiet(t)
	errRefused := errors.New("refused by a hook")
	header := func(context.Context, *url.URL, string) (http.Header, error) { return http.Header{"X": {"y"}}, nil }
	serverConfig, clientConfig := testnet.TLS(t)
	newServer := func(http2 bool) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Method, r.Proto, r.TLS.ServerName)
		}))
		s.TLS, s.EnableHTTP2 = serverConfig.Clone(), http2
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	server, server2 := newServer(false), newServer(true)
	https := server.URL + "/ "
	localhost := strings.Replace(https, "127.0.0.1", "localhost", 1)
	for name, test := range map[string]struct {
		urls     string // of GETs, or POSTs
		user     string
		answer   string
		change   func(*http.Transport)
		declined int
	}{
		"clear":             {urls: "http://a.test/ http://a.test/?x http://b.test:81/y POST http://b.test/"},
		"with a password":   {urls: "http://a.test/ POST " + https, user: "me:se cret@"},
		"with a user":       {urls: "http://a.test/ POST " + https, user: "me@"},
		"TLS":               {urls: https + https + "POST " + https + localhost + "http://a.test/ " + https},
		"HTTP/2":            {urls: server2.URL + "/ POST " + server2.URL + "/x", change: func(b *http.Transport) { b.ForceAttemptHTTP2 = true }},
		"not accepted":      {urls: https + https, answer: "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"},
		"without a text":    {urls: https, answer: "HTTP/1.1 503\r\n\r\n"},
		"a proxy of HTTP 2": {urls: https, answer: "garbage\r\n\r\n"},
		"half an answer":    {urls: https, answer: "HTTP/1.1 200 OK\r\nA: "},
		"no answer":         {urls: https, answer: " "},
		"long answer":       {urls: https, answer: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 5000), change: func(b *http.Transport) { b.MaxResponseHeaderBytes = 4096 }},
		"no TLS behind it":  {urls: https, answer: "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n"},
		"header":            {urls: https, user: "me:x@", change: func(b *http.Transport) { b.ProxyConnectHeader = http.Header{"User-Agent": {"me"}, "X": {"y"}} }},
		"header of a hook":  {urls: https, change: func(b *http.Transport) { b.GetProxyConnectHeader = header }},
		"hook fails": {urls: https, change: func(b *http.Transport) {
			b.GetProxyConnectHeader = func(context.Context, *url.URL, string) (http.Header, error) { return nil, errRefused }
		}},
		"other hook fails": {urls: https, change: func(b *http.Transport) {
			b.OnProxyConnectResponse = func(_ context.Context, u *url.URL, req *http.Request, resp *http.Response) error {
				return fmt.Errorf("%w: %s %s %s %d", errRefused, testnet.WithoutPorts(u.String()), req.Method, testnet.WithoutPorts(req.Host), resp.StatusCode)
			}
		}},
		"keeps no connections": {urls: "http://a.test/ http://a.test/ " + https, change: func(b *http.Transport) { b.DisableKeepAlives = true }},
		"SOCKS":                {urls: "http://a.test/", change: func(b *http.Transport) { b.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5", Host: testnet.Reserve(t)}) }, declined: 1},
		"is down":              {urls: "http://a.test/ " + https, change: func(b *http.Transport) { b.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: testnet.Reserve(t)}) }},
		"not for all": {urls: https + "http://a.test/ " + https, change: func(b *http.Transport) {
			proxy := b.Proxy
			b.Proxy = func(r *http.Request) (*url.URL, error) {
				if r.URL.Host == "a.test" {
					return proxy(r)
				}
				return nil, nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			play := func(ours bool) string {
				p := newProxy(t, test.answer)
				u, err := url.Parse("http://" + strings.Replace(test.user, " ", "%20", 1) + p.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				base := &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: clientConfig.Clone()}
				if test.change != nil {
					test.change(base)
				}
				rt := http.RoundTripper(base)
				tr := New(base)
				if ours {
					rt = tr
				}
				got := callAll(rt, test.urls)
				tr.CloseIdleConnections()
				p.End()
				if n := int(tr.Stats().Declined["proxy"]); ours && n != test.declined {
					t.Errorf("%d requests were left to the base, want %d", n, test.declined)
				}
				if len(p.requests) > 0 { // else it may not have accepted a connection
					got += fmt.Sprintf("%d connections, requests %q", p.Accepted(), p.requests)
				}
				return got
			}
			if got, want, ok := equal(func() (got, want string) { return play(true), play(false) }); !ok {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// callAll calls URLs, after a word with POST, and returns what comes of it.
func callAll(rt http.RoundTripper, urls string) (all string) {
	method := http.MethodGet
	for word := range strings.FieldsSeq(urls) {
		if !strings.Contains(word, ":") {
			method = word
			continue
		}
		all += traced(rt, word, func(r *http.Request) {
			setBody(r, strings.NewReader("body"))
			r.Method = method
		})
	}
	return testnet.WithoutPorts(all)
}

// TestProxyHangs: a proxy that doesn't answer holds up no call that is cancelled. Its connection ends
// with CloseIdleConnections.
func TestProxyHangs(t *testing.T) {
	asked, ended := make(chan bool), make(chan bool)
	p := newHostile(t, func(c net.Conn, _ string) bool {
		asked <- true
		_, _ = c.Read(make([]byte, 1))
		ended <- true
		return false
	})
	u, err := url.Parse(p.url())
	if err != nil {
		t.Fatal(err)
	}
	tr := New(&http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: new(tls.Config)})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://a.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := tr.RoundTrip(req)
		failed <- err
	}()
	testnet.Receive(t, "the CONNECT", asked)
	cancel()
	if err := testnet.Receive(t, "the error", failed); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	tr.CloseIdleConnections()
	testnet.Receive(t, "the end of the connection", ended)
	awaitEmpty(t, tr)
}

// TestGoThrough: a call that is sent again may go without its proxy, and not all proxies are served.
func TestGoThrough(t *testing.T) {
	tr := newTestTransport(t)
	prepared := func(method, target string) *call {
		req, err := http.NewRequest(method, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := new(call)
		if r := c.prepare(tr, req); r != served {
			t.Fatalf("%s %s is not served", method, target)
		}
		return c
	}
	sent := func(c *call) string {
		return fmt.Sprintf("%q %q %q %q", c.Key, c.Addr, c.Target, c.ProxyAuth)
	}
	proxy := &url.URL{Scheme: "http", Host: "p", User: url.User("me")}
	c := prepared("GET", "http://h/x?y")
	direct := sent(c)
	if !c.goThrough(proxy) {
		t.Fatal("the proxy is not served")
	}
	if got := sent(c); got != `"http://me@p " "p:80" "http://h/x?y" "Basic bWU6"` {
		t.Errorf("through the proxy: got %s", got)
	}
	if !c.goThrough(nil) || sent(c) != direct {
		t.Errorf("without the proxy: got %s, want %s", sent(c), direct)
	}
	for _, left := range []struct {
		c     *call
		proxy string
	}{
		{prepared("GET", "http://h/"), "https://p"},
		{prepared("GET", "http://h/"), "socks5://p"},
		{prepared("GET", "http://h/"), "http://ü"},
		{prepared("CONNECT", "http://h/"), "http://p"},
	} {
		u, err := url.Parse(left.proxy)
		if err != nil {
			t.Fatal(err)
		}
		if left.c.goThrough(u) {
			t.Errorf("%s through %s is served", left.c.Req.Method, left.proxy)
		}
	}
}
