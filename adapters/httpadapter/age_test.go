package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// The first answer after the greatest number of requests says that the connection closes, and it does:
// with net/http, with the adapter, and over TLS.
func TestMaxAgeRequests(t *testing.T) {
	const requests = 10 // give or take one
	for _, netHTTP := range []bool{true, false} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("net/http=%t TLS=%t", netHTTP, overTLS), func(t *testing.T) {
				if netHTTP {
					leaveToNetHTTP(t)
				}
				testnet.NoLeaks(t)
				ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
				type key struct{}
				s := Wrap(&http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						fmt.Fprint(w, r.Context().Value(key{}))
					}),
					ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
						return context.WithValue(ctx, key{}, "the user's")
					},
				}, MaxAge(0, requests))
				server, client := testnet.TLS(t)
				client = client.Clone()
				client.NextProtos = []string{"http/1.1"}
				done := make(chan error, 1)
				go func() {
					if overTLS {
						s.srv.TLSConfig = server
						done <- s.ServeTLS(ln, "", "")
					} else {
						done <- s.Serve(ln)
					}
				}()
				c := testnet.Dial(t, ln)
				if overTLS {
					c = tls.Client(c, client)
				}
				c.SetDeadline(time.Now().Add(testnet.HangTimeout))
				r := bufio.NewReader(c)
				for n := 1; ; n++ {
					io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatalf("request %d: %v", n, err)
					}
					if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "the user's" {
						t.Fatalf("request %d: got %q, %v", n, body, err)
					}
					if !resp.Close && n < requests+2 {
						continue
					}
					if n < requests-1 || n > requests+1 {
						t.Errorf("answer %d says that the connection closes: %t", n, resp.Close)
					}
					break
				}
				if b, err := r.ReadByte(); err != io.EOF {
					t.Errorf("after the last answer: got %d, %v, want the end", b, err)
				}
				s.Close()
				testnet.Receive(t, "Serve", done)
			})
		}
	}
}

// Over HTTP/2 the client opens another connection, and no request fails.
func TestMaxAgeHTTP2(t *testing.T) {
	for _, netHTTP := range []bool{true, false} {
		t.Run(fmt.Sprintf("net/http=%t", netHTTP), func(t *testing.T) {
			if netHTTP {
				leaveToNetHTTP(t)
			}
			testnet.NoLeaks(t)
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Protocols: new(http.Protocols)}
			srv.Protocols.SetUnencryptedHTTP2(true)
			s := Wrap(srv, MaxAge(0, 5))
			done := make(chan error, 1)
			go func() { done <- s.Serve(ln) }()
			client := testnet.HTTP2Client(t, nil)
			conns := make(map[net.Addr]bool)
			trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { conns[info.Conn.LocalAddr()] = true },
			})
			for n := range 30 {
				req, err := http.NewRequestWithContext(trace, "GET", testnet.URL(ln, false, "/"), nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
				resp.Body.Close()
			}
			if len(conns) < 3 {
				t.Errorf("got %d connections for 30 requests, want some", len(conns))
			}
			client.CloseIdleConnections()
			s.Close()
			testnet.Receive(t, "Serve", done)
		})
	}
}

// The limits of a connection differ by a tenth at most, and hold together.
func TestConnAge(t *testing.T) {
	c := &config{maxAge: time.Hour, maxRequests: 100}
	for random, want := range map[float64]int{0: 90, 0.5: 100, 1: 110} {
		a := newConnAge(c, random)
		n := 1
		for !a.isLast() {
			n++
		}
		if n < want-1 || n > want+1 {
			t.Errorf("%v: request %d is the last, want %d", random, n, want)
		}
		if !a.isLast() {
			t.Errorf("%v: a request after the last isn't told to be it", random)
		}
	}
	old := newConnAge(&config{maxAge: time.Nanosecond}, 0.5)
	testnet.Eventually(t, "the greatest age", old.isLast)
	for _, random := range []float64{0, 0.5, 1} {
		var c config
		MaxAge(math.MaxInt64, math.MaxInt)(&c)
		if a := newConnAge(&c, random); a.isLast() || a.untilEnd() < time.Hour {
			t.Errorf("the longest age and the most requests, random %v: they are reached at once", random)
		}
	}
	if young := newConnAge(&config{maxAge: time.Hour}, 0); young.isLast() {
		t.Error("a new connection is old")
	}
}

// TestMaxAgeDetached: a Stream whose connection has reached its age is told.
func TestMaxAgeDetached(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Stream) {
			s.OnMaxAge(func() {
				_, _ = io.WriteString(s, ", come back")
				s.Close()
			})
		})
	}
	for _, arm := range workArms {
		t.Run(arm.name, func(t *testing.T) {
			if arm.netHTTP {
				leaveToNetHTTP(t)
			}
			protocols := arm.protocols()
			f := start(t, h, func(f *fixture) { f.srv.Protocols = protocols }, MaxAge(20*time.Millisecond, 0))
			url, client := clientOf(t, f, nil, protocols)
			for range 3 { // the second one when the connection is older
				r := get(t, client, url)
				if body, err := io.ReadAll(r.Body); string(body) != "begin, come back" || err != nil {
					t.Errorf("got %q, %v", body, err)
				}
			}
		})
	}
}

// TestUntilEnd: the age of a connection is reached again and again.
func TestUntilEnd(t *testing.T) {
	if d := new(connAge).untilEnd(); d != 0 {
		t.Errorf("got %v without an age", d)
	}
	if d := newConnAge(&config{maxAge: time.Hour}, 0.5).untilEnd(); d <= 59*time.Minute || d > time.Hour {
		t.Errorf("got %v for a new connection, want an hour", d)
	}
	old := newConnAge(&config{maxAge: time.Hour}, 0.5)
	old.end -= old.age
	if d := old.untilEnd(); d != time.Hour {
		t.Errorf("got %v for an old connection, want an hour", d)
	}
}
