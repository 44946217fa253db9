// Package request has what both HTTP/1 and HTTP/2 need to send a request.
package request

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// Request is a request, which may be sent more than once. It belongs to the goroutine of its RoundTrip.
type Request struct {
	Base *http.Transport // the settings
	Req  *http.Request   // the user's, which is not changed

	Ctx    context.Context
	Cancel context.CancelCauseFunc // of Ctx; nil: it is the request's own

	Trace     *httptrace.ClientTrace // nil: none
	Target    string                 // of the first line
	ProxyAuth string                 // the field Proxy-Authorization; "": none
	Gzip      bool                   // the client asks for it, and decodes the answer
	Closes    bool                   // the client adds Connection: close

	Expects  bool          // the server is asked before the body is sent
	Body     io.ReadCloser // what to send; nil: nothing
	BodyRead bool          // it was read, and closed
	Probes   bool          // over HTTP/1, a look at the body says whether there is one
	Length   int64         // of the body; below 0: it goes in chunks, or with CONNECT as it is
}

// CloseBody closes the body unless it was closed already.
func (r *Request) CloseBody() {
	if r.Body != nil && !r.BodyRead {
		r.BodyRead = true
		r.Body.Close()
	}
}

// Rewind prepares the body to be sent once more. A body that was read must have a GetBody.
func (r *Request) Rewind() (err error) {
	if r.Body == nil || !r.BodyRead {
		return nil
	}
	if r.Body, err = r.Req.GetBody(); err != nil {
		return err
	}
	r.BodyRead = false
	return nil
}

// IsTunnel reports whether the body is a stream to what the server connects to.
func (r *Request) IsTunnel() bool { return r.Length < 0 && r.Req.Method == http.MethodConnect }

// Ended returns why Ctx has ended: with HTTP/2, net/http returns no cause.
func (r *Request) Ended() error {
	if err := r.Req.Context().Err(); err != nil {
		return err
	}
	return context.Cause(r.Ctx)
}

// EndedInHook reports whether a hook has cancelled the request. The watch of the context may notice that
// only after the answer, and then the call would succeed.
func (r *Request) EndedInHook() bool {
	if r.Trace == nil {
		return false
	}
	select {
	//lint:ignore SA1019 programs still use it
	case <-r.Req.Cancel:
		r.Cancel(ErrCanceled)
	default:
	}
	return r.Ctx.Err() != nil
}

// MayEnd reports whether Ctx may end. If not, calls need no function for Watch.
func (r *Request) MayEnd() bool { return r.Ctx.Done() != nil }

// Watch calls end when Ctx ends, until stop is called, which reports whether it came first.
func (r *Request) Watch(end func()) (stop func() bool) {
	own, ok := r.Ctx.Value(semantics.AfterFuncer).(interface {
		Done() <-chan struct{}
		AfterFunc(f func()) (stop func() bool)
	})
	if ok && own.Done() == r.Ctx.Done() {
		return own.AfterFunc(end)
	}
	return context.AfterFunc(r.Ctx, end)
}

// MaxHeaderBytes is how many bytes the server may send until its answer's header ends.
func MaxHeaderBytes(base *http.Transport) int64 {
	if n := base.MaxResponseHeaderBytes; n > 0 {
		return n
	}
	return 10 << 20
}

// WantsClose reports whether a request asks that the connection be closed.
func WantsClose(req *http.Request) bool {
	return req.Close || http1.HasToken(semantics.First(req.Header, "Connection"), "close")
}

// IsUpgrade reports whether the header of a request or an answer is about another protocol.
func IsUpgrade(h http.Header) bool {
	return h.Get("Upgrade") != "" && semantics.ListsToken(h["Connection"], "upgrade")
}
