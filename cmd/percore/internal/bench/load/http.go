package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// httpSession sends the same request over and over on one connection.
type httpSession struct {
	job     *scenario.Scenario
	conn    net.Conn
	req     []byte // shared by all sessions, never written
	answers target.Answers
}

func httpSessions(job *scenario.Scenario) opener {
	req := request(job, "")
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err == nil && job.TLS {
			c, err = startTLS(c)
		}
		if err != nil {
			return nil, err
		}
		s := &httpSession{job: job, conn: c, req: req}
		s.answers.Reset(c)
		return s, nil
	}
}

// startTLS performs a client's handshake on c. The server's certificate was made a moment ago, so
// there is nothing to verify. It offers protocol by ALPN; without one, both sides speak HTTP/1.1.
func startTLS(c net.Conn, protocol ...string) (net.Conn, error) {
	c.SetDeadline(time.Now().Add(dialTimeout))
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocol})
	err := t.Handshake()
	if got := t.ConnectionState().NegotiatedProtocol; err == nil && len(protocol) > 0 && got != protocol[0] {
		err = fmt.Errorf("the server has chosen the protocol %q, want %q", got, protocol[0])
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	c.SetDeadline(time.Time{})
	return t, nil
}

func (s *httpSession) op() error {
	if err := s.send(); err != nil {
		return err
	}
	return s.receive()
}

func (s *httpSession) send() error {
	_, err := s.conn.Write(s.req)
	return err
}

func (s *httpSession) receive() error {
	status, err := s.answers.Next()
	want := http.StatusOK
	if s.job.App == scenario.AppUpgrade {
		want = http.StatusSwitchingProtocols
	}
	switch {
	case err != nil:
		return unexpectedEOF(err)
	case status != want:
		return fmt.Errorf("unexpected answer %d %s", status, http.StatusText(status))
	}
	return nil
}

func (s *httpSession) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *httpSession) close()                  { s.conn.Close() }

// request returns the bytes of a GET or, if the job has a payload, of a POST. extra contains header
// lines, each ending in CRLF.
func request(job *scenario.Scenario, extra string) []byte {
	if job.Browser {
		extra += strings.Join(scenario.BrowserHeader, "\r\n") + "\r\n"
	}
	if job.Field != "" {
		extra += job.Field + "\r\n"
	}
	method, path, version, body := "GET", "/", "HTTP/1.1", strings.Repeat("x", job.Payload)
	if job.Path != "" {
		path = job.Path
	}
	if job.Payload > 0 {
		method = "POST"
		if job.Chunked {
			extra, body = extra+"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", job.Payload, body)
		} else {
			extra += fmt.Sprintf("Content-Length: %d\r\n", job.Payload)
		}
	}
	if job.HTTP10 {
		version = "HTTP/1.0"
	}
	return fmt.Appendf(nil, "%s %s %s\r\nHost: %s\r\n%s\r\n%s", method, path, version, job.Addr, extra, body)
}

// httpOnce opens a connection for each request; the server closes it.
type httpOnce struct {
	httpSession
	deadline time.Time
}

func httpOnces(job *scenario.Scenario) opener {
	extra := "Connection: close\r\n"
	if job.App == scenario.AppUpgrade {
		extra = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	req := request(job, extra)
	return func(int) (session, error) { return &httpOnce{httpSession: httpSession{job: job, req: req}}, nil }
}

func (s *httpOnce) op() error {
	dialer := net.Dialer{Deadline: s.deadline}
	c, err := dialer.DialContext(context.Background(), "tcp", s.job.Addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	c.SetDeadline(s.deadline)
	s.conn = c
	s.answers.Reset(c)
	if err := s.httpSession.op(); err != nil {
		return err
	}
	// Wait for the server's FIN, so that the server closes first and keeps the TIME_WAIT.
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the response: %d more bytes, error %v; want EOF", n, err)
	}
	return nil
}

func (s *httpOnce) setDeadline(t time.Time) { s.deadline = t }
func (s *httpOnce) close()                  {}
