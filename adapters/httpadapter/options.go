package httpadapter

import (
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
)

// An Option changes how a [Server] runs.
type Option func(*config)

type config struct {
	listen percore.ListenConfig

	maxAge      time.Duration // of connections; 0: no limit
	maxRequests int           // the same

	work *workLimit // nil: none

	newHandshakes func() *serving.Handshakes // of a call; tests replace it
	beginTime     time.Duration              // see h1.BeginTime; tests shorten it

	checkTLS func() error // returns why connections can't wait above crypto/tls, or nil; tests replace it
}

// ListenConfig sets how [Server.ListenAndServe] and [Server.ListenAndServeTLS]
// listen: the group of loops, keep-alive, sharing of ports. It is copied.
func ListenConfig(lc *percore.ListenConfig) Option {
	if lc == nil {
		panic("httpadapter: ListenConfig was called with a nil *percore.ListenConfig")
	}
	return func(c *config) { c.listen = *lc }
}
