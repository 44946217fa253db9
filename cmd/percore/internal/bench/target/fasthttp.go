package target

import "github.com/valyala/fasthttp"

// newFastHTTPServer returns a fasthttp.Server with the handler and the defaults of
// newHTTPServer. Its answers are net/http's in another order of the header's fields. It has
// no timeout of its own for a request's header.
func newFastHTTPServer(spec Spec) server {
	srv := &fasthttp.Server{Handler: fastHello, NoDefaultServerHeader: true}
	if spec.Timeouts {
		srv.ReadTimeout = readTimeout
		srv.WriteTimeout = writeTimeout
		srv.IdleTimeout = idleTimeout
	}
	return srv
}

// fastHello is hello for fasthttp.
func fastHello(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain")
	ctx.Write(helloBody)
}
