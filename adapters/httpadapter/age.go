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

// MaxAge makes connections end after a time and a number of requests, so that clients connect again and
// the load balancer sends some of them to machines that were added since: the first answer after either
// says "Connection: close" over HTTP/1, and over HTTP/2 the client is told by GOAWAY to open another
// connection. No request is lost, and nothing under way is cut off. An HTTP/1 connection that waits
// stays until its next answer.
//
// age and requests are 0 for no limit. Each connection's limits differ from them by up to a tenth, so
// that connections that began together don't end together. A connection that has come from another
// process by package handover begins anew. How a long answer ends is the program's choice: an
// [Answer] is told by OnMaxAge.
//
// Serve then sets the http.Server's ConnContext, too, which calls the user's. A handler that sets
// Connection itself overrules the limits, and an answer to a request with the header Upgrade, which may
// be "101 Switching Protocols", leaves the end to the next. See also [Server.Drain].
func MaxAge(age time.Duration, requests int) Option {
	if age < 0 || requests < 0 {
		panic(fmt.Sprintf("httpadapter: MaxAge(%v, %d): want 0, for no limit, or more", age, requests))
	}
	return func(c *config) { // a tenth is added to them, and a time
		c.maxAge, c.maxRequests = min(age, math.MaxInt64/4), min(requests, math.MaxInt/4)
	}
}

// installAge makes the user's hook note the age of connections.
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

// untilEnd returns the time until the connection's age is reached, or, if it is, reached once more. It
// is 0 if there is no limit.
func (a *connAge) untilEnd() time.Duration {
	if left := a.end - monotime.Now(); a.end != 0 && left > 0 {
		return time.Duration(left)
	}
	return time.Duration(a.age)
}

// OnMaxAge makes f be called, on a goroutine of its own, when the connection has reached its age by
// [MaxAge]: an answer that goes on keeps the client there, so tell it to come back, and Close. If the
// connection is older already, f is called when as much time has passed once more. f isn't called
// without that option, or when the Answer has ended. Several functions may be set.
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
