package target

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/valyala/fasthttp"
)

// newFastHTTPServer returns a fasthttp.Server with the same handler and defaults as newHTTPServer.
// Its answers have the same header fields as with net/http, in another order. It doesn't have a
// separate timeout for a request's header.
func newFastHTTPServer(spec Spec) server {
	srv := &fasthttp.Server{Handler: fastHello, NoDefaultServerHeader: true}
	if spec.Timeouts {
		srv.ReadTimeout = readTimeout
		srv.WriteTimeout = writeTimeout
		srv.IdleTimeout = idleTimeout
	}
	return srv
}

// fastHello is the handler hello for fasthttp.
func fastHello(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain")
	ctx.Write(helloBody)
}

// fastCall is httpCall with fasthttp's client. Answers are in memory as a whole.
func fastCall(url string, body []byte) (call func() error, closeIdle func()) {
	client := &fasthttp.Client{
		MaxConnsPerHost: proxyIdleMax,
		TLSConfig:       &tls.Config{InsecureSkipVerify: true},
		Dial:            func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }, // its own never ends
	}
	call = func() error {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(resp)
		req.SetRequestURI(url)
		if len(body) > 0 {
			req.Header.SetMethod(fasthttp.MethodPost)
			req.SetBodyRaw(body)
		}
		if err := client.Do(req, resp); err != nil {
			return err
		}
		if code := resp.StatusCode(); code != fasthttp.StatusOK {
			return fmt.Errorf("the backend answered %d", code)
		}
		return nil
	}
	return call, client.CloseIdleConnections
}
