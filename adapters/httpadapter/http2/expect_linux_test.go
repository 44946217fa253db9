//go:build !percore_net

package http2

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestExpect: the body of a request with Expect is sent when the server says so, answers without closing
// the connection, or says nothing for ExpectContinueTimeout; and as net/http does it, the connection is
// used again.
func TestExpect(t *testing.T) {
	const (
		proceed = "HTTP/1.1 100 Continue\r\n\r\n"
		final   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		refusal = "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
	)
	for name, test := range map[string]struct {
		before string // what the server sends before it reads the body
		reads  bool   // it reads the body
		after  string
		ends   bool // the server ends the connection, then
		wait   time.Duration
		closes bool // Request.Close
	}{
		"100":                {proceed, true, final, false, time.Hour, false},
		"100 twice":          {proceed + proceed, true, final, false, time.Hour, false},
		"103 and 100":        {"HTTP/1.1 103 x\r\nA: b\r\n\r\n" + proceed, true, final, false, time.Hour, false},
		"answer at once":     {final, true, "", false, time.Hour, false},
		"other answer":       {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", true, "", false, time.Hour, false},
		"answer, then close": {final, true, "", true, time.Hour, false},
		"refused":            {refusal, false, "", true, time.Hour, false},
		"refused by 1.0":     {"HTTP/1.0 417 x\r\nContent-Length: 2\r\n\r\nno", false, "", true, time.Hour, false},
		"request with close": {final, false, "", true, time.Hour, true},
		"silence":            {"", true, final, false, time.Millisecond, false},
		"no wait":            {"", true, final, false, 0, false},
		"end":                {"", false, "", true, time.Hour, false},
		"garbage":            {"garbage\r\n\r\n", false, "", true, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, chunks := range []bool{false, true} {
				base := func() *http.Transport { return &http.Transport{ExpectContinueTimeout: test.wait} }
				both(t, base, func(t *testing.T, rt http.RoundTripper) (s string) {
					got := make(chan string, 9)
					srv := testnet.Serve(t, listen(t), func(c net.Conn) {
						for br := bufio.NewReader(c); ; {
							req, err := http.ReadRequest(br)
							if err != nil {
								return
							}
							_, _ = io.WriteString(c, test.before)
							if test.reads {
								body, err := io.ReadAll(req.Body)
								got <- fmt.Sprintf("%q %v", body, err)
							}
							_, _ = io.WriteString(c, test.after)
							if test.ends {
								_ = c.(*net.TCPConn).CloseWrite()
								rest, _ := io.ReadAll(br)
								got <- fmt.Sprintf("rest %q", rest)
								return
							}
						}
					})
					for range 2 {
						s += expect(rt, testnet.URL(srv, false, ""), chunks, test.closes)
						s += <-got + "\n"
						if test.ends && test.reads {
							s += <-got + "\n"
						}
					}
					return s
				})
			}
		})
	}
}

// expect makes a request with Expect, and returns what is seen of it.
func expect(rt http.RoundTripper, url string, chunks, closes bool) (s string) {
	var mu sync.Mutex
	event := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		s += fmt.Sprintf(format+"\n", args...)
	}
	waited, wrote := false, make(chan error, 1)
	trace := &httptrace.ClientTrace{
		GotConn:         func(i httptrace.GotConnInfo) { event("reused %t", i.Reused) },
		Got100Continue:  func() { event("got 100") },
		Got1xxResponse:  func(code int, h textproto.MIMEHeader) error { event("got %d %v", code, h); return nil },
		Wait100Continue: func() { waited = true },
		WroteRequest:    func(i httptrace.WroteRequestInfo) { wrote <- i.Err },
	}
	var body io.Reader = strings.NewReader("the body")
	if chunks {
		body = onlyReader{body}
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", url, body)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Expect", "100-continue")
	req.Close = closes
	resp, err := rt.RoundTrip(req)
	if err != nil {
		event("%s", describe(err))
	} else {
		p := make([]byte, 2)
		_, err := io.ReadFull(resp.Body, p)
		event("%s %q %v", resp.Status, p, err)
		resp.Body.Close()
	}
	event("wrote: %v", <-wrote)
	event("waited %t", waited)
	return s
}
