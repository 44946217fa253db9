package httpadapter

import (
	"context"
	"fmt"
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
// process by package handover begins anew.
//
// Serve then sets the http.Server's ConnContext, too, which calls the user's. A handler that sets
// Connection itself overrules the limits, and an answer to a request with the header Upgrade, which may
// be "101 Switching Protocols", leaves the end to the next. See also [Server.Drain].
func MaxAge(age time.Duration, requests int) Option {
	if age < 0 || requests < 0 {
		panic(fmt.Sprintf("httpadapter: MaxAge(%v, %d): want 0, for no limit, or more", age, requests))
	}
	return func(c *config) { c.maxAge, c.maxRequests = age, requests }
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
	left atomic.Int64 // requests, with the one that says "close"; if there is no limit they begin below 0
}

type connAgeKey struct{}

// newConnAge returns the limits of a new connection. random is between 0 and 1.
func newConnAge(c *config, random float64) *connAge {
	a, factor := new(connAge), 0.9+0.2*random
	if c.maxAge > 0 {
		a.end = monotime.Now() + int64(float64(c.maxAge)*factor)
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
