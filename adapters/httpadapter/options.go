package httpadapter

import (
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/serving"
)

// DefaultParkAfter is for how long a connection waits for its next request
// before it is parked, unless [ParkAfter] says otherwise.
//
// Being parked and waking up again costs some 10 µs of CPU time, about as much as a
// request. At this value a connection does it once every 0.7 s at the most, which is less than
// a hundredth of a percent of a processor: one whose requests come closer to each other is
// parked once and then no more (see [ParkAfter]). The price in turn is the memory of the
// connections that were used within the last tenth of a second, or the last 0.7 s if they are
// in steady use: of 10,000 that send a request every 10 s each, a hundred.
const DefaultParkAfter = 100 * time.Millisecond

// An Option changes how a [Server] runs.
type Option func(*config)

type config struct {
	parkAfter time.Duration // below 0: nothing is parked
	netHTTP1  bool          // net/http serves HTTP/1.1
	netHTTP2  bool          // the same
	listen    percore.ListenConfig

	maxAge      time.Duration // of connections; 0: no limit
	maxRequests int           // the same

	work *workLimit // nil: none

	newHandshakes func() *serving.Handshakes // of a call; tests replace it
	beginTime     time.Duration              // see beginTime; tests shorten it

	// checkNetHTTP returns the way in which net/http waits for a request, or why that is unknown.
	// checkTLS returns why connections can't wait above crypto/tls, or nil. Tests replace them.
	checkNetHTTP func() (probe.Way, error)
	checkTLS     func() error
}

// ParkAfter sets for how long a connection waits for its next request before it
// is parked: for d at least, and for half as much again at most, since waiting
// connections are looked at only from time to time; for longer if a loop has more of
// them than can be looked at in that time, a microsecond each, or the machine is
// overloaded. Values below a millisecond count as one.
//
// A connection that was parked and has its next request before it would have waited for
// 7 d is recently used: it waits for up to 7 d the next time. So connections with a
// request every half second, however many, are not parked between any two, and are
// parked within a second when they have gone quiet, if d is [DefaultParkAfter].
//
// If more than 32 other connections of a loop wait at the same time, as after ten
// thousand were opened at once, they are parked sooner, for the sake of memory: n times that
// many after an n-th of the time.
//
// 0 parks a connection at once, which costs CPU time if requests follow
// each other closely. Below 0 it is [NoParking].
func ParkAfter(d time.Duration) Option {
	return func(c *config) { c.parkAfter = d }
}

// ListenConfig sets how [Server.ListenAndServe] and [Server.ListenAndServeTLS]
// listen: the group of loops, keep-alive, sharing of ports. It is copied.
func ListenConfig(lc *percore.ListenConfig) Option {
	if lc == nil {
		panic("httpadapter: ListenConfig was called with a nil *percore.ListenConfig")
	}
	return func(c *config) { c.listen = *lc }
}

// NoParking leaves a connection to net/http, with its goroutine and buffers, from the first request that
// net/http serves on it until it ends. Without [NetHTTP1] those are connections with a request that is
// not plain; with both [NetHTTP1] and [NetHTTP2] it is every connection, as if there were no adapter.
func NoParking() Option { return ParkAfter(-1) }

// NetHTTP1 lets net/http serve HTTP/1.1. Its idle connections are parked, unless there is [NoParking].
//
// Without it the adapter serves plain requests itself: it reads them, calls the http.Server's Handler
// and answers, byte by byte as net/http would, for less CPU time. All that is not plain goes to
// net/http. The package's documentation says what is plain, and what differs.
//
// net/http serves everything off Linux, with the build tag percore_net, with PERCOREDEBUG=engine=net,
// and in a bubble of testing/synctest; over TLS also if crypto/tls does not read as the adapter relies
// on.
func NetHTTP1() Option { return func(c *config) { c.netHTTP1 = true } }

// NetHTTP2 lets net/http serve HTTP/2.
//
// Without it the adapter serves connections whose client has chosen HTTP/2 in the TLS handshake (ALPN)
// and, in clear, those that begin with HTTP/2's preface, where the http.Server's Protocols allow that.
// Handlers, hooks, limits and timeouts are those of the http.Server and of its HTTP2Config. The
// package's documentation says what differs.
//
// Without the option net/http serves HTTP/2 where it serves everything (see [NetHTTP1]). It also does so
// if the program has set HTTP2Config.CountError, which gets net/http's own names, or TLSNextProto["h2"],
// as golang.org/x/net/http2.ConfigureServer does; then a line is logged.
func NetHTTP2() Option { return func(c *config) { c.netHTTP2 = true } }
