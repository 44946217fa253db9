package rpc

import (
	"context"

	"google.golang.org/grpc/stats"
)

// combineStats makes one handler of several, which are called in their order; nil: there are none.
func combineStats(all []stats.Handler) stats.Handler {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return statsHandlers(all)
}

type statsHandlers []stats.Handler

// TagConn implements [stats.Handler].
func (all statsHandlers) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagConn(ctx, info)
	}
	return ctx
}

// HandleConn implements [stats.Handler].
func (all statsHandlers) HandleConn(ctx context.Context, e stats.ConnStats) {
	for _, h := range all {
		h.HandleConn(ctx, e)
	}
}

// TagRPC implements [stats.Handler].
func (all statsHandlers) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagRPC(ctx, info)
	}
	return ctx
}

// HandleRPC implements [stats.Handler].
func (all statsHandlers) HandleRPC(ctx context.Context, e stats.RPCStats) {
	for _, h := range all {
		h.HandleRPC(ctx, e)
	}
}
