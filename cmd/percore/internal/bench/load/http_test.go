package load

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// answering serves connections that each get the same answer to everything they send, and then the end.
// It returns its address.
func answering(t *testing.T, answer string) string {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				io.WriteString(c, answer)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
			}
			c.Close()
		}
	}()
	return ln.Addr().String()
}

// TestHTTPAnswers: an answer is complete, has the right status, and nothing follows it.
func TestHTTPAnswers(t *testing.T) {
	const (
		good    = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length:  5\r\n\r\nhello"
		chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
		refused = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
		upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	)
	for _, c := range []struct {
		answer string
		job    scenario.Scenario
		want   string // in the error
	}{
		{good, scenario.Scenario{}, ""},
		{good, scenario.Scenario{Close: true}, ""},
		{chunked, scenario.Scenario{}, ""},
		{"HTTP/1.1 100 Continue\r\n\r\n" + good, scenario.Scenario{Field: "Expect: 100-continue"}, ""},
		{strings.Replace(good, "1.1", "1.0", 1), scenario.Scenario{HTTP10: true}, ""},
		{upgrade, scenario.Scenario{App: scenario.AppUpgrade, Close: true}, ""},
		{good, scenario.Scenario{App: scenario.AppUpgrade, Close: true}, "unexpected answer 200"},
		{refused, scenario.Scenario{}, "unexpected answer 503"},
		{"220 mail.example.org ESMTP\r\n", scenario.Scenario{}, "read answer"},
		{"", scenario.Scenario{}, "EOF"},
		{good[:30], scenario.Scenario{}, "EOF"},
		{good[:len(good)-1], scenario.Scenario{}, "unexpected EOF"},
		{strings.TrimSuffix(chunked, "o\r\n0\r\n\r\n"), scenario.Scenario{}, "EOF"},
		{good + "!", scenario.Scenario{}, "1 bytes more"},
		{good + "!", scenario.Scenario{Close: true}, "1 bytes more"},
	} {
		testnet.NoLeaks(t)
		c.job.Conns, c.job.Addr = 1, answering(t, c.answer)
		sessions, err := open(&c.job)
		if err != nil {
			t.Fatal(err)
		}
		sessions[0].setDeadline(time.Now().Add(testnet.HangTimeout))
		if err := sessions[0].op(); !says(err, c.want) {
			t.Errorf("%q, %+v: error %v, want one with %q", c.answer, c.job, err, c.want)
		}
		closeAll(sessions)
	}
}

// says reports whether err is an error about what, or none if what is empty.
func says(err error, what string) bool {
	if what == "" || err == nil {
		return what == "" && err == nil
	}
	return strings.Contains(err.Error(), what)
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		job   scenario.Scenario
		extra string
		want  string
	}{
		{scenario.Scenario{}, "", "GET / HTTP/1.1\r\nHost: h:1\r\n\r\n"},
		{scenario.Scenario{Path: "/f"}, "X: y\r\n", "GET /f HTTP/1.1\r\nHost: h:1\r\nX: y\r\n\r\n"},
		{scenario.Scenario{Payload: 3}, "", "POST / HTTP/1.1\r\nHost: h:1\r\nContent-Length: 3\r\n\r\nxxx"},
		{scenario.Scenario{Payload: 17, Chunked: true}, "", "POST / HTTP/1.1\r\nHost: h:1\r\nTransfer-Encoding: chunked\r\n\r\n11\r\nxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n"},
		{scenario.Scenario{HTTP10: true, Field: "Connection: keep-alive"}, "", "GET / HTTP/1.0\r\nHost: h:1\r\nConnection: keep-alive\r\n\r\n"},
		{scenario.Scenario{Browser: true}, "X: y\r\n", "GET / HTTP/1.1\r\nHost: h:1\r\nX: y\r\n" + strings.Join(scenario.BrowserHeader, "\r\n") + "\r\n\r\n"},
	} {
		c.job.Addr = "h:1"
		if got := string(request(&c.job, c.extra)); got != c.want {
			t.Errorf("%+v, %q: got %q, want %q", c.job, c.extra, got, c.want)
		}
	}
}
