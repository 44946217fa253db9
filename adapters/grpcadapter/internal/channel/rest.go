package channel

import (
	"errors"
	"time"

	"google.golang.org/grpc/backoff"
)

// uselessMost is how many connections in a row may be of no use before others have to wait. They may
// well be: behind a balancer some servers go away, while others take over.
const uselessMost = 3

// errUseless is why an attempt fails in a rest.
var errUseless = errors.New(`connection error: desc = "the server has ended each connection as soon as it was made"`)

// attemptDelay is the time that an attempt gets behind a rest before the next address is tried: RFC
// 8305's "Connection Attempt Delay", section 5.
const attemptDelay = 250 * time.Millisecond

// A rest slows down the attempts to connect to an endpoint whose server ends each connection as soon as
// it is made. All fields are guarded by the channel's mu.
type rest struct {
	useless int       // connections since the last useful one
	until   time.Time // attempts before it fail, if there are too many useless connections
}

// ended takes the end of a connection. It was of use if the server has answered a call, or if it has
// lived as long as the backoff after a failure takes. The rest grows like that backoff.
func (r *rest) ended(wasOfUse bool, config backoff.Config) {
	if r.useless++; wasOfUse {
		r.useless = 0
	}
	if retries := r.useless - uselessMost - 1; retries >= 0 {
		r.until = time.Now().Add(Backoff(config, retries))
	}
}

// left returns how long an attempt has to wait. If that is 0, the attempt begins.
func (r *rest) left() time.Duration {
	if r.useless <= uselessMost {
		return 0
	}
	left := max(time.Until(r.until), 0)
	if left == 0 {
		r.until = time.Now().Add(attemptDelay)
	}
	return left
}
