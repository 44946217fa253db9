package handover

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/seam"
)

// A source is the Server of a [Part] if its connections can move to another process, such as
// *httpadapter.Server.
type source interface {
	// HandOver calls give with the connections that l has accepted and that wait between requests, at
	// most 253 at a time, until no connection is left that can move, and returns nil. It returns ctx's
	// error when ctx ends, and give's error when give fails. Connections of other listeners stay. Nothing
	// may read from the connections while give has them. If give returns nil, they belong to the other
	// process, and HandOver closes the copies in this process; otherwise they stay.
	//
	// HandOver is called for all listeners at the same time, and perhaps several times for each, to find
	// connections that Accept has just returned. The source must know a connection before the goroutine
	// that got it from Accept calls Accept again.
	HandOver(ctx context.Context, l net.Listener, give func([]percore.WaitingConn) error) error
}

// errUnsupported is the error on platforms, and in builds, whose connections can't move.
var errUnsupported = fmt.Errorf("handover: connections move between processes on Linux only,"+
	" and on percore's own engine (no build tag percore_net, no PERCOREDEBUG=engine=net): %w", errors.ErrUnsupported)

// isSupported reports whether connections can move.
func isSupported() bool { return descriptorsTravel && !features.EngineIsNet() }

// listenerOf is a variable for tests.
var listenerOf = seam.ListenerOf

// movingListener returns the part of l that moves it.
func movingListener(l net.Listener) (seam.Listener, error) {
	if !isSupported() {
		return nil, errUnsupported
	}
	if m := listenerOf(l); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("a listener is a %T; only a *percore.Listener can be handed over", l)
}
