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

// A rest slows down the attempts to connect to an endpoint whose server ends each connection as soon as
// it is made. All fields are guarded by the channel's mu.
type rest struct {
	useless int       // connections since the last useful one
	until   time.Time // attempts before it fail, if there are too many useless connections
}

// ended takes the end of a connection. It was of use if the server has answered a call, or if it has
// lived as long as the backoff after a failure takes.
func (r *rest) ended(wasOfUse bool, config backoff.Config) {
	if r.useless++; wasOfUse {
		r.useless = 0
	}
	r.begin(config)
}

// begin makes attempts wait. The time grows like the backoff after failures.
func (r *rest) begin(config backoff.Config) {
	if retries := r.useless - uselessMost - 1; retries >= 0 {
		r.until = time.Now().Add(Backoff(config, retries))
	}
}

// left returns how long an attempt has to wait. If that is 0, the attempt begins and others have to
// wait.
func (r *rest) left(config backoff.Config) time.Duration {
	if r.useless <= uselessMost {
		return 0
	}
	left := max(time.Until(r.until), 0)
	if left == 0 {
		r.begin(config)
	}
	return left
}
