package http2_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// These tests are about what was reported of other fast proxies and clients. Each runs with
// http.Transport as well, which shows that the test itself is right.

// A rawServer is a server whose every byte a test decides.
type rawServer struct {
	addr string
	url  string

	mu    sync.Mutex
	conns int // guarded by mu
}

// rawRequest is a request that a rawServer has read, with its body.
type rawRequest struct {
	*http.Request
	body string
	n    int // of the connection's requests before it
	conn int // of the server's connections before its own
}

// serveRaw calls answer for each request, until that returns false. Then the connection is closed.
func serveRaw(t *testing.T, answer func(c net.Conn, r rawRequest) bool) *rawServer {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	s := &rawServer{addr: ln.Addr().String(), url: "http://" + ln.Addr().String()}
	var serving sync.WaitGroup
	open := make(map[net.Conn]bool) // guarded by s.mu
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			conn := s.conns
			s.conns++
			open[c] = true
			s.mu.Unlock()
			serving.Go(func() {
				serveRawConn(c, conn, answer)
				c.Close()
				s.mu.Lock()
				delete(open, c)
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		s.mu.Lock()
		for c := range open {
			c.Close()
		}
		s.mu.Unlock()
		serving.Wait()
	})
	return s
}

func serveRawConn(c net.Conn, conn int, answer func(net.Conn, rawRequest) bool) {
	br := bufio.NewReader(c)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || !answer(c, rawRequest{req, string(body), n, conn}) {
			return
		}
	}
}

func (s *rawServer) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
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

// proxyTo serves a ReverseProxy to a server, with a client of net/http's in front of it.
func proxyTo(t *testing.T, to *rawServer, rt http.RoundTripper) (front *httptest.Server) {
	t.Helper()
	target, err := url.Parse(to.url)
	if err != nil {
		t.Fatal(err)
	}
	front = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: rt,
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) {
			http.Error(rw, err.Error(), http.StatusBadGateway)
		},
	})
	t.Cleanup(front.Close)
	return front
}

// fetch makes a request and returns status and body, or the error of either.
func fetch(t *testing.T, c *http.Client, method, url, body string) string {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, content)
	if err != nil {
		t.Fatal(err)
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

// answered is what a server answers to some calls, and what has to come of them.
type answered struct {
	name   string
	answer string // to all but GET /next; without a body to HEAD
	ends   bool   // it ends the connection then
	calls  string // methods and paths
	want   string // of each call; "error": its beginning is one of refusals
	conns  int    // how many connections three rounds take
}

// answers are answers whose end is not where a client may take it for.
func answers() (all []answered) {
	const ok = "HTTP/1.1 200 OK\r\n"
	all = []answered{
		{"a length in the answer to HEAD", ok + "Content-Length: 5\r\n\r\nhello", false, "HEAD / GET /", "200  <nil>|200 hello <nil>", 1},
		{"no length, whatever Connection says", ok + "Connection: keep-alive\r\n\r\n" + ok + "\r\n", true, "GET /", "200 " + ok + "\r\n <nil>", 3},
		{"two lengths", ok + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello", false, "GET /", "error", 3},
		{"a list of lengths", ok + "Content-Length: 4, 5\r\n\r\nhello", false, "GET /", "error", 3},
		{"two codings", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, "GET /", "error", 3},
		{"the same length twice", ok + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", false, "GET /", "200 hello <nil>", 1},
		{"chunks and a length", ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, "GET /", "200 hello <nil>", 1},
	}
	for _, status := range []string{"204 No Content", "304 Not Modified"} { // which have no body, whatever length they name
		for _, field := range []string{"", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"} {
			answer := fmt.Sprintf("HTTP/1.1 %s\r\n%s\r\n", status, field)
			all = append(all, answered{status + ", " + field, answer, false, "GET / GET /next", status[:3] + "  <nil>|200 next <nil>", 1})
		}
	}
	return all
}

// refusals are the beginnings of errors of answers that are refused.
var refusals = regexp.MustCompile(`^(502 )?(Get "[^"]*": )?(net/http: HTTP/1.x transport connection broken: )?` +
	`(http: message cannot contain multiple Content-Length|bad Content-Length|too many transfer encodings)`)

// TestClientAnswers: an answer ends where net/http says, so nothing of it is taken for the next one, and
// it is refused where that is not clear. The connection is closed then, and else used again. It is the
// same through a ReverseProxy.
func TestClientAnswers(t *testing.T) {
	for _, a := range answers() {
		t.Run(a.name, func(t *testing.T) {
			onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
				for _, proxied := range []bool{false, true} {
					s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
						answer := a.answer
						if r.URL.Path == "/next" {
							answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"
						} else if r.Method == "HEAD" {
							answer = answer[:strings.Index(answer, "\r\n\r\n")+4]
						}
						io.WriteString(c, answer)
						return !a.ends
					})
					rt := newTransport(new(http.Transport))
					client, url := &http.Client{Transport: rt}, s.url
					if proxied {
						front := proxyTo(t, s, rt)
						client, url = front.Client(), front.URL
					}
					for range 3 {
						calls := strings.Fields(a.calls)
						for i, want := range strings.Split(a.want, "|") {
							got := fetch(t, client, calls[2*i], url+calls[2*i+1], "")
							if want == "error" && refusals.MatchString(got) {
								continue
							}
							wantFetched(t, calls[2*i], got, want)
						}
					}
					_, ours := rt.(*httpadapter.Transport) // http.Transport may take more if it is slow
					if n := s.accepted(); n < a.conns || ours && n > a.conns {
						t.Errorf("proxied %t: got %d connections, want %d", proxied, n, a.conns)
					}
				}
			})
		})
	}
}

// TestClientFloodOf1xx: informational answers without end are an error some day.
func TestClientFloodOf1xx(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		s := serveRaw(t, func(c net.Conn, _ rawRequest) bool {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
					return false
				}
			}
		})
		client := &http.Client{Transport: newTransport(&http.Transport{MaxResponseHeaderBytes: 10_000})}
		_, err := client.Get(s.url)
		if err == nil {
			t.Fatal("got an answer, want an error")
		}
		t.Log(err)
	})
}

// TestClientUpgrade: an upgrade may be refused; if it is not, bytes go both ways, those that came with
// the answer too. Fields that Connection names besides go no further than the proxy.
func TestClientUpgrade(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		got := make(chan http.Header, 2)
		s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			got <- r.Header
			if r.URL.Path == "/refused" {
				io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
				return true
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive, Upgrade\r\nUpgrade: x\r\n\r\nfirst ")
			_, _ = io.Copy(c, c)
			return false
		})
		front := proxyTo(t, s, newTransport(new(http.Transport)))
		c := testnet.Dial(t, front.Listener)
		br := bufio.NewReader(c)
		for _, path := range []string{"/refused", "/accepted"} {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: x\r\n\r\n", path)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			h := testnet.Receive(t, "the request", got)
			if h.Get("Connection") != "Upgrade" || h.Get("Upgrade") != "x" || h["X-Hop"] != nil || h["Keep-Alive"] != nil {
				t.Errorf("%s: the server got %q", path, h)
			}
			if path == "/refused" {
				b, err := io.ReadAll(resp.Body)
				wantFetched(t, path, fmt.Sprintf("%d %s %v", resp.StatusCode, b, err), "403 no <nil>")
				continue
			}
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "x" {
				t.Errorf("%s: got %s %q", path, resp.Status, resp.Header)
			}
		}
		io.WriteString(c, "second")
		b := make([]byte, len("first second"))
		_, err := io.ReadFull(br, b)
		wantFetched(t, "the stream", fmt.Sprint(string(b), err), "first second<nil>")
		c.Close()
	})
}

// TestClientUnsolicitedBytes: bytes behind an answer, or on an idle connection, are no answer.
func TestClientUnsolicitedBytes(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for _, when := range []string{"with the answer", "behind a HEAD", "behind a 304", "behind the last chunk"} {
		t.Run(when, func(t *testing.T) {
			onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
				ended := make(chan bool, 10)
				s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
					io.WriteString(c, map[string]string{
						"with the answer":       "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood",
						"behind a HEAD":         "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
						"behind a 304":          "HTTP/1.1 304 x\r\nContent-Length: 4\r\n\r\n",
						"behind the last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
					}[when]+evil)
					_, _ = io.Copy(io.Discard, c)
					ended <- true
					return false
				})
				client := &http.Client{Transport: newTransport(new(http.Transport))}
				method := "GET"
				if when == "behind a HEAD" {
					method = "HEAD"
				}
				for i := range 3 {
					if got := fetch(t, client, method, s.url, ""); strings.Contains(got, "evil") {
						t.Errorf("call %d: got %q", i, got)
					}
					testnet.Receive(t, "the end of the connection", ended)
				}
			})
		})
	}
}

// TestClientTrailers: trailers reach the caller, announced or not, and are no part of the next answer,
// which comes over the same connection.
func TestClientTrailers(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			announced := ""
			if r.n%2 == 0 {
				announced = "Trailer: ETag\r\n"
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nEtag: %d\r\n\r\n", announced, r.n)
			return true
		})
		rt := newTransport(new(http.Transport))
		for i := range 4 {
			resp, err := (&http.Client{Transport: rt}).Get(s.url)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			got := fmt.Sprintf("%s %v %v %d", b, err, resp.Trailer, len(resp.Header))
			wantFetched(t, "GET", got, fmt.Sprintf("hello <nil> map[Etag:[%d]] 0", i))
		}
		front := proxyTo(t, s, rt)
		wantFetched(t, "proxy", fetch(t, front.Client(), "GET", front.URL, ""), "200 hello <nil>")
		if n := s.accepted(); n != 1 {
			t.Errorf("got %d connections, want one for all", n)
		}
	})
}

// TestClientPartlyRead: what a caller has not read of an answer is not taken for the next one.
func TestClientPartlyRead(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	body := strings.Repeat(evil, 2000)
	for name, answer := range map[string]string{
		"counted":       fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"in chunks":     fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
		"until the end": "HTTP/1.1 200 OK\r\n\r\n" + body,
		"cut off":       "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + body,
	} {
		t.Run(name, func(t *testing.T) {
			onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
				s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
					if r.URL.Path == "/next" {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")
						return true
					}
					_, err := io.WriteString(c, answer)
					return err == nil
				})
				client := &http.Client{Transport: newTransport(new(http.Transport))}
				for _, read := range []int64{0, 1, int64(len(evil)), 4096, 50_000} {
					resp, err := client.Get(s.url)
					if err != nil {
						t.Fatal(err)
					}
					if n, err := io.CopyN(io.Discard, resp.Body, read); n != read || err != nil {
						t.Errorf("got %d bytes, %v; want %d", n, err, read)
					}
					resp.Body.Close()
					wantFetched(t, "the next", fetch(t, client, "GET", s.url+"/next", ""), "200 next <nil>")
				}
			})
		})
	}
}

// TestClientUploadRefused: a proxy passes on the answer of a server that doesn't read the request's
// body, and serves its client's next request.
func TestClientUploadRefused(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		ln := testnet.Listen(t, net.Listen, testnet.TCP4)
		release := make(chan bool)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				serving.Go(func() {
					defer c.Close()
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
			}
		})
		defer serving.Wait()
		defer ln.Close()
		defer close(release)
		front := proxyTo(t, &rawServer{url: "http://" + ln.Addr().String()}, newTransport(new(http.Transport)))
		for range 3 {
			req, _ := http.NewRequest("POST", front.URL, endless{})
			resp, err := front.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			wantFetched(t, "POST", fmt.Sprintf("%d %s %v", resp.StatusCode, b, err), "413 no <nil>")
			wantFetched(t, "GET", fetch(t, front.Client(), "GET", front.URL, ""), "200 ok <nil>")
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
		s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			requests <- r.Method + r.body
			if r.n > 0 {
				return false
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			return true
		})
		client := &http.Client{Transport: newTransport(new(http.Transport))}
		for _, method := range []string{"GET", "PUT", "DELETE", "POST", "OPTIONS"} {
			for _, idempotent := range []bool{false, true} {
				if got := fetch(t, client, "GET", s.url, ""); got != "200 ok <nil>" && !strings.Contains(got, "EOF") {
					t.Fatalf("got %q", got)
				}
				for len(requests) > 0 {
					<-requests
				}
				req, _ := http.NewRequest(method, s.url, strings.NewReader("body"))
				if idempotent {
					req.Header.Set("X-Idempotency-Key", "k")
				}
				resp, err := client.Do(req)
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				sent := len(requests)
				want := 1
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

// TestClientCONNECT: the answer to CONNECT has no body of its own, and a refusal has one.
func TestClientCONNECT(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			if r.RequestURI == "refused:1" {
				io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
				return true
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\ntunnel")
			return false
		})
		rt := newTransport(new(http.Transport))
		for target, want := range map[string]string{"refused:1": "403 no <nil>", "accepted:1": "200 tunnel <nil>"} {
			req := &http.Request{Method: "CONNECT", URL: &url.URL{Scheme: "http", Host: s.addr, Opaque: target}, Host: target, Header: http.Header{}}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Errorf("%s: %v", target, err)
				continue
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			wantFetched(t, target, fmt.Sprintf("%d %s %v", resp.StatusCode, b, err), want)
		}
	})
}

// TestClientTunnel: the body of a CONNECT goes to the server as it is, and at once, while the body of
// the answer is what comes back.
func TestClientTunnel(t *testing.T) {
	for _, header := range []string{"", "Content-Length: 7\r\n"} {
		onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
			s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
				if r.RequestURI != "far:1" || len(r.TransferEncoding) > 0 || r.ContentLength > 0 {
					t.Errorf("the server got %s, %v, %d", r.RequestURI, r.TransferEncoding, r.ContentLength)
				}
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\nfirst ", header)
				_, _ = io.CopyN(c, c, 3)
				return false
			})
			pr, pw := io.Pipe()
			req := &http.Request{
				Method: "CONNECT", URL: &url.URL{Scheme: "http", Host: s.addr}, Host: "far:1", Header: http.Header{},
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

// TestClientEarlyAnswer: an answer that comes before the body has been sent reaches the caller, and
// the connection is not used again.
func TestClientEarlyAnswer(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		ln := testnet.Listen(t, net.Listen, testnet.TCP4)
		defer ln.Close()
		ended := make(chan bool, 10)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
					}
					_, _ = io.Copy(io.Discard, c)
					ended <- true
				}()
			}
		}()
		rt := newTransport(new(http.Transport))
		for range 3 {
			pr, pw := io.Pipe()
			req, _ := http.NewRequest("POST", "http://"+ln.Addr().String(), pr)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			wantFetched(t, "POST", fmt.Sprintf("%d %s %v", resp.StatusCode, b, err), "413 no <nil>")
			pw.CloseWithError(errors.New("no more"))
			testnet.Receive(t, "the end of the connection", ended)
		}
	})
}

// TestClientGone: when the proxy's client has gone, the call to the server ends.
func TestClientGone(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		asked, ended := make(chan bool, 1), make(chan bool, 1)
		s := serveRaw(t, func(c net.Conn, _ rawRequest) bool {
			asked <- true
			_, _ = io.Copy(io.Discard, c)
			ended <- true
			return false
		})
		front := proxyTo(t, s, newTransport(new(http.Transport)))
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", front.URL, nil)
		answered := make(chan error, 1)
		go func() {
			_, err := front.Client().Do(req)
			answered <- err
		}()
		testnet.Receive(t, "the request", asked)
		cancel()
		if err := testnet.Receive(t, "the call", answered); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		testnet.Receive(t, "the end of the connection to the server", ended)
	})
}
