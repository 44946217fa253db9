package target

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/valyala/fasthttp"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// fastServer serves with fasthttp what newHTTPServer does with net/http. Its answers have the same
// header fields, in another order. It doesn't have a separate timeout for a request's header.
func fastServer(order *scenario.Order) func(net.Listener) error {
	srv := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("text/plain")
		ctx.Write(helloBody)
	}}
	if order.Timeouts {
		srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = readTimeout, writeTimeout, idleTimeout
	}
	return srv.Serve
}

// fastCall sets what calls with fasthttp's client. Answers are in memory as a whole.
func (c *caller) fastCall(order *scenario.Order) {
	dial := dialer(order)
	client := &fasthttp.Client{
		MaxConnsPerHost: idleMax,
		TLSConfig:       &tls.Config{InsecureSkipVerify: true},
		Dial: func(addr string) (net.Conn, error) { // fasthttp's own has a goroutine that never ends
			if dial != nil {
				return dial()
			}
			return net.Dial("tcp", addr)
		},
	}
	url, body := callURL(order, order.Behind), make([]byte, order.Backend.Payload)
	c.closes = append(c.closes, client.CloseIdleConnections)
	c.call = func() error {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(resp)
		req.SetRequestURI(url)
		if len(body) > 0 {
			req.Header.SetMethod(fasthttp.MethodPost)
			if order.Backend.Chunked {
				req.SetBodyStream(bytes.NewReader(body), -1)
			} else {
				req.SetBodyRaw(body)
			}
		}
		if err := client.Do(req, resp); err != nil {
			return err
		}
		if code := resp.StatusCode(); code != fasthttp.StatusOK {
			return fmt.Errorf("the backend answered %d", code)
		}
		return nil
	}
}

// Answers reads answers over HTTP/1 from one connection, with fasthttp's parser, for the load.
type Answers struct {
	in   *bufio.Reader
	resp fasthttp.Response
}

// answerBuffer is the size of a connection's buffer: there are thousands. It has room for a header.
const answerBuffer = 8 << 10

// Reset makes a read from another connection.
func (a *Answers) Reset(c net.Conn) {
	if a.in == nil {
		a.in = bufio.NewReaderSize(c, answerBuffer)
	}
	a.in.Reset(c)
}

// Next reads an answer to its end and returns its status. It skips answers of status 100 before it. More
// bytes behind it are an error.
func (a *Answers) Next() (status int, err error) {
	if err := a.resp.ReadLimitBody(a.in, 0); errors.Is(err, fasthttp.ErrTimeout) {
		return 0, os.ErrDeadlineExceeded
	} else if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	if more := a.in.Buffered(); more > 0 {
		return 0, fmt.Errorf("%d bytes more than the answer announced", more)
	}
	return a.resp.StatusCode(), nil
}
