package httpadapter

import (
	"time"

	"github.com/percore/percore/internal/serving"
)

// An Option changes how a [Server] runs.
type Option func(*config)

type config struct {
	maxAge      time.Duration // of connections; 0: no limit
	maxRequests int           // the same

	work *workLimit // nil: none

	newHandshakes func() *serving.Handshakes // of a call; tests replace it
	beginTime     time.Duration              // see h1.BeginTime; tests shorten it

	checkTLS func() error // returns why connections can't wait above crypto/tls, or nil; tests replace it
}
