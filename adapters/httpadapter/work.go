package httpadapter

import (
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/percore/percore/admission"
)

// LimitWork limits how many handlers run at a time: each takes a place of l, which other servers may
// share. Further requests wait for their turn, on their goroutines. A request that is refused, or has
// waited for too long, is answered with 503 and Retry-After, without the handler. If its client goes
// away, a request leaves the queue.
//
// exempt says which requests are served at once, without a place: for example health checks, and
// requests whose handlers wait for long, such as WebSockets. It must not block. nil exempts no request.
//
// The limit is for handlers, so it also limits HTTP/2, where a connection has many requests. A handler
// that calls [Detach] gives its place back when it returns; where Detach waits for the end of the
// answer, the handler keeps its place until then. Streams of a [StreamHandler] take no places.
//
// It panics if l is nil.
func LimitWork(l *admission.Limiter, exempt func(*http.Request) bool) Option {
	if l == nil {
		panic("httpadapter: LimitWork was called with a nil *admission.Limiter: pass the result of admission.New")
	}
	seconds := (l.Limits().Wait + time.Second - 1) / time.Second
	return func(c *config) {
		c.work = &workLimit{limiter: l, exempt: exempt, retryAfter: strconv.FormatInt(int64(seconds), 10)}
	}
}

// workLimit has the arguments of LimitWork.
type workLimit struct {
	limiter    *admission.Limiter
	exempt     func(*http.Request) bool // nil: none
	retryAfter string
}

// serve calls a handler once it has a place.
func (l *workLimit) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if l.exempt != nil && l.exempt(r) {
		h.ServeHTTP(w, r)
		return
	}
	if !l.limiter.TryEnter() {
		addr, _ := netip.ParseAddrPort(r.RemoteAddr) // of a unix socket: all are one client
		if !l.limiter.Enter(addr.Addr(), r.Context().Done()) {
			w.Header().Set("Retry-After", l.retryAfter)
			http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
			return
		}
	}
	defer l.limiter.Leave()
	h.ServeHTTP(w, r)
}
