package http2_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// These tests are about what was reported of other fast proxies and clients, as far as no script of
// TestTransportSameAsNetHTTP or TestProxySameAsNetHTTP has it. Each runs with http.Transport as well,
// which shows that the test itself is right.

// rawRequest is a request that a server has read, with its body.
type rawRequest struct {
	*http.Request
	body string
	n    int // of the connection's requests before it
}

// serveRaw calls answer for each request, until that returns false. Then the connection is closed.
func serveRaw(t *testing.T, answer func(c net.Conn, r rawRequest) bool) (url string) {
	t.Helper()
	srv := testnet.Serve(t, testnet.Listen(t, net.Listen, testnet.TCP4), func(c net.Conn) {
		br := bufio.NewReader(c)
		for n := 0; ; n++ {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil || !answer(c, rawRequest{req, string(body), n}) {
				return
			}
		}
	})
	return testnet.URL(srv, false, "")
}

// onBothTransports runs a test with http.Transport, and with ours.
func onBothTransports(t *testing.T, test func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper)) {
	closing := func(t *testing.T, rt http.RoundTripper) http.RoundTripper {
		t.Cleanup(rt.(interface{ CloseIdleConnections() }).CloseIdleConnections)
		return rt
	}
	t.Run("net/http", func(t *testing.T) {
		testnet.NoLeaks(t)
		test(t, func(base *http.Transport) http.RoundTripper { return closing(t, base) })
	})
	t.Run("percore", func(t *testing.T) {
		testnet.NoLeaks(t)
		test(t, func(base *http.Transport) http.RoundTripper { return closing(t, httpadapter.NewTransport(base)) })
	})
}

// fetch makes a request and returns status and body, or the error of either.
func fetch(c *http.Client, method, url string, body io.Reader) string {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err.Error()
	}
	resp, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %v", resp.StatusCode, b, err)
}

func wantFetched(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestClientUploadRefused: a proxy passes on the answer of a server that doesn't read the request's
// body, and serves its client's next request.
func TestClientUploadRefused(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		release := make(chan bool)
		srv := testnet.Serve(t, testnet.Listen(t, net.Listen, testnet.TCP4), func(c net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(c))
			switch {
			case err != nil:
			case req.Method == "POST":
				io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
				<-release // it reads nothing more
			default:
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		t.Cleanup(func() { close(release) })
		target := &url.URL{Scheme: "http", Host: srv.Addr().String()}
		front := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: newTransport(new(http.Transport)),
			ErrorLog:  log.New(io.Discard, "", 0),
		})
		t.Cleanup(front.Close)
		for range 3 {
			wantFetched(t, "POST", fetch(front.Client(), "POST", front.URL, endless{}), "413 no <nil>")
			wantFetched(t, "GET", fetch(front.Client(), "GET", front.URL, nil), "200 ok <nil>")
		}
	})
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestClientRetries: a server may end an idle connection while a request is on its way. The client
// sends the request again if it may reach the server twice, unlike a POST.
func TestClientRetries(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		requests := make(chan string, 10)
		server := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			requests <- r.Method + r.body
			if r.n > 0 {
				return false
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			return true
		})
		client := &http.Client{Transport: newTransport(new(http.Transport))}
		body := strings.Repeat("body", 5000) // another goroutine sends it
		for _, method := range []string{"GET", "PUT", "DELETE", "POST", "OPTIONS"} {
			for _, idempotent := range []bool{false, true} {
				if got := fetch(client, "GET", server, nil); got != "200 ok <nil>" && !strings.Contains(got, "EOF") {
					t.Fatalf("got %q", got)
				}
				for len(requests) > 0 {
					<-requests
				}
				req, _ := http.NewRequest(method, server, strings.NewReader(body))
				if idempotent {
					req.Header.Set("X-Idempotency-Key", "k")
				}
				resp, err := client.Do(req)
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				sent, want := len(requests), 1
				for range sent {
					if got := <-requests; got != method+body {
						t.Errorf("%s: the server got %.40q", method, got)
					}
				}
				if idempotent || method == "GET" || method == "OPTIONS" {
					want = 2
				}
				if sent != want || (err == nil) != (want == 2) {
					t.Errorf("%s, idempotent %t: sent %d times, %v; want %d times", method, idempotent, sent, err, want)
				}
			}
		}
	})
}

// TestClientTunnel: the body of a CONNECT goes to the server as it is, and at once, while the body of
// the answer is what comes back.
func TestClientTunnel(t *testing.T) {
	for _, header := range []string{"", "Content-Length: 7\r\n"} {
		onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
			server := serveRaw(t, func(c net.Conn, r rawRequest) bool {
				if r.RequestURI != "far:1" || len(r.TransferEncoding) > 0 || r.ContentLength > 0 {
					t.Errorf("the server got %s, %v, %d", r.RequestURI, r.TransferEncoding, r.ContentLength)
				}
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\nfirst ", header)
				_, _ = io.CopyN(c, c, 3)
				return false
			})
			pr, pw := io.Pipe()
			req := &http.Request{
				Method: "CONNECT", URL: &url.URL{Scheme: "http", Host: strings.TrimPrefix(server, "http://")}, Host: "far:1", Header: http.Header{},
				Body: pr, ContentLength: -1,
			}
			rt := newTransport(new(http.Transport))
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b := make([]byte, len("first "))
			_, err = io.ReadFull(resp.Body, b)
			wantFetched(t, "what came first", fmt.Sprintf("%s %v", b, err), "first  <nil>")
			io.WriteString(pw, "abc")
			want := "abc"
			if header != "" {
				want = "a"
			}
			b, err = io.ReadAll(resp.Body)
			wantFetched(t, "what came back", fmt.Sprintf("%s %v", b, err), want+" <nil>")
			pw.Close()
		})
	}
}
