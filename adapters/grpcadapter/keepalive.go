package grpcadapter

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// KeepaliveParams is grpc.KeepaliveParams as an option of [NewServer].
//
// As an option of [Serve] it gives the parameters that the grpc.Server got through grpc.KeepaliveParams,
// because grpc-go doesn't expose them. TCP_USER_TIMEOUT is set to kp.Timeout
// (20 seconds if that is 0). It is left alone if kp.Time is so large (math.MaxInt64) that grpc-go
// never pings. Without this option the server is assumed to have no such parameters.
func KeepaliveParams(kp keepalive.ServerParameters) KeepaliveOption { return KeepaliveOption{kp} }

// KeepaliveOption is an [Option] and a [ServeOption]: see [KeepaliveParams].
type KeepaliveOption struct{ params keepalive.ServerParameters }

func (o KeepaliveOption) applyToListener(s *settings) {
	s.userTimeout = userTimeout(o.params.Time, o.params.Timeout)
}

func (o KeepaliveOption) applyToServer(s *serverSettings) {
	s.Keepalive = o.params
	if o.params.Time > 0 {
		s.Keepalive.Time = max(o.params.Time, time.Second) // grpc-go's least
	}
}

// WithKeepaliveParams is grpc.WithKeepaliveParams as an option of [NewClient] and [DialOptions]. It
// gives the parameters to the client, and sets TCP_USER_TIMEOUT as [KeepaliveParams] does. A client
// without them does not ping, and then grpc-go does not set TCP_USER_TIMEOUT either.
func WithKeepaliveParams(kp keepalive.ClientParameters) DialerOption { return withKeepalive{kp} }

type withKeepalive struct{ params keepalive.ClientParameters }

func (o withKeepalive) applyToDialing(d *dialing) {
	d.settings.userTimeout = userTimeout(o.params.Time, o.params.Timeout)
	d.options = append(d.options, grpc.WithKeepaliveParams(o.params))
}

func (o withKeepalive) applyToClient(s *clientSettings) {
	s.Keepalive = o.params
	if o.params.Time > 0 {
		s.userTimeout = userTimeout(o.params.Time, o.params.Timeout)
	}
}

const (
	never          = time.Duration(math.MaxInt64) // grpc-go's infinity
	pingTimeout    = 20 * time.Second             // grpc-go's default, at both ends
	leaveUnchanged = -1
)

// userTimeout returns the value that grpc-go gives TCP_USER_TIMEOUT for the parameters of a server
// or client (NewServerTransport, NewHTTP2Client in its internal/transport).
func userTimeout(every, timeout time.Duration) time.Duration {
	switch {
	case every == never:
		return leaveUnchanged
	case timeout == 0:
		return pingTimeout
	}
	return timeout
}
