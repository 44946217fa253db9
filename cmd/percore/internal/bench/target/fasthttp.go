package target

import "github.com/valyala/fasthttp"

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
