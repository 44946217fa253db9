package http2

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/shared/counters"
)

// A Transport is an http.RoundTripper that calls servers on percore's connections. Package httpadapter
// also calls it Transport, and makes it: its NewTransport says which requests it serves itself. All
// methods are safe for concurrent use.
type Transport struct {
	// immutable
	base   *http.Transport
	engine bool // percore's engine is there

	conns    pool.Pool
	counters *counters.Set[counter]

	settled sync.Once // see settle
	alpn    bool      // the base speaks HTTP/2 over TLS
	ownH2   bool      // and this package can do so in its place
	client  *h2.Client
}

// New is NewTransport of package httpadapter for a base that is not nil.
func New(base *http.Transport) *Transport {
	if base == nil {
		panic("http2: New was called with a nil *http.Transport: call httpadapter.NewTransport")
	}
	t := &Transport{base: base, engine: seam.TakeOver != nil && !features.EngineIsNet()}
	t.counters = counters.NewSet(counters.Cells(), counterCount)
	t.conns = pool.Pool{
		Base: base, Counters: t.counters, Dial: t.dial, Share: t.share,
		DialsMax: pool.DialsMax, Patience: pool.PatienceMost,
	}
	counters.Enlist(transports, t, t.counters)
	return t
}

// RoundTrip implements [http.RoundTripper]. It blocks until the header of the answer has come, or the
// request's context ends. Until the answer's body is closed, or read to its end, a connection of
// HTTP/1.1 or a stream of HTTP/2 belongs to it.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("httpadapter: RoundTrip was called with a nil *http.Request")
	}
	var c call
	r := c.prepare(t, req)
	if r == served {
		return c.run()
	}
	t.decline(r)
	//lint:ignore SA1019 programs still use it
	if _, ends := req.Context().Deadline(); r == otherScheme && ends && req.Cancel == nil {
		return t.passToProtocol(req)
	}
	return t.base.RoundTrip(req)
}

// passToProtocol passes a request to a RoundTripper of the base's RegisterProtocol, which may know no
// contexts. An http.Client with a Timeout sets Cancel for those, but not for a Transport.
func (t *Transport) passToProtocol(req *http.Request) (*http.Response, error) {
	again := *req
	//lint:ignore SA1019 programs still use it
	again.Cancel = req.Context().Done()
	resp, err := t.base.RoundTrip(&again)
	if resp != nil && resp.Request == &again {
		resp.Request = req
	}
	return resp, err
}

// CloseIdleConnections closes the connections that wait for a request, including those of the base. It
// doesn't wait.
func (t *Transport) CloseIdleConnections() {
	t.conns.CloseIdle()
	t.base.CloseIdleConnections()
}

// serves returns why requests like req are not served here, whatever their body.
func (t *Transport) serves(req *http.Request) reason {
	switch base := t.base; {
	case !t.engine:
		return engineOff
	case req.URL == nil || req.Header == nil:
		return otherRequest
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return otherScheme
	case base.Protocols != nil && !base.Protocols.HTTP1() && !t.speaksOnlyH2(req.URL.Scheme):
		return otherProtocol
	case !http1.IsPlainOutgoing(req):
		return otherRequest
	}
	return served
}

// asksForGzip reports whether the client adds Accept-Encoding to a request, and decodes the answer.
func (t *Transport) asksForGzip(req *http.Request) bool {
	return !t.base.DisableCompression && req.Method != http.MethodHead &&
		req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == ""
}

// traceOf returns the hooks of a request, or nil.
func traceOf(ctx context.Context) *httptrace.ClientTrace { return httptrace.ContextClientTrace(ctx) }
