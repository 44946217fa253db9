package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// httpSession sends the same request over and over on one connection.
type httpSession struct {
	conn net.Conn
	req  []byte // shared by all sessions, never written
	resp responseReader
}

func httpOpener(job Job) opener {
	req := request(job, "")
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		if job.TLS {
			if c, err = startTLS(c); err != nil {
				return nil, err
			}
		}
		return &httpSession{conn: c, req: req, resp: newResponseReader(job)}, nil
	}
}

// startTLS performs a client's handshake on c. The server's certificate was made a moment ago, so
// there is nothing to verify. It offers protocol by ALPN; without one, both sides speak HTTP/1.1.
func startTLS(c net.Conn, protocol ...string) (net.Conn, error) {
	c.SetDeadline(time.Now().Add(dialTimeout))
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocol})
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if got := t.ConnectionState().NegotiatedProtocol; len(protocol) > 0 && got != protocol[0] {
		c.Close()
		return nil, fmt.Errorf("TLS handshake: the server has chosen the protocol %q, want %q", got, protocol[0])
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

// send is the first half of op, and receive is the second: see asker.
func (s *httpSession) send() error {
	_, err := s.conn.Write(s.req)
	return err
}

func (s *httpSession) receive() error { return s.resp.read(s.conn) }

func (s *httpSession) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *httpSession) close()                  { s.conn.Close() }

// request returns the bytes of a GET or, if the job has a payload, of a POST. extra contains header
// lines, each ending in CRLF.
func request(job Job, extra string) []byte {
	if job.Browser {
		extra += strings.Join(BrowserHeader, "\r\n") + "\r\n"
	}
	version := "HTTP/1.1"
	switch job.Odd {
	case OddVersion:
		version = "HTTP/1.0"
		if job.Kind == KindHTTP {
			extra += "Connection: keep-alive\r\n"
		}
	case OddUpgrade:
		extra = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	case OddPragma:
		extra += "Pragma: no-cache\r\n"
	case OddExpect:
		extra += "Expect: 100-continue\r\n"
	}
	path := job.Path
	if path == "" {
		path = "/"
	}
	if job.Payload == 0 {
		return []byte("GET " + path + " " + version + "\r\nHost: " + job.Addr + "\r\n" + extra + "\r\n")
	}
	head, body := "POST "+path+" "+version+"\r\nHost: "+job.Addr+"\r\n"+extra, strings.Repeat("x", job.Payload)
	if job.Odd == OddChunked {
		return []byte(head + "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(job.Payload), 16) + "\r\n" + body + "\r\n0\r\n\r\n")
	}
	return []byte(head + "Content-Length: " + strconv.Itoa(job.Payload) + "\r\n\r\n" + body)
}

// httpCloseSession opens a connection for each request; the server closes it.
type httpCloseSession struct {
	addr     string
	req      []byte
	resp     responseReader
	deadline time.Time
}

func httpCloseOpener(job Job) opener {
	req := request(job, "Connection: close\r\n")
	return func(int) (session, error) {
		return &httpCloseSession{addr: job.Addr, req: req, resp: newResponseReader(job)}, nil
	}
}

func (s *httpCloseSession) op() error {
	dialer := net.Dialer{Deadline: s.deadline}
	c, err := dialer.DialContext(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	c.SetDeadline(s.deadline)
	if _, err := c.Write(s.req); err != nil {
		return err
	}
	if err := s.resp.read(c); err != nil {
		return err
	}
	// Wait for the server's FIN, so that the server closes first and keeps the TIME_WAIT.
	if n, err := c.Read(s.resp.buf); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the response: %d more bytes, error %v; want EOF", n, err)
	}
	return nil
}

func (s *httpCloseSession) setDeadline(t time.Time) { s.deadline = t }
func (s *httpCloseSession) close()                  {}

// responseReader reads HTTP responses with a Content-Length, or in chunks, from a connection that
// carries one response at a time. If a header block is as long as the last one, it expects the same
// length of body, or chunks again, unless they vary. So the common response only needs one comparison
// of its status line and one of its blank line.
type responseReader struct {
	buf     []byte
	header  int           // length of the last header block, with its blank line
	content int           // length of the last body; inChunks if it wasn't announced
	chunks  *bufio.Reader // of bodies in chunks; nil before the first

	refusable bool   // the server may answer 503
	varies    bool   // bodies of different lengths have headers of the same length
	status    []byte // the first line of the answer; nil: that of a 200
	interim   []byte // what comes before it
}

func newResponseReader(job Job) responseReader {
	r := responseReader{refusable: job.Refused, varies: job.Varies}
	switch job.Odd {
	case OddExpect:
		r.interim = statusContinue
	case OddVersion:
		r.status = statusOldOK
	case OddUpgrade:
		r.status = statusSwitching
	}
	return r
}

// inChunks is the value of responseReader.content for bodies whose length is not announced.
const inChunks = -1

const (
	// headerMax is the first size of a reader's buffer: thousands of idle
	// connections have one each, and no server here sends a longer header.
	headerMax = 1024

	// bodyChunk is its size once a longer body is announced. It reads a download with few system
	// calls, like a client that wants to be fast.
	bodyChunk = 128 << 10

	// chunkedBuffer is the size of the buffer for bodies in chunks.
	chunkedBuffer = 32 << 10

	crlf = "\r\n" // after the last chunk
)

var (
	statusOK        = []byte("HTTP/1.1 200 OK\r\n")
	statusOldOK     = []byte("HTTP/1.0 200 OK\r\n")
	statusContinue  = []byte("HTTP/1.1 100 Continue\r\n\r\n")
	statusSwitching = []byte("HTTP/1.1 101 Switching Protocols\r\n")
	statusRefused   = []byte("HTTP/1.1 503 ")
	blankLine       = []byte("\r\n\r\n")
)

// errRefused is the error of an operation that was answered with 503. The connection serves the next.
var errRefused = errors.New("the server has refused the request")

// read consumes one response and checks that it has the right status and is complete.
func (r *responseReader) read(c io.Reader) error {
	if r.buf == nil {
		r.buf = make([]byte, headerMax)
	}
	if r.status == nil {
		r.status = statusOK
	}
	if interim := r.buf[:len(r.interim)]; len(interim) > 0 {
		if _, err := io.ReadFull(c, interim); err != nil || !bytes.Equal(interim, r.interim) {
			return fmt.Errorf("unexpected answer %.80q, %v", interim, err)
		}
	}
	n := 0
	for {
		m, err := c.Read(r.buf[n:])
		n += m
		if r.known(n) || r.parse(r.buf[:n]) {
			return r.body(c, n)
		}
		if r.refusable && n >= len(statusRefused) && bytes.HasPrefix(r.buf, statusRefused) {
			return refusal(io.MultiReader(bytes.NewReader(r.buf[:n]), c))
		}
		if n >= len(r.status) && !bytes.HasPrefix(r.buf, r.status) {
			line, _, _ := bytes.Cut(r.buf[:n], []byte("\r\n"))
			return fmt.Errorf("unexpected answer %.80q", line)
		}
		if err != nil {
			return fmt.Errorf("read response: %w", unexpectedEOF(err))
		}
		if n == len(r.buf) {
			return errors.New("response header too long, or without a length")
		}
	}
}

// refusal consumes an answer of 503, and returns errRefused.
func refusal(from io.Reader) error {
	resp, err := http.ReadResponse(bufio.NewReader(from), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err != nil {
		return fmt.Errorf("read response: %w", unexpectedEOF(err))
	}
	return errRefused
}

// known reports whether the n bytes read begin with a header block of the same shape as the last
// one.
func (r *responseReader) known(n int) bool {
	return !r.varies && r.header > 0 && n >= r.header &&
		bytes.HasPrefix(r.buf, r.status) &&
		bytes.Equal(r.buf[r.header-len(blankLine):r.header], blankLine)
}

// parse looks for a complete header block of an answer that announces its body, and remembers its
// shape.
func (r *responseReader) parse(b []byte) bool {
	if !bytes.HasPrefix(b, r.status) {
		return false
	}
	end := bytes.Index(b, blankLine)
	if end < 0 {
		return false
	}
	if bytes.Equal(r.status, statusSwitching) { // has no body
		r.header, r.content = end+len(blankLine), 0
		return true
	}
	for line := range bytes.SplitSeq(b[:end], []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		length := inChunks
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			var err error
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return false
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")) && bytes.EqualFold(value, []byte("chunked")):
		default:
			continue
		}
		r.header, r.content = end+len(blankLine), length
		return true
	}
	return false
}

// body reads the part of the response's body that is not among the n bytes read so far.
func (r *responseReader) body(c io.Reader, n int) error {
	if r.content == inChunks {
		return r.chunkedBody(io.MultiReader(bytes.NewReader(r.buf[r.header:n]), c))
	}
	rest := r.header + r.content - n
	if rest < 0 {
		return fmt.Errorf("%d bytes more than the response announced", -rest)
	}
	if rest > len(r.buf) && len(r.buf) < bodyChunk {
		r.buf = make([]byte, bodyChunk)
	}
	for rest > 0 {
		m, err := c.Read(r.buf[:min(rest, len(r.buf))])
		rest -= m
		if err != nil && rest > 0 {
			return fmt.Errorf("read body: %w", unexpectedEOF(err))
		}
	}
	return nil
}

// chunkedBody reads a chunked body from in, which ends with the connection.
func (r *responseReader) chunkedBody(in io.Reader) error {
	if r.chunks == nil {
		r.chunks = bufio.NewReaderSize(nil, chunkedBuffer)
	}
	r.chunks.Reset(in)
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r.chunks)); err != nil {
		return fmt.Errorf("read body: %w", unexpectedEOF(err))
	}
	end, err := r.chunks.Peek(len(crlf)) // no server here sends trailers
	if err != nil {
		return fmt.Errorf("read body: %w", unexpectedEOF(err))
	}
	if string(end) != crlf {
		return fmt.Errorf("%q after the last chunk, want an empty line", end)
	}
	r.chunks.Discard(len(crlf))
	if more := r.chunks.Buffered(); more > 0 {
		return fmt.Errorf("%d bytes more than the response announced", more)
	}
	return nil
}
