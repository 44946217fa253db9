package httpadapter

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// MaxAge makes connections end after a time or a number of requests, so that clients connect again and
// the load balancer sends some of them to machines that were added since. Over HTTP/1 the first answer
// after either limit says "Connection: close"; over HTTP/2 a GOAWAY tells the client to open another
// connection. No request is lost, and nothing that is running is cut off. A waiting HTTP/1 connection
// stays until its next answer.
//
// For age and requests, 0 means no limit. Each connection's limits differ from them by up to a tenth,
// so that connections that began together don't end together. A connection that package handover has
// moved here from another process starts again. The program decides how a long answer ends: see
// OnMaxAge of [Answer].
//
// With MaxAge, Serve also sets the http.Server's ConnContext, which calls the user's. A handler that
// sets Connection itself overrules the limits. An answer to a request with the header Upgrade may be
// "101 Switching Protocols", so it leaves the end to the next answer. See also [Server.Drain].
func MaxAge(age time.Duration, requests int) Option {
	if age < 0 || requests < 0 {
		panic(fmt.Sprintf("httpadapter: MaxAge(%v, %d): want 0, for no limit, or more", age, requests))
	}
	return func(c *config) { // a tenth is added to them, and a time
		c.maxAge, c.maxRequests = min(age, math.MaxInt64/4), min(requests, math.MaxInt/4)
	}
}

// installAge makes ConnContext note the age of connections.
func (s *Server) installAge() {
	if s.maxAge == 0 && s.maxRequests == 0 {
		return
	}
	user := s.srv.ConnContext
	s.srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if user != nil {
			if ctx = user(ctx, nc); ctx == nil {
				return nil // about which the caller panics
			}
		}
		return context.WithValue(ctx, connAgeKey{}, newConnAge(&s.config, rand.Float64()))
	}
}

// connAge is a connection's limits.
type connAge struct {
	end  int64        // in the time of monotime.Now; 0: none
	age  int64        // how long after the connection's beginning that is
	left atomic.Int64 // requests, with the one that says "close"; if there is no limit they begin below 0
}

type connAgeKey struct{}

// newConnAge returns the limits of a new connection. random is between 0 and 1.
func newConnAge(c *config, random float64) *connAge {
	a, factor := new(connAge), 0.9+0.2*random
	if c.maxAge > 0 {
		a.age = int64(float64(c.maxAge) * factor)
		a.end = monotime.Now() + a.age
	}
	a.left.Store(-1)
	if c.maxRequests > 0 {
		a.left.Store(max(1, int64(float64(c.maxRequests)*factor)))
	}
	return a
}

// isLast counts a request, and reports whether it is to be the connection's last.
func (a *connAge) isLast() bool {
	left := a.left.Load()
	if left > 0 {
		left = a.left.Add(-1) // of HTTP/2's requests at the same time each takes one
	}
	return left == 0 || left < -1 || a.end != 0 && monotime.Now() >= a.end
}

// untilEnd returns the time until the connection reaches its age, or if it has, reaches it once more; 0:
// there is no limit.
func (a *connAge) untilEnd() time.Duration {
	if left := a.end - monotime.Now(); a.end != 0 && left > 0 {
		return time.Duration(left)
	}
	return time.Duration(a.age)
}

// OnMaxAge registers f, which is called on a goroutine of its own when the connection reaches its age
// by [MaxAge]: an answer that goes on keeps the client there, so tell it to come back, and Close. If
// the connection is already older, f is called after the same time again. f isn't called without that
// option, or once the Answer has ended. Several functions may be registered.
func (s *Answer) OnMaxAge(f func()) {
	if f == nil {
		panic("httpadapter: OnMaxAge was called with a nil function")
	}
	a, ok := s.ctx.Value(connAgeKey{}).(*connAge)
	if !ok || a.end == 0 {
		return
	}
	timer := time.AfterFunc(a.untilEnd(), func() {
		if s.ctx.Err() == nil {
			f()
		}
	})
	context.AfterFunc(s.ctx, func() { timer.Stop() })
}
