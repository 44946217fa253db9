package httpadapter

import (
	"time"

	"github.com/percore/percore"
)

// DefaultParkAfter is for how long a connection waits for its next request
// before it is parked, unless [ParkAfter] says otherwise.
//
// Being parked and waking up again costs about as much as half a request. At
// this value a connection does it ten times a second at the most, which is a
// few hundredths of a percent of a processor, and one that is used more often
// never does. What it costs in turn is the memory of those that were used within
// the last tenth of a second: of 10,000 that send a request every 10 s each, a
// hundred.
const DefaultParkAfter = 100 * time.Millisecond

// An Option changes how a [Server] runs.
type Option func(*config)

type config struct {
	parkAfter time.Duration
	listen    percore.ListenConfig
}

// ParkAfter sets for how long a connection waits for its next request before it
// is parked. 0 parks it at once, which costs processor time if requests follow
// each other closely. Below 0 nothing is ever parked, and connections go to
// net/http as they are.
func ParkAfter(d time.Duration) Option {
	return func(c *config) { c.parkAfter = d }
}

// ListenConfig sets how [Server.ListenAndServe] and [Server.ListenAndServeTLS]
// listen: the group of loops, keep-alive, sharing of ports. It is copied.
func ListenConfig(lc *percore.ListenConfig) Option {
	return func(c *config) { c.listen = *lc }
}
