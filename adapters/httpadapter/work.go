package httpadapter

import (
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/percore/percore/internal/admission"
)

// A WorkLimit says how much work a [Server] takes on: see [LimitWork].
type WorkLimit struct {
	// Handlers is how many run at a time. It must be positive.
	Handlers int

	// Wait is how long a request may wait for a handler to return: 0 is a second. Choose less than what
	// clients accept, minus the time that a handler takes.
	Wait time.Duration

	// Queue is how many requests may wait: 0 is 1,000. Each holds a goroutine, some 6 KB.
	Queue int

	// Exempt says which requests are served at once, and not counted: health checks, say, and those
	// whose handlers wait for long, as for WebSockets. nil: none. It must not block.
	Exempt func(*http.Request) bool
}

const (
	workWait  = time.Second
	workQueue = 1000
)

// LimitWork limits how many handlers run at a time. Requests that are too many wait for their turn, the
// oldest of each client's first, one client after the other: the flood of one doesn't delay the single
// request of another by more than a turn. A client is an IPv4 address, or an IPv6 network of 64 bits.
// When too many wait, the youngest of the client with most of them makes room. A request that has made
// room, or has waited for too long, is answered with 503 and Retry-After, without the handler. One whose
// client goes leaves the queue.
//
// Without it a server that gets more than it can serve lets all requests wait, so that in the end all
// are late. The limit is of handlers, so it also limits HTTP/2, where a connection has many requests. An
// answer that is detached (see [Detach]) counts until its handler returns. Streams of a [StreamHandler]
// don't count.
//
// It panics if a number is negative, or Handlers is 0.
func LimitWork(limit WorkLimit) Option {
	if limit.Handlers <= 0 || limit.Queue < 0 || limit.Wait < 0 {
		panic("httpadapter: LimitWork was called with a number that is negative, or without WorkLimit.Handlers")
	}
	if limit.Wait == 0 {
		limit.Wait = workWait
	}
	if limit.Queue == 0 {
		limit.Queue = workQueue
	}
	return func(c *config) { c.work = &limit }
}

// workLimiter is a Server's WorkLimit at work.
type workLimiter struct {
	*admission.Limiter
	exempt     func(*http.Request) bool
	retryAfter string
}

func newWorkLimiter(limit *WorkLimit) *workLimiter {
	if limit == nil {
		return nil
	}
	return &workLimiter{
		Limiter:    admission.New(limit.Handlers, limit.Queue, limit.Wait),
		exempt:     limit.Exempt,
		retryAfter: strconv.FormatInt(int64((limit.Wait+time.Second-1)/time.Second), 10),
	}
}

// serve calls a handler when it is its turn.
func (l *workLimiter) serve(s *Server, h http.Handler, w http.ResponseWriter, r *http.Request) {
	if l.exempt != nil && l.exempt(r) {
		h.ServeHTTP(w, r)
		return
	}
	if !l.Enter() {
		addr, _ := netip.ParseAddrPort(r.RemoteAddr) // of a unix socket: all are one client
		s.counts.Add(countQueued, 1)
		ok := l.Wait(addr.Addr(), r.Context().Done())
		s.counts.Add(countQueued, -1)
		if !ok {
			s.counts.Add(countOverload, 1)
			l.refuse(w)
			return
		}
	}
	defer l.Leave()
	h.ServeHTTP(w, r)
}

// refuse answers a request that isn't served.
func (l *workLimiter) refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", l.retryAfter)
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}
