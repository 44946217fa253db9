package http2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/exchange"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/client/streams"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/shared/counters"
)

// call is one call of RoundTrip.
type call struct {
	t *Transport
	request.Request
	pool.Route

	reused bool // another call has used its connection before
}

// prepare returns why the request is not served here. If so, it has done nothing to the request.
func (c *call) prepare(t *Transport, req *http.Request) reason {
	if r := t.serves(req); r != served {
		return r
	}
	if req.Body != nil && req.Body != http.NoBody {
		c.Body, c.Length = req.Body, req.ContentLength
		chunked := isChunked(req)
		if c.Length == 0 || chunked {
			c.Length = -1
		}
		switch {
		case len(req.TransferEncoding) > 0 && (!chunked || req.Method == http.MethodConnect || req.ContentLength > 0):
			return otherBody // what is sent depends on the version of HTTP
		case c.Length > 0 && request.HasOtherLength(req.Body, c.Length):
			return otherBody // net/http's buffer decides what is sent of it
		}
		c.Probes = c.Length < 0 && !chunked && usuallyLacksBody(req.Method)
	} else if req.Body == nil && req.ContentLength != 0 || req.Body != nil && len(req.TransferEncoding) > 0 {
		return otherBody
	}
	if req.Body != nil && expectsContinue(req) {
		if c.Body == nil {
			return otherBody // net/http asks anyway
		}
		c.Expects = true
	}
	if c.Target = http1.OutgoingTarget(req); !http1.IsPlainTarget(c.Target) {
		return otherRequest
	}
	port := "80"
	if http1.RequiresHTTP1(req) {
		c.Kind |= onlyH1
	}
	if req.URL.Scheme == "https" {
		if r := t.servesTLS(c.Kind&onlyH1 != 0); r != served {
			return r
		}
		c.Kind |= overTLS
		port = "443"
	}
	c.t, c.Base = t, t.base
	if req.URL.Scheme == "http" && t.speaksOnlyH2("http") {
		c.Kind |= clearH2
	}
	if c.Shares = t.mayShare(c.Kind); c.Shares {
		if r := c.refusesH2(req); r != served {
			return r
		}
	}
	c.Req, c.Ctx = req, req.Context()
	c.Trace = traceOf(c.Ctx)
	c.Server = http1.HostPort(req.URL, port)
	c.Key, c.Addr = c.Server, c.Server
	c.Gzip = t.asksForGzip(req)
	c.Closes = t.base.DisableKeepAlives && !request.WantsClose(req) && !request.IsUpgrade(req.Header)
	return served
}

// run serves the request: it returns what http.Transport.RoundTrip returns.
func (c *call) run() (resp *http.Response, err error) {
	//lint:ignore SA1019 programs still use it
	if closed := c.Req.Cancel; closed != nil {
		c.Ctx, c.Cancel = context.WithCancelCause(c.Ctx)
		go awaitCancel(c.Ctx, c.Cancel, closed)
		defer func() {
			if resp == nil {
				c.Cancel(err)
			}
		}()
	}
	var counted counters.Cell[counter] // of the first connection's host; nil: there was no connection
	defer func() {
		if counted != nil {
			counted.Add(countAnswered, 1)
		}
	}()
	retries := 0 // over HTTP/2
	for {
		if c.Ctx.Err() != nil {
			c.CloseBody()
			return nil, context.Cause(c.Ctx)
		}
		if c.t.base.Proxy != nil {
			proxy, err := c.t.base.Proxy(c.Req)
			if err != nil {
				c.CloseBody()
				return nil, err
			}
			if !c.goThrough(proxy) {
				return c.passOn()
			}
		}
		conn, err := c.getConn()
		if err != nil {
			c.CloseBody()
			return nil, err
		}
		if counted == nil {
			counted = conn.Host.Count
			counted.Add(countRequests, 1)
		}
		if c.reused {
			conn.Host.Count.Add(countReused, 1)
		}
		shared := streams.Of(conn)
		if shared != nil {
			resp, err = shared.Do(&c.Request)
		} else {
			resp, err = exchange.Do(conn, &c.Request)
		}
		if err == nil {
			return resp, nil
		}
		if err == streams.ErrCrowded {
			continue
		}
		switch {
		case shared != nil && shared.HasServed(err):
			err = c.retryShared(err, 0)
		case shared != nil:
			err = c.retryShared(err, retries)
			retries++
		case c.shouldRetry(conn, err):
			err = nil
		}
		if err != nil {
			c.CloseBody()
			return nil, exchange.Plain(err)
		}
		conn.Host.Count.Add(countRetried, 1)
		if err := c.Rewind(); err != nil {
			return nil, err
		}
	}
}

// expectsContinue reports whether net/http asks the server before it sends the body.
func expectsContinue(req *http.Request) bool {
	return req.ProtoAtLeast(1, 1) && http1.HasToken(semantics.First(req.Header, "Expect"), "100-continue")
}

// awaitCancel turns the closing of a request's Cancel into the end of its context.
func awaitCancel(ctx context.Context, cancel context.CancelCauseFunc, closed <-chan struct{}) {
	select {
	case <-closed:
		cancel(request.ErrCanceled)
	case <-ctx.Done():
	}
}

// isChunked reports whether the user wants chunks, as a ReverseProxy does for a body that came in
// chunks.
func isChunked(req *http.Request) bool {
	return len(req.TransferEncoding) > 0 && req.TransferEncoding[0] == "chunked"
}

// usuallyLacksBody reports whether servers are confused by a body of unknown length.
func usuallyLacksBody(method string) bool {
	switch method {
	case "", "GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND", "SEARCH":
		return true
	}
	return false
}

// passOn lets the base serve a call through a proxy that isn't served here.
func (c *call) passOn() (*http.Response, error) {
	c.t.decline(proxied)
	if c.Cancel != nil {
		c.Cancel(request.ErrDone) // the base watches the channel
	}
	if c.Body == nil || c.Body == c.Req.Body {
		return c.t.base.RoundTrip(c.Req)
	}
	again := *c.Req // since GetBody has returned another body
	again.Body = c.Body
	resp, err := c.t.base.RoundTrip(&again)
	if resp != nil {
		resp.Request = c.Req
	}
	return resp, err
}

// shouldRetry reports whether a request that failed on a connection is sent again on another: see
// net/http's method of this name.
func (c *call) shouldRetry(conn *pool.Conn, err error) bool {
	if !conn.Reused() {
		return false // the connection was new, so the server doesn't like the request
	}
	if _, ok := err.(exchange.NothingWritten); ok {
		return c.Body == nil || c.Req.GetBody != nil
	}
	if _, ok := err.(exchange.NoAnswer); ok {
		return c.isReplayable()
	}
	return false
}

// retryShared returns nil if a request that failed over HTTP/2 is sent again, as net/http does. From the
// second time on it waits first.
func (c *call) retryShared(err error, retries int) error {
	if !streams.MayRetry(err) || retries > sharedRetriesMax {
		return err
	}
	if c.BodyRead && c.Body != nil && c.Req.GetBody == nil {
		return fmt.Errorf("http2: Transport: cannot retry err [%v] after Request.Body was written; define Request.GetBody to avoid this error", err)
	}
	if retries == 0 {
		return nil
	}
	timer := time.NewTimer(time.Second << (retries - 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.Ctx.Done():
		return c.Ended()
	}
}

// sharedRetriesMax is how often a request is sent again, after the first time.
const sharedRetriesMax = 6

// isReplayable reports whether the request may reach the server twice.
func (c *call) isReplayable() bool {
	if c.Body != nil && c.Req.GetBody == nil {
		return false
	}
	switch c.Req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return c.Req.Header["Idempotency-Key"] != nil || c.Req.Header["X-Idempotency-Key"] != nil
}

// getConn returns an idle connection, or waits for one that becomes idle, has room, or was dialed.
func (c *call) getConn() (*pool.Conn, error) {
	trace := c.Trace
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(c.Addr)
	}
	conn, idleSince, w := c.t.conns.Take(c.Ctx, &c.Route)
	if conn == nil {
		var err error
		if conn, err = w.Wait(c.Ctx); err != nil {
			if c.Ctx.Err() != nil {
				err = c.canceled() // probably why dialing failed
			}
			return nil, err
		}
	}
	if shared := streams.Of(conn); shared != nil {
		c.reused, idleSince = shared.Take(trace != nil)
	} else {
		c.reused = conn.Reused()
	}
	if trace != nil && trace.GotConn != nil {
		info := httptrace.GotConnInfo{Conn: conn.Link.Shown(), Reused: c.reused}
		if !idleSince.IsZero() {
			info.WasIdle, info.IdleTime = true, time.Since(idleSince)
		}
		got := false
		defer func() {
			if !got { // the hook has panicked, or ended the goroutine
				conn.GiveBack()
			}
		}()
		trace.GotConn(info)
		got = true
	}
	return conn, nil
}

// canceled returns the error of a request that was cancelled while it waited for a connection.
func (c *call) canceled() error {
	err := context.Cause(c.Ctx)
	if errors.Is(err, request.ErrCanceled) {
		return errRequestCanceledConn
	}
	return err
}
