package handover

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/moving"
)

// A Source has connections that can move. [*httpadapter.Server] is one.
//
// [*httpadapter.Server]: https://pkg.go.dev/github.com/percore/percore/adapters/httpadapter#Server
type Source interface {
	// HandOver calls give with those connections that l has accepted and that wait between requests, at
	// most 253 at a time, until none is left that could ever move, and returns nil; or until ctx ends,
	// and returns its error; or until give fails, and returns give's error. Connections of other
	// listeners stay. Nothing may read from the connections while give has them. If give returns nil
	// they belong to the other process, and HandOver closes this one's copies; otherwise they stay.
	//
	// Give calls it for all its listeners at once, and for each perhaps several times: a later call finds
	// the connections that Accept has returned just before. The Source knows a connection by the time
	// that the goroutine which got it from Accept calls Accept again.
	HandOver(ctx context.Context, l net.Listener, give func([]percore.WaitingConn) error) error
}

// Server is a part of a process that is handed over.
type Server struct {
	// Name tells the successor the listeners apart.
	Name string

	// Listener is a *percore.Listener.
	Listener net.Listener

	// Source has the connections of the listener, and perhaps those of other listeners, which stay, or
	// move with a Server of their own. If it is nil only the listener moves.
	Source Source
}

// errUnsupported is of builds and platforms whose connections can't move.
var errUnsupported = fmt.Errorf("handover: connections move between processes on Linux only,"+
	" and on percore's own engine (no build tag percore_net, no PERCOREDEBUG=engine=net): %w", errors.ErrUnsupported)

// isSupported reports whether connections can move.
func isSupported() bool { return moving.ListenerOf != nil && !fastpath.EngineIsNet() }

// movingListener returns the part of l that moves it.
func movingListener(l net.Listener) (moving.Listener, error) {
	if !isSupported() {
		return nil, errUnsupported
	}
	if m := moving.ListenerOf(l); m != nil {
		return m, nil
	}
	switch l.(type) {
	case *net.TCPListener, *net.UnixListener:
		return nil, errUnsupported
	}
	return nil, fmt.Errorf("a listener is a %T; only a *percore.Listener can be handed over", l)
}
