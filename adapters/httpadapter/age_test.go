package httpadapter

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// The first answer after the greatest number of requests says that the connection closes, and it does:
// with net/http, with the adapter, and over TLS.
func TestMaxAgeRequests(t *testing.T) {
	const requests = 10 // give or take one
	eachDrain(t, func(t *testing.T, _ bool, start func(http.HandlerFunc, ...Option) *fixture) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Context().Value(userKey{}))
		}, MaxAge(0, requests))
		c := f.dial()
		for n := 1; ; n++ {
			c.send(request("/"))
			body, closes := c.answerClosing()
			if body != "the user's" {
				t.Fatalf("request %d: got %q", n, body)
			}
			if !closes && n < requests+2 {
				continue
			}
			if n < requests-1 || n > requests+1 {
				t.Errorf("answer %d says that the connection closes: %t", n, closes)
			}
			break
		}
		c.awaitEOF()
	})
}

// Over HTTP/2 the client opens another connection, and no request fails.
func TestMaxAgeHTTP2(t *testing.T) {
	for _, netHTTP := range []bool{true, false} {
		t.Run(fmt.Sprintf("net/http=%t", netHTTP), func(t *testing.T) {
			if netHTTP {
				leaveToNetHTTP(t)
			}
			f := start(t, echoPath, func(f *fixture) { f.srv.Protocols = clearHTTP2(false) }, MaxAge(0, 5))
			client := testnet.HTTP2Client(t, nil)
			conns := make(map[net.Addr]bool)
			trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { conns[info.Conn.LocalAddr()] = true },
			})
			for n := range 30 {
				if code, _ := status(trace, client, testnet.URL(f.ln, false, "/")); code != http.StatusOK {
					t.Fatalf("request %d: got %d", n, code)
				}
			}
			if len(conns) < 3 {
				t.Errorf("got %d connections for 30 requests, want some", len(conns))
			}
			client.CloseIdleConnections()
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

// TestMaxAgeDetached: an Answer whose connection has reached its age is told.
func TestMaxAgeDetached(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Answer) {
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
