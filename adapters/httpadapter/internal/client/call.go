package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/serving"
)

// call is one call of RoundTrip.
type call struct {
	t   *Transport
	req *http.Request // the user's, which is not changed

	ctx    context.Context
	cancel context.CancelCauseFunc // of ctx; nil: it is the request's own

	trace  *httptrace.ClientTrace // nil: none
	kind   kind                   // with key, the pool's key
	key    string                 // addr, unless there is a proxy
	addr   string                 // what to dial
	server string                 // addr, unless there is a proxy
	proxy  *url.URL               // nil: none
	target string                 // of the first line
	gzip   bool
	closes bool // the client adds Connection: close

	reused bool // another call has had the connection that it has got

	expects  bool          // the server is asked before the body is sent
	body     io.ReadCloser // what to send; nil: nothing
	bodyRead bool          // it was read, and closed
	length   int64         // of the body; below 0: it goes in chunks, or with CONNECT as it is
}

// prepare returns why the request is not served here. Then nothing has happened to it.
func (c *call) prepare(t *Transport, req *http.Request) reason {
	if r := t.serves(req); r != served {
		return r
	}
	if req.Body != nil && req.Body != http.NoBody {
		c.body, c.length = req.Body, req.ContentLength
		if c.length == 0 {
			c.length = -1
		}
		switch {
		case c.length < 0 && usuallyLacksBody(req.Method):
			return otherBody // net/http looks whether there is one
		case c.length > 0 && hasOtherLength(req.Body, c.length):
			return otherBody // it depends on net/http's buffer what is sent of it
		}
	} else if req.ContentLength != 0 && req.Body == nil {
		return otherBody
	}
	if req.Body != nil && expectsContinue(req) {
		if c.body == nil {
			return otherBody // net/http asks anyway
		}
		c.expects = true
	}
	if c.target = http1.OutgoingTarget(req); !http1.IsPlainTarget(c.target) {
		return otherRequest
	}
	port := "80"
	if http1.RequiresHTTP1(req) {
		c.kind |= onlyH1
	}
	if req.URL.Scheme == "https" {
		if r := t.servesTLS(c.kind&onlyH1 != 0); r != served {
			return r
		}
		c.kind |= overTLS
		port = "443"
	}
	c.t = t
	if req.URL.Scheme == "http" && t.speaksOnlyH2("http") {
		c.kind |= clearH2
	}
	if t.mayShare(c.kind) {
		if r := c.refusesH2(req); r != served {
			return r
		}
	}
	c.req, c.ctx = req, req.Context()
	c.trace = traceOf(c.ctx)
	c.server = http1.HostPort(req.URL, port)
	c.key, c.addr = c.server, c.server
	c.gzip = t.asksForGzip(req)
	c.closes = t.base.DisableKeepAlives && !wantsClose(req) && !isUpgrade(req.Header)
	return served
}

// run serves the request: it returns what http.Transport.RoundTrip returns.
func (c *call) run() (resp *http.Response, err error) {
	//lint:ignore SA1019 programs still use it
	if closed := c.req.Cancel; closed != nil {
		c.ctx, c.cancel = context.WithCancelCause(c.ctx)
		go awaitCancel(c.ctx, c.cancel, closed)
		defer func() {
			if resp == nil {
				c.cancel(err)
			}
		}()
	}
	var counted serving.Cell[counter] // the request; nil: none has it yet
	defer func() {
		if counted != nil {
			counted.Add(countAnswered, 1)
		}
	}()
	retries := 0 // over HTTP/2
	for {
		if c.ctx.Err() != nil {
			c.closeBody()
			return nil, context.Cause(c.ctx)
		}
		if c.t.base.Proxy != nil {
			proxy, err := c.t.base.Proxy(c.req)
			if err != nil {
				c.closeBody()
				return nil, err
			}
			if !c.goThrough(proxy) {
				return c.passOn()
			}
		}
		conn, err := c.getConn()
		if err != nil {
			c.closeBody()
			return nil, err
		}
		if counted == nil {
			counted = conn.host.count
			counted.Add(countRequests, 1)
		}
		if c.reused {
			conn.host.count.Add(countReused, 1)
		}
		resp, err := conn.exchange(c)
		if err == nil {
			return resp, nil
		}
		if err == errCrowded {
			continue
		}
		switch {
		case conn.shared != nil && conn.hasServed(err):
			err = c.retryShared(err, 0)
		case conn.shared != nil:
			err = c.retryShared(err, retries)
			retries++
		case c.shouldRetry(conn, err):
			err = nil
		}
		if err != nil {
			c.closeBody()
			return nil, plainError(err)
		}
		conn.host.count.Add(countRetried, 1)
		if err := c.rewind(); err != nil {
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
		cancel(errRequestCanceled)
	case <-ctx.Done():
	}
}

// endedInHook reports whether the user has cancelled the call in a hook. The watch of the context may
// come later than the answer, and then the call would succeed.
func (c *call) endedInHook() bool {
	if c.trace == nil {
		return false
	}
	select {
	//lint:ignore SA1019 programs still use it
	case <-c.req.Cancel:
		c.cancel(errRequestCanceled)
	default:
	}
	return c.ctx.Err() != nil
}

// usuallyLacksBody reports whether servers are confused by a body of unknown length.
func usuallyLacksBody(method string) bool {
	switch method {
	case "", "GET", "HEAD", "DELETE", "OPTIONS", "PROPFIND", "SEARCH":
		return true
	}
	return false
}

// passOn lets the base serve the call. Its proxy is only known after everything else.
func (c *call) passOn() (*http.Response, error) {
	c.t.decline(proxied)
	if c.cancel != nil {
		c.cancel(errRequestDone) // the base watches the channel
	}
	if c.body == nil || c.body == c.req.Body {
		return c.t.base.RoundTrip(c.req)
	}
	again := *c.req // since GetBody has returned another body
	again.Body = c.body
	resp, err := c.t.base.RoundTrip(&again)
	if resp != nil {
		resp.Request = c.req
	}
	return resp, err
}

// closeBody closes the request's body unless it was closed already.
func (c *call) closeBody() {
	if c.body != nil && !c.bodyRead {
		c.bodyRead = true
		c.body.Close()
	}
}

// rewind prepares the body to be sent once more.
func (c *call) rewind() (err error) {
	if c.body == nil || !c.bodyRead {
		return nil
	}
	if c.req.GetBody == nil {
		return errCannotRewind
	}
	if c.body, err = c.req.GetBody(); err != nil {
		return err
	}
	c.bodyRead = false
	return nil
}

// shouldRetry reports whether a request that failed on a connection is sent again on another: see
// net/http's method of this name.
func (c *call) shouldRetry(conn *conn, err error) bool {
	if !conn.reused {
		return false // the server doesn't like the request
	}
	if _, ok := err.(nothingWritten); ok {
		return c.body == nil || c.req.GetBody != nil
	}
	if _, ok := err.(noAnswer); ok {
		return c.isReplayable()
	}
	return false
}

// retryShared returns nil if a request that failed over HTTP/2 is sent again, as net/http does. It waits
// before it does so more than once.
func (c *call) retryShared(err error, retries int) error {
	if !mayRetryShared(err) || retries > sharedRetriesMax {
		return err
	}
	if c.bodyRead && c.body != nil && c.req.GetBody == nil {
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
	case <-c.ctx.Done():
		return c.ended()
	}
}

// hasServed reports whether err says that the server goes away, and has served other requests on the
// connection. Many calls may have shared it, and then share the next one, on which the server serves
// some again. So they neither wait, as long as it does, nor give up.
func (c *conn) hasServed(err error) bool {
	gone, _ := c.goneAway()
	return gone.ErrCode == h2.NoError && gone.LastStreamID > 0 && (err == errSharedUnusable || err == errSharedGoAway)
}

// mayRetryShared reports whether a request that has failed with err may be sent again: the server has
// not served it.
func mayRetryShared(err error) bool {
	e, ok := err.(semantics.StreamError)
	switch {
	case err == errSharedUnusable, err == errSharedGoAway, ok && e.Code == h2.RefusedStream:
		return true
	}
	return ok && retriesBreaches && e.Code == h2.ProtocolError && e.Cause == errFromPeer
}

// sharedRetriesMax is how often a request is sent again, after the first time.
const sharedRetriesMax = 6

// isReplayable reports whether the request may reach the server twice.
func (c *call) isReplayable() bool {
	if c.body != nil && c.req.GetBody == nil {
		return false
	}
	switch c.req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return c.req.Header["Idempotency-Key"] != nil || c.req.Header["X-Idempotency-Key"] != nil
}

// getConn returns a connection for the request: an idle one, or the first of those that become idle
// and the one that is dialed for it.
func (c *call) getConn() (*conn, error) {
	trace := c.trace
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(c.addr)
	}
	conn, idleSince, w := c.t.conns.take(c)
	if conn == nil {
		var err error
		if conn, err = w.wait(c); err != nil {
			return nil, err
		}
	}
	c.reused = conn.reused
	if conn.shared != nil {
		if c.reused = conn.shared.used.Swap(true); c.reused && trace != nil && conn.shared.streams.Streams() == 0 {
			idleSince = time.Unix(0, conn.shared.idled.Load())
		}
	}
	if trace != nil && trace.GotConn != nil {
		info := httptrace.GotConnInfo{Conn: conn.shown(), Reused: c.reused}
		if !idleSince.IsZero() {
			info.WasIdle, info.IdleTime = true, time.Since(idleSince)
		}
		got := false
		defer func() {
			if !got { // the hook has panicked, or ended the goroutine
				conn.giveBack()
			}
		}()
		trace.GotConn(info)
		got = true
	}
	return conn, nil
}

// canceled returns the error of a request that was cancelled while it waited for a connection.
func (c *call) canceled() error {
	err := context.Cause(c.ctx)
	if errors.Is(err, errRequestCanceled) {
		return errRequestCanceledConn
	}
	return err
}
