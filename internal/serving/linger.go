package serving

import "time"

// The kernel resets a connection that is closed while bytes from the peer are unread, or on their
// way, and drops the bytes that it has yet to send (RFC 2525, section 2.17). So a connection whose
// peer may still be sending lingers: our stream ends, and the connection is closed later. That
// costs a timer, no goroutine.
const (
	// LingerTime is for how long, unless the peer ends its stream before: net/http's rstAvoidanceDelay.
	LingerTime = 500 * time.Millisecond

	// LingerBytes is how much of the input is read and dropped at most.
	LingerBytes = 1 << 20
)
