package httpstream

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// A Handler calls the handler of an http.Server. It is an [h2.ConnHandler].
type Handler struct {
	HTTP *http.Server // has the handler, and the timeouts
	Host Host         // the server that the connections belong to
}

// ExtendedConnect says whether clients may send CONNECT with :protocol, for WebSockets over HTTP/2
// (RFC 8441). As in net/http, it is off unless GODEBUG has http2xconnect=1 when the process starts:
// a browser that may use it doesn't fall back to HTTP/1.1, and handlers must know of it.
var ExtendedConnect = strings.Contains(os.Getenv("GODEBUG"), "http2xconnect=1")

// A Host is the server around a Handler.
type Host interface {
	// ConnState is called like the ConnState of an http.Server.
	ConnState(c *h2.Conn, state http.ConnState)

	// KeepAlives reports whether a connection may stay open after its last stream has ended.
	KeepAlives() bool

	// CountDetached counts an answer that is detached, or, below 0, one whose rest has ended.
	CountDetached(by int64)

	// Logf writes a line to the server's log.
	Logf(format string, args ...any)
}

// A Conn is what the User of an h2.Conn must be: it has what all requests of a connection share. The
// methods must not block. They are called for one request of a connection after the other.
type Conn interface {
	// RemoteText and TLSState return a Request's RemoteAddr and TLS.
	RemoteText() string
	TLSState() *tls.ConnectionState

	// NewContext makes the context of a request.
	NewContext() (context.Context, semantics.Canceler)
}

// Accept implements [h2.Handler].
func (h *Handler) Accept(c *h2.Conn, r *h2.Request) h2.StreamHandler {
	x := &exchange{part: part{server: h}}
	if code, ok := x.makeRequest(c, r); !ok {
		return h2.Refuse(code)
	}
	return x
}

// ConnState implements [h2.ConnHandler].
func (h *Handler) ConnState(c *h2.Conn, s h2.ConnState) {
	switch s {
	case h2.Active:
		h.Host.ConnState(c, http.StateActive)
	case h2.Idle:
		h.Host.ConnState(c, http.StateIdle)
		if !h.Host.KeepAlives() {
			c.GoAway()
		}
	case h2.Closed:
		h.Host.ConnState(c, http.StateClosed)
	}
}

// exchange is a request and its answer: the stream's handler. It is never used for a second request,
// since handlers may keep all that they can reach from it.
type exchange struct {
	part

	request http.Request
}

// part is what an exchange has of its stream. A detached Answer has a part of its own, which gets the
// stream, and nothing refers to the exchange when the handler has returned.
type part struct {
	stream h2.Stream

	// immutable
	server   *Handler
	ctx      context.Context    // of the request, which handlers may give another; nil in an Answer
	canceler semantics.Canceler // of ctx

	response response

	detached atomic.Pointer[Answer] // nil: the answer isn't. Also in the Answer's own part
}

// current returns the part that has the stream.
func (p *part) current() *part {
	if a := p.detached.Load(); a != nil {
		return &a.part
	}
	return p
}

// logPanic logs a panic of the user's.
func (p *part) logPanic(reason any) {
	semantics.LogPanic(p.server.Host.Logf, "http2", p.stream.Conn().RemoteAddr(), reason)
}

func (p *part) Stream() *h2.Stream { return &p.stream }

func (p *part) Cancelled(err error) {
	p.canceler.Cancel()
	if a := p.detached.Load(); a != nil {
		a.gone(err)
	}
}

func (x *exchange) Serve() {
	if d := x.server.HTTP.ReadTimeout; d > 0 && x.hasBody() {
		_ = x.stream.SetReadDeadline(time.Now().Add(d))
	}
	if d := x.server.HTTP.WriteTimeout; d > 0 {
		_ = x.stream.SetWriteDeadline(time.Now().Add(d))
	}
	returned := false
	defer func() {
		detached := x.detached.Load()
		if detached == nil || !returned {
			x.canceler.Cancel()
		}
		if x.request.MultipartForm != nil {
			_ = x.request.MultipartForm.RemoveAll()
		}
		if !returned {
			x.response.abort()
			x.current().stream.Reset(h2.InternalError)
			if reason := recover(); reason != nil {
				x.current().logPanic(reason)
			}
			if detached != nil {
				detached.owner.Gone(semantics.ErrPanicked)
			}
		}
		if detached != nil {
			detached.stream.CloseRead()
			detached.Resume()
		}
	}()
	x.serve()
	if x.detached.Load() == nil {
		x.response.finish()
	}
	returned = true
}

// hasBody reports whether there is a body to read. It is for the time before the handler is called,
// which may replace it.
func (x *exchange) hasBody() bool {
	b, ok := x.request.Body.(*body)
	return ok && b.open
}

func (x *exchange) serve() {
	r := &x.request
	switch refused := int(x.response.status); refused {
	case 0:
		if !x.server.HTTP.DisableGeneralOptionsHandler && semantics.IsGeneralOptions(r) {
			semantics.GeneralOptions(&x.response, r)
			return
		}
		x.server.HTTP.Handler.ServeHTTP(&x.response, r)
	case http.StatusRequestHeaderFieldsTooLarge:
		x.response.WriteHeader(refused)
		_, _ = x.response.WriteString("<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>")
	default:
		x.response.resets = true
		http.Error(&x.response, x.problem(), refused)
	}
}
